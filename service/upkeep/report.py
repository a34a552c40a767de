"""What an examination of a service found."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from core.batch import Label
from core.config import EngineConfig
from core.counted import counted
from core.engine.state import EngineState
from core.errors import OtherRelease
from service.store.kept import Kept
from service.trainer.provenance import WRITTEN_BY, code, code_of, writer_of

LONG: Final = 2
"""Warm-ups after which a detector that may not speak yet wants attention."""


def advice_on(error: Exception, elsewhere: str) -> str:
    """What to do about a checkpoint that cannot be read.

    Arguments:
        error: Why not.
        elsewhere: Where another copy of it may be.
    """
    if isinstance(error, OtherRelease):
        return (
            "Nothing, if a newer one can be read. Else a start refuses it: start the release that "
            "wrote it, or a later one."
        )
    return f"Nothing, if a newer one can be read: a start passes it by. Else {elsewhere}."


def refused(kept: Kept, error: Exception) -> str:
    """A checkpoint that cannot be read, in words."""
    by = writer_of(kept) if isinstance(error, OtherRelease) else ""
    return f"{kept.place} cannot be read: {error}" + f" It was written by {by}." * bool(by)


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Arguments:
        subject: What it is, such as `disk`, or `model pump-7: stream`.
        found: In words, with numbers.
        advice: What to do; None where all is well.
        blocks: Whether a service could not go on from what is there, or would lack something.
    """

    subject: str
    found: str
    advice: str | None = None
    blocks: bool = False


@dataclass
class ModelFacts:
    """What is known of one model, in numbers; None where it cannot be known.

    Arguments:
        name: Empty for the service's own.
        checkpoints: Files that can be read.
        unreadable: Names of those that cannot.
        set_apart: Names of those that a trainer found damaged and set apart.
        version: Of the newest checkpoint that can be read.
        entries_applied: Entries of the stream that this one holds; 0 where there is none.
        last_entry_id: The last one of these.
        written_by: What wrote that checkpoint; empty where an earlier release did not say.
        by_this_code: Whether that was the code which is installed here.
        accepted: Entries accepted in all, ever.
        removed: Those of them that are no longer in the stream.
        dead_letters: Kept.
        sub_task_samples: Of the current sub-task, as that checkpoint has it.
        warm_up: Samples of a sub-task before the detector may speak (`GMR_WARM_UP`).
        alike: Classes whose labels differ only by blanks or capital letters: lists of label and
            samples, the largest class first.
    """

    name: str = ""
    checkpoints: int = 0
    unreadable: list[str] = field(default_factory=list)
    set_apart: list[str] = field(default_factory=list)
    version: int | None = None
    entries_applied: int = 0
    last_entry_id: str = "0-0"
    written_by: str | None = None
    by_this_code: bool | None = None
    accepted: int | None = None
    removed: int | None = None
    dead_letters: int | None = None
    sub_task_samples: int | None = None
    warm_up: int | None = None
    alike: list[list[tuple[str, int]]] = field(default_factory=list)

    def read(self, state: EngineState, config: EngineConfig, metadata: Mapping[str, str]) -> None:
        """Take note of a checkpoint that can be read; the first of them is the newest.

        Raises:
            KeyError, ValueError: It does not say how far into the stream it reaches.
        """
        last, applied = metadata["last_entry_id"], int(metadata["entries_applied"])
        self.checkpoints += 1
        if self.checkpoints == 1:
            self.version, self.last_entry_id = state.model.version, last
            self.entries_applied, self.warm_up = applied, config.warm_up
            self.sub_task_samples = state.stream.samples - state.sub_task.first_sample
            self.alike = alike(zip(state.model.classes, state.model.class_counts, strict=True))
            self.written_by = metadata.get(WRITTEN_BY, "")
            self.by_this_code = code_of(self.written_by) == code(config)

    @property
    def newest(self) -> str:
        """The newest of them, in words."""
        if self.version is None:
            return "none yet"
        by = "this code" if self.by_this_code else f"another state of the code ({self.written_by})"
        if not self.written_by:
            by = "an earlier release, which did not say what it was"
        held = counted(self.entries_applied, "entry", "entries")
        return f"the newest is version {self.version}, holds {held} and was written by {by}"

    @property
    def waits_long(self) -> bool:
        """Whether the sub-task has had far more samples than a detector waits for by itself."""
        if self.sub_task_samples is None or self.warm_up is None:
            return False
        return self.sub_task_samples > LONG * self.warm_up

    @property
    def beyond(self) -> int | None:
        """Entries in the stream that the newest checkpoint does not hold."""
        if self.accepted is None or self.removed is None:
            return None
        return max(0, self.accepted - max(self.entries_applied, self.removed))

    @property
    def missing(self) -> int | None:
        """Entries that are in neither."""
        return None if self.removed is None else max(0, self.removed - self.entries_applied)


@dataclass
class Report:
    """All of an examination.

    Arguments:
        findings: In the order in which they were made.
        models: Facts of each, the service's own first.
        versions: Of what is installed, and of the Redis that was asked.
    """

    findings: list[Finding] = field(default_factory=list)
    models: list[ModelFacts] = field(default_factory=list)
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def well(self) -> bool:
        """Whether nothing wants attention."""
        return all(finding.advice is None for finding in self.findings)

    def add(
        self, subject: str, found: str, advice: str | None = None, *, blocks: bool = False
    ) -> None:
        """Write down one more finding."""
        self.findings.append(Finding(subject, found, advice, blocks))

    def take(self, part: str, of_part: Report) -> None:
        """Take over what was found of a part, by its name."""
        for one in of_part.findings:
            self.findings.append(replace(one, subject=f"{part}: {one.subject}"))
        for model in of_part.models:
            self.models.append(replace(model, name=f"{part}/{model.name}".rstrip("/")))

    def to_json(self) -> dict[str, Any]:
        """The report, JSON-ready."""
        return {
            "well": self.well,
            "findings": [asdict(one) for one in self.findings],
            "models": [
                {**asdict(one), "beyond": one.beyond, "missing": one.missing} for one in self.models
            ],
            "versions": self.versions,
        }


def alike(counted_labels: Iterable[tuple[Label, int]]) -> list[list[tuple[str, int]]]:
    """Labels that differ only by blanks or capital letters, with their samples, largest first.

    Example:
        >>> alike([("Praise", 3), ("praise ", 8), ("refund", 9), (1, 5), ("1", 5)])
        [[('praise ', 8), ('Praise', 3)]]
    """
    found = defaultdict[str, list[tuple[str, int]]](list)
    for label, samples in counted_labels:
        if isinstance(label, str):
            found["".join(label.split()).casefold()].append((label, samples))
    return [sorted(group, key=lambda one: -one[1]) for group in found.values() if len(group) > 1]


def subject_of(name: str, what: str) -> str:
    """What a finding is about, of a named model or of the service's own (an empty name).

    Example:
        >>> subject_of("pump-7", "stream"), subject_of("", "stream")
        ('model pump-7: stream', 'stream')
    """
    return f"model {name}: {what}" if name else what

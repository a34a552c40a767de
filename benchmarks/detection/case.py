"""One case: a stream, a batch size and a detector; measured once and kept as one file.

Rule: a file holds what was said, not how good that was; scores are computed from it, so
that a change of a definition measures nothing anew.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks._arithmetic import as_in_the_trainer
from benchmarks.comparison.provenance import checksum, source_digest, versions
from benchmarks.comparison.store import Store
from benchmarks.detection.families import FAMILIES, FULL, Size, data_named
from benchmarks.detection.measures import Matching, match
from benchmarks.detection.outsider import MMD, Discrepancy
from benchmarks.detection.record import Record, record
from benchmarks.detection.stream import DriftStream, cut
from clients.data.datasets import Dataset
from clients.evaluation import environment
from core.config import EngineConfig

SCHEMA = "gmr-drift-case/1"

_DECIDING = ("families", "stream", "record", "outsider")
"""Modules on whose code a result depends, besides the engine's."""

TOLD = "told"
"""The oracle among detectors: boundaries are declared where they are."""


@dataclass(frozen=True)
class Group:
    """Streams that are scored together.

    Attributes:
        family: Of `FAMILIES`.
        data: A data set, or "clouds".
        batch: Samples per batch, or `MIXED`.
    """

    family: str
    data: str
    batch: int

    @property
    def batch_name(self) -> str:
        """As a table shows it."""
        return str(self.batch) if self.batch else "1 to 10,000"


@dataclass(frozen=True)
class Question:
    """A group and who is asked.

    Attributes:
        group: The streams.
        detector: The deciding one, or `TOLD`, or `MMD`, which needs no engine.
        shadows: That run beside it.
        settings: Other fields of `EngineConfig`.
        size: Of the streams.
        labelled: Whether labels are sent.
        trace: Whether every batch's statistics are kept.
    """

    group: Group
    detector: str
    shadows: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    size: Size = FULL
    labelled: bool = True
    trace: bool = False

    def config(self) -> EngineConfig:
        """Of the engine.

        Raises:
            InvalidSettings: The settings or the detector do not exist.
        """
        outside = self.detector in (TOLD, MMD)
        told = {"detector": "none" if outside else self.detector}
        beside = {"shadow_detectors": ",".join(self.shadows)} if self.shadows else {}
        return EngineConfig(**{**self.settings, **told, **beside})

    @property
    def asked(self) -> float | None:
        """Samples between false alarms that are asked for; None where nothing is."""
        ert: float | None = getattr(self.config(), "ert", None)
        return ert

    def path(self, stream: DriftStream) -> Path:
        """Of the stream's file, below the folder of cases."""
        group = self.group
        name = re.sub(r"[^\w-]+", "_", stream.name)
        variant = f"{self.detector}{'' if self.labelled else '-unlabelled'}"
        return Path(group.family, group.data, f"B{group.batch}", variant, f"{name}.json")

    def configuration(self, stream: DriftStream, checksum: int) -> dict[str, Any]:
        """All that determines the result, JSON-ready.

        Arguments:
            checksum: Of the data set.
        """
        return {
            "schema": SCHEMA,
            "family": self.group.family,
            "data": self.group.data,
            "checksum": checksum,
            "stream": stream.name,
            "size": asdict(self.size),
            "batch": self.group.batch,
            "detector": self.detector,
            "labelled": self.labelled,
            "trace": self.trace,
            "config": self.config().to_dict(),
            "versions": versions(),
            "source": source_digest(
                ("core.engine.engine",),
                tuple(f"benchmarks.detection.{name}" for name in _DECIDING),
            ),
        }


@dataclass(frozen=True)
class Answer:
    """What was said of one stream, beside the stream's truth."""

    stream: DriftStream
    batch: int
    said: Record
    kept: bool  # from before

    def matching(self, detector: str) -> Matching:
        """Alarms of the deciding detector, or of a shadow, against the truth."""
        ends = cut(len(self.stream), self.batch)[1:]
        alarms = self.said.alarms.get(detector, [])
        return match(alarms, self.stream.changes, ends, self.stream.horizon)


@as_in_the_trainer()
def _measured(question: Question, stream: DriftStream) -> Record:
    if question.detector == MMD:
        asked = question.asked
        own = Discrepancy() if asked is None else Discrepancy(ert=asked)
        return own.watch(stream, question.group.batch)
    return record(
        stream,
        question.config(),
        question.group.batch,
        labelled=question.labelled,
        told=question.detector == TOLD,
        trace=question.trace,
    )


def answers(
    question: Question,
    store: Store,
    load: Callable[[str, Size], Dataset] = data_named,
) -> Iterator[Answer]:
    """The answers to a question, stream by stream; what is kept is not measured again."""
    data = load(question.group.data, question.size)
    of_data, hardware = checksum(data), environment.hardware()
    for stream in FAMILIES[question.group.family](data, question.size):
        configuration = question.configuration(stream, of_data)
        path = question.path(stream)
        known = store.read(path, configuration)
        if known is not None:
            yield Answer(stream, question.group.batch, Record.from_dict(known["said"]), True)
            continue
        said = _measured(question, stream)
        values = {
            "configuration": configuration,
            "said": said.to_dict(),
            "changes": [asdict(change) for change in stream.changes],
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "hardware": hardware,
        }
        store.write(path, values)
        yield Answer(stream, question.group.batch, said, False)

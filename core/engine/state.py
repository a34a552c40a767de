"""Everything an engine knows, as one value of eight parts.

Which part a fact belongs to is told by what ends it: nothing, another model, a boundary, or a
decision about what waits.

1. `StreamState`: where the stream stands. It goes on, whatever becomes of the model.
2. `LearnedModel`: what was learned. A rollback exchanges it.
3. `SubTask`: what is known of the current sub-task. A boundary begins another.
4. `Past`: what is kept of sub-tasks that have ended.
5. `Watch`: what detectors remember.
6. `Pending`: samples kept until a decision, a label or a name comes.
7. `Rest`: whether the model learns, and what goes on while it does not.
8. `AskedSettings`: what was asked for in place of settings, until somebody asks again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, NamedTuple

import torch
from torch import Tensor

from core.batch import UNLABELLED, Batch, Label, SampleId, codes_among, new_labels
from core.config import EngineConfig
from core.drift.shadows import Shadow
from core.engine.asked_settings import NOTHING_ASKED, AskedSettings
from core.errors import ModelNotReady
from core.experts.panel import Panel
from core.memory.awaiting_samples import AwaitingSamples
from core.memory.burst import Burst
from core.memory.class_shares import ClassShares
from core.memory.course import Course
from core.memory.fingerprints import Fingerprints
from core.memory.marginals import Marginals
from core.memory.proposals import Proposals
from core.memory.reliability import Reliability
from core.memory.retention import RetentionSets, at_home
from core.outliers.calibration import Calibration
from core.running import Running
from core.standardiser import Standardiser

REMEMBERED_STARTS = 256
"""Batches whose place in the stream is remembered, to name the one at which a change began."""

REMEMBERED_PASSAGES = 64
"""Stretches of batches that passed by a model at rest whose places are remembered."""

REMEMBERED_DROPS = 64
"""Stretches that rollbacks have dropped whose places are remembered."""

UNREADY_SAMPLES = 500
"""First samples of a sub-task, whose scores are not yet those of a model that knows them."""


class Mode(StrEnum):
    """What becomes of the batches that come."""

    LEARN = "learn"  # the model learns, and boundaries are crossed
    DETECT_ONLY = "detect_only"  # changes are found and told; nothing is learned or crossed
    FROZEN = "frozen"  # batches are scored and counted; nothing else moves


class Passage(NamedTuple):
    """A stretch of the stream that passed by while the model was at rest."""

    batch: int  # batches before it that did not pass by
    sample: int  # likewise
    batches: int  # that have passed by at its end, in all
    samples: int


class Stretch(NamedTuple):
    """A stretch of all the stream, what passed by included."""

    first: int  # sample
    end: int  # first sample after it


@dataclass(frozen=True, eq=False)
class StreamState:
    """The position in the stream, whatever was learned of it.

    Two counts run side by side. An engine reckons with the batches and samples that did not pass
    by while its model was at rest, so that what passed by leaves no trace. Whoever reads a report
    counts all of the stream: `place` and `batch_place` lead from one to the other.

    Arguments:
        batches: Of the stream so far, learned or not, without those that passed by.
        samples: Likewise.
        starts: Sample index at which each of the last batches began.
        prequential: Accuracy of labelled samples before they were learned, those that passed by
            included.
        reliability: Of answers, by which accuracy is estimated where no label comes.
        passages: The newest stretches that passed by.
        dropped: The newest stretches that are no past of the model, because it went back behind
            them or came from elsewhere after them.
    """

    batches: int = 0
    samples: int = 0
    starts: tuple[int, ...] = ()
    prequential: Running = field(default_factory=Running)
    reliability: Reliability = field(default_factory=Reliability)
    passages: tuple[Passage, ...] = ()
    dropped: tuple[Stretch, ...] = ()

    @property
    def all_batches(self) -> int:
        """Batches of the stream so far, those that passed by included."""
        return self.batches + (self.passages[-1].batches if self.passages else 0)

    @property
    def all_samples(self) -> int:
        """Samples of the stream so far, those that passed by included."""
        return self.samples + (self.passages[-1].samples if self.passages else 0)

    def passed(self, n: int) -> StreamState:
        """Count one more batch, of n samples, that passes by.

        Example:
            >>> stream = StreamState().advanced(10).passed(5).advanced(10)
            >>> stream.samples, stream.all_samples, stream.place(9), stream.place(10)
            (20, 25, 9, 15)
        """
        last = self.passages[-1] if self.passages else Passage(0, 0, 0, 0)
        passage = Passage(self.batches, self.samples, last.batches + 1, last.samples + n)
        before = self.passages[:-1] if last.batch == self.batches else self.passages
        return replace(self, passages=(*before, passage)[-REMEMBERED_PASSAGES:])

    def restored(self, kept: StreamState | None) -> tuple[Stretch, ...]:
        """What is dropped once the model goes on from another state.

        Arguments:
            kept: The stream where that state was kept, as it is without raw samples; None: it has
                seen nothing of this stream.

        Example:
            >>> kept = StreamState().advanced(10)
            >>> kept.advanced(5).restored(kept)
            (Stretch(first=10, end=15),)
            >>> kept.restored(None)
            (Stretch(first=0, end=10),)
        """
        if kept is None:
            return StreamState().without(Stretch(0, self.all_samples)).dropped
        return kept.without(Stretch(kept.all_samples, self.all_samples)).dropped

    def without(self, stretch: Stretch) -> StreamState:
        """The same, of which one more stretch, after those before, is no past of the model.

        Example:
            >>> StreamState().without(Stretch(5, 10)).without(Stretch(10, 15)).dropped
            (Stretch(first=5, end=15),)
        """
        if stretch.first == stretch.end:
            return self
        before = self.dropped
        if before and before[-1].end == stretch.first:
            before, stretch = before[:-1], Stretch(before[-1].first, stretch.end)
        return replace(self, dropped=(*before, stretch)[-REMEMBERED_DROPS:])

    def place(self, sample: int) -> int:
        """Samples of all the stream before a sample that did not pass by, given by its count."""
        return sample + max(
            (passage.samples for passage in self.passages if passage.sample <= sample), default=0
        )

    def batch_place(self, batch: int) -> int:
        """Batches of all the stream before a batch that did not pass by, given by its count."""
        return batch + max(
            (passage.batches for passage in self.passages if passage.batch <= batch), default=0
        )

    def advanced(self, n: int) -> StreamState:
        """Count one more batch, of n samples."""
        starts = (*self.starts, self.samples)[-REMEMBERED_STARTS:]
        return replace(self, batches=self.batches + 1, samples=self.samples + n, starts=starts)

    def batch_at(self, sample: int) -> int:
        """Index of the batch that holds a sample of the recent stream, or of the next batch."""
        if sample >= self.samples:
            return self.batches
        first = self.batches - len(self.starts)
        earlier = sum(start <= sample for start in self.starts)
        return max(0, first + earlier - 1)


@dataclass(frozen=True, eq=False)
class LearnedModel:
    """The learned model.

    Arguments:
        random: State of the generator.
        learner: The preset's own state; None until the first batch fixes D.
        standardiser: None until the first batch.
        panel: Experts beside the mixture on what a sample is called; None where there are none.
        classes: Labels in order of discovery; a class's code is its place here.
        class_counts: Labelled samples learned per class.
        batches_seen: Batches learned.
        samples_seen: Samples learned.
        calibration: Scores of held-out inliers, for p-values; see `core.outliers.calibration`.
        version: Of the model as it stands; 0 means that nothing was learned.
        last_version: The largest version ever given; a rollback does not lower it.
        image_shape: (H, W) or (H, W, C) where the first batch came in it; empty where not.
    """

    random: Tensor
    learner: Any = None
    standardiser: Standardiser | None = None
    panel: Panel | None = None
    classes: tuple[Label, ...] = ()
    class_counts: tuple[int, ...] = ()
    batches_seen: int = 0
    samples_seen: int = 0
    calibration: Calibration = field(default_factory=Calibration)
    version: int = 0
    last_version: int = 0
    image_shape: tuple[int, ...] = ()

    @property
    def is_table(self) -> bool:
        """Whether its samples are known to be no images in [0, 1]."""
        if self.panel is not None:  # which only tables have
            return True
        return self.standardiser is not None and self.standardiser.beyond_unit_range

    def changed(self, **fields: Any) -> LearnedModel:
        """Another model, whose version was never used before.

        Arguments:
            fields: That change with it.
        """
        version = self.last_version + 1
        return replace(self, **fields, version=version, last_version=version)

    def codes_of(self, batch: Batch) -> Tensor:
        """Class code per sample, with shape (N,), int64, on the CPU; -1 where there is none."""
        return codes_among(batch, self.classes)

    def codes_and_new(self, batch: Batch) -> Tensor:
        """The same, and the number of classes where the label is of none of them."""
        codes = self.codes_of(batch)
        if batch.codes is None:
            return codes
        new = (batch.codes.cpu() != UNLABELLED) & (codes == UNLABELLED)
        return torch.where(new, len(self.classes), codes)

    def counted(self, codes: Tensor) -> tuple[int, ...]:
        """`class_counts` with the samples of these codes (N,), on the CPU."""
        counts = torch.bincount(codes[codes != UNLABELLED], minlength=len(self.classes))
        return tuple(old + new for old, new in zip(self.class_counts, counts.tolist(), strict=True))

    def new_labels(self, batch: Batch) -> list[Label]:
        """Labels that samples of the batch carry and no class has, in the vocabulary's order."""
        return new_labels(batch, self.classes)


@dataclass(frozen=True, eq=False)
class SubTask:
    """The current sub-task.

    Arguments:
        number: 0 for the first.
        first_batch: Where it began, in the stream.
        first_sample: Likewise.
        recurrence: The earlier sub-task that it is again; None for a new one.
        resumed: Whether a restored state had begun it.
        log_likelihood: Of its samples, nats in the sender's units.
        marginals: Of its single features; see `core.memory.marginals`.
        course: Where its samples lie since the boundary; see `core.memory.course`.
        fingerprints: Of samples that it has learned; see `core.memory.fingerprints`.
        class_shares: Of its samples, after the first; see `core.memory.class_shares`.
    """

    number: int = 0
    first_batch: int = 0
    first_sample: int = 0
    recurrence: int | None = None
    resumed: bool = False
    log_likelihood: Running = field(default_factory=Running)
    marginals: Marginals = field(default_factory=Marginals)
    course: Course = field(default_factory=Course)
    fingerprints: Fingerprints = field(default_factory=Fingerprints)
    class_shares: ClassShares = field(default_factory=ClassShares)


@dataclass(frozen=True, eq=False)
class Past:
    """The memory of sub-tasks that have ended.

    Arguments:
        boundaries: Ever reported, those that a rollback has dropped included.
        log_likelihood: Of all their samples, nats in the sender's units.
        retention: What they are remembered by, generated; see `core.memory.retention`.
    """

    boundaries: int = 0
    log_likelihood: Running = field(default_factory=Running)
    retention: RetentionSets = field(default_factory=RetentionSets)


@dataclass(frozen=True, eq=False)
class Watch:
    """The state of the detectors.

    Arguments:
        detector: The deciding one's own state.
        shadows: What detectors remember that run beside it.
        armed: Whether it could have spoken at the last batch.
        ert: Run time between false alarms asked for by now, in samples; None: as configured.
        ert_asked: Whether a person asked for that, so that no setting overrules it.
        burst: The newest burst of outliers; see `core.memory.burst`.
    """

    detector: Any
    shadows: tuple[Shadow, ...] = ()
    armed: bool = False
    ert: float | None = None
    ert_asked: bool = False
    burst: Burst = field(default_factory=Burst)


@dataclass(frozen=True, eq=False)
class Pending:
    """Samples kept beside the model until a decision, a label or a name comes.

    Arguments:
        set_aside: Batches that look like a change, not learned, in order.
        awaiting: Samples that await their label; see `core.memory.awaiting_samples`.
        proposals: Samples without a label that may be a new class; see `core.memory.proposals`.
        quarantined: Outliers of a burst that the last batch ended, for whoever keeps them.
    """

    set_aside: tuple[Batch, ...] = ()
    awaiting: AwaitingSamples = field(default_factory=AwaitingSamples)
    proposals: Proposals = field(default_factory=Proposals)
    quarantined: tuple[Batch, ...] = ()

    @property
    def set_aside_samples(self) -> int:
        """Samples of the batches set aside."""
        return sum(len(batch) for batch in self.set_aside)

    @property
    def undecided(self) -> tuple[Batch, ...]:
        """Batches that are learned once it is clear whether something has changed."""
        return (*self.set_aside, *self.awaiting.due)


class HeldLabel(NamedTuple):
    """A label that came for a sample by its id while the model was at rest."""

    id: SampleId
    label: Label


@dataclass(frozen=True, eq=False)
class Outlook:
    """What detectors see while nothing is learned. It is dropped when the model learns again.

    Arguments:
        watch: As it goes on; the one of the state rests.
        stream: As these detectors count it.
        suspected: Whether the last batch looked like a change.
    """

    watch: Watch
    stream: StreamState
    suspected: bool = False


@dataclass(frozen=True, eq=False)
class Rest:
    """Whether the model learns, and what goes on while it does not.

    Arguments:
        mode: What becomes of the batches that come.
        outlook: Of detectors that go on alone; None unless the mode is `DETECT_ONLY`.
        labels: Labels that came meanwhile for samples by their ids, to be matched at the thaw.
    """

    mode: Mode = Mode.LEARN
    outlook: Outlook | None = None
    labels: tuple[HeldLabel, ...] = ()


@dataclass(frozen=True, eq=False)
class EngineState:
    """Everything there is to know; a checkpoint is this and nothing else.

    Arguments:
        model: What was learned.
        watch: What detectors remember.
        stream: Where the stream stands.
        sub_task: The current one.
        past: Those that have ended.
        pending: What is not learned yet.
        rest: Whether the model learns.
        asked: Settings in force in place of configured ones.
    """

    model: LearnedModel
    watch: Watch
    stream: StreamState = field(default_factory=StreamState)
    sub_task: SubTask = field(default_factory=SubTask)
    past: Past = field(default_factory=Past)
    pending: Pending = field(default_factory=Pending)
    rest: Rest = field(default_factory=Rest)
    asked: AskedSettings = NOTHING_ASKED

    def in_force(self, config: EngineConfig) -> EngineConfig:
        """The settings that hold now.

        Arguments:
            config: Of the engine.
        """
        return self.asked.over(config)

    def changed(self, **fields: Any) -> EngineState:
        """Replace the model, under a version that was never used before.

        Arguments:
            fields: Of the model, that change with it.
        """
        return replace(self, model=self.model.changed(**fields))

    def with_model(self, **fields: Any) -> EngineState:
        """Replace fields of the model that change no answer; its version stays."""
        return replace(self, model=replace(self.model, **fields))

    def with_watch(self, **fields: Any) -> EngineState:
        """Replace fields of what detectors remember."""
        return replace(self, watch=replace(self.watch, **fields))

    def with_stream(self, **fields: Any) -> EngineState:
        """Replace fields of where the stream stands."""
        return replace(self, stream=replace(self.stream, **fields))

    def with_sub_task(self, **fields: Any) -> EngineState:
        """Replace fields of the current sub-task."""
        return replace(self, sub_task=replace(self.sub_task, **fields))

    def with_past(self, **fields: Any) -> EngineState:
        """Replace fields of what is kept of sub-tasks that have ended."""
        return replace(self, past=replace(self.past, **fields))

    def with_pending(self, **fields: Any) -> EngineState:
        """Replace fields of `pending`."""
        return replace(self, pending=replace(self.pending, **fields))

    @property
    def standardiser(self) -> Standardiser:
        """How samples in the sender's units become the model's.

        Raises:
            ModelNotReady: Before the first batch.
        """
        if self.model.standardiser is None:
            raise ModelNotReady.nothing_learned()
        return self.model.standardiser

    @property
    def learns(self) -> bool:
        """Whether batches are learned."""
        return self.rest.mode is Mode.LEARN

    @property
    def n_features(self) -> int | None:
        """D, or None before the first batch."""
        standardiser = self.model.standardiser
        return None if standardiser is None else len(standardiser.shift)

    @property
    def begun(self) -> bool:
        """Whether the current sub-task has had a sample, so that it can end."""
        came = self.stream.samples > self.sub_task.first_sample
        return self.model.learner is not None and (came or self.sub_task.resumed)

    @property
    def ready(self) -> bool:
        """Whether errors of the model are its usual ones, not those of a sub-task just begun."""
        since = self.stream.samples - self.sub_task.first_sample
        return self.sub_task.number == 0 or since >= UNREADY_SAMPLES

    @property
    def set_aside_stretch(self) -> Stretch:
        """Where in all the stream the samples set aside are; empty where there are none.

        They are the newest that did not pass by: whatever is learned decides about them.
        """
        stream = self.stream
        # An earlier release did not note their places.
        noted = [one.places for one in self.pending.set_aside if one.places is not None]
        firsts = [int(places.min()) for places in noted if len(places)]
        if not firsts:
            return Stretch(stream.all_samples, stream.all_samples)
        return Stretch(stream.place(min(firsts)), stream.place(stream.samples - 1) + 1)

    @property
    def suspected(self) -> bool:
        """Whether samples are pending until it is clear whether something has changed."""
        return bool(self.pending.set_aside) or self.pending.awaiting.suspect_since is not None

    @property
    def phase(self) -> str:
        """Where the current sub-task is: "learning", "armed" or "warning".

        In the mode in which detectors go on alone it is their phase.
        """
        outlook = self.rest.outlook
        if self.suspected if outlook is None else outlook.suspected:
            return "warning"
        watch = self.watch if outlook is None else outlook.watch
        return "armed" if watch.armed else "learning"

    @property
    def seen(self) -> EngineState:
        """The state as detectors see it: their outlook in its place, where they go on alone."""
        outlook = self.rest.outlook
        if outlook is None:
            return self
        # What is set aside was so before they began.
        pending = replace(self.pending, set_aside=())
        return replace(self, watch=outlook.watch, stream=outlook.stream, pending=pending)

    @property
    def log_likelihood(self) -> Running:
        """Running log-likelihood of samples of all sub-tasks, in nats and the sender's units."""
        return self.past.log_likelihood.pooled(self.sub_task.log_likelihood)

    @property
    def shown(self) -> Tensor:
        """Which classes are the sub-task's own, with shape (C,), bool: none while no label came."""
        model = self.model
        begin = [*self.past.retention.class_counts, *[0] * len(model.classes)]
        counts = zip(model.class_counts, begin, strict=False)
        seen = torch.tensor([float(now - was) for now, was in counts])
        return at_home(seen)


def joined(batches: tuple[Batch, ...], batch: Batch) -> tuple[Batch, ...]:
    """Batches and one more, unless it holds nothing."""
    return (*batches, batch) if len(batch) else batches

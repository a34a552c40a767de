"""Everything an engine knows, as one value."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from core.batch import UNLABELLED, Batch, Label, codes_among, new_labels
from core.drift.shadows import Shadow
from core.experts.panel import Panel
from core.memory.burst import Burst
from core.memory.course import Course
from core.memory.marginals import Marginals
from core.memory.pending_samples import PendingSamples
from core.memory.proposals import Proposals
from core.memory.retention import RetentionSets
from core.outliers.calibration import Calibration
from core.running import Running
from core.standardiser import Standardiser

AT_HOME = 0.25
"""Part of an even share of the sub-task's samples that makes a class one of its own."""


@dataclass(frozen=True, eq=False)
class EngineState:
    """Everything there is to know; a checkpoint is this and nothing else.

    Arguments:
        learner: The preset's own state; None until the first batch fixes D.
        detector: The detector's own state.
        standardiser: None until the first batch.
        classes: Labels in order of discovery; a class's code is its place here.
        class_counts: Labelled samples learned per class.
        likelihood: Of samples of the current sub-task, nats in the sender's units.
        past_likelihood: The same of all earlier sub-tasks.
        prequential: Accuracy of labelled samples before they were learned.
        set_aside: Batches that look like a change, not learned, in order.
        sub_task: 0 for the first.
        stream_batches: Batches of the stream so far, learned or not; with `stream_samples`.
        batches_seen: Batches learned; with `samples_seen`.
        boundary_batch: Where the current sub-task began, in the stream; with `boundary_sample`.
        recent_starts: Sample index at which each of the last batches began.
        version: Of the model as it stands; 0 means that nothing was learned.
        last_version: The largest version ever given; a rollback does not lower it.
        random: State of the generator.
        ert: Run time between false alarms asked for by now, in samples; None: as configured.
        recurrence: The earlier sub-task that the current one is again; None for a new one.
        armed: Whether the detector could have spoken at the last batch.
        quarantined: Outliers of a burst that the last batch ended, for whoever keeps them.
        awaiting: Samples that await their label; see `core.memory.pending_samples`.
        proposals: Samples without a label that may be a new class; see `core.memory.proposals`.
        boundaries: Boundaries ever reported, those that a rollback has dropped included.
        resumed: Whether the current sub-task is one that a restored state had begun.
        calibration: Scores of held-out inliers, for p-values; see `core.outliers.calibration`.
        held: What earlier sub-tasks are remembered by, generated; see `core.memory.retention`.
        shadows: What detectors remember that run beside the deciding one.
        burst: The newest burst of outliers; see `core.memory.burst`.
        course: Where the samples since the last boundary lie; see `core.memory.course`.
        panel: Experts beside the mixture on what a sample is called; None where there are none.
        marginals: Of single features, over the current sub-task; see `core.memory.marginals`.
    """

    learner: Any
    detector: Any
    standardiser: Standardiser | None
    classes: tuple[Label, ...]
    class_counts: tuple[int, ...]
    likelihood: Running
    past_likelihood: Running
    prequential: Running
    set_aside: tuple[Batch, ...]
    sub_task: int
    stream_batches: int
    stream_samples: int
    batches_seen: int
    samples_seen: int
    boundary_batch: int
    boundary_sample: int
    recent_starts: tuple[int, ...]
    version: int
    last_version: int
    random: Tensor
    ert: float | None = None
    recurrence: int | None = None
    armed: bool = False
    quarantined: tuple[Batch, ...] = ()
    awaiting: PendingSamples = field(default_factory=PendingSamples)
    proposals: Proposals = field(default_factory=Proposals)
    held: RetentionSets = field(
        default_factory=RetentionSets
    )  # a checkpoint of an earlier release has none
    shadows: tuple[Shadow, ...] = ()
    calibration: Calibration = field(default_factory=Calibration)  # likewise
    burst: Burst = field(default_factory=Burst)
    course: Course = field(default_factory=Course)
    marginals: Marginals = field(default_factory=Marginals)  # likewise
    panel: Panel | None = None  # likewise
    boundaries: int = 0  # likewise
    resumed: bool = False

    def changed(self, **parts: Any) -> EngineState:
        """With another model, whose version was never used before.

        Arguments:
            parts: Fields that change with it.
        """
        version = self.last_version + 1
        return replace(self, **parts, version=version, last_version=version)

    @property
    def n_features(self) -> int | None:
        """D, or None before the first batch."""
        return None if self.standardiser is None else len(self.standardiser.shift)

    @property
    def begun(self) -> bool:
        """Whether the current sub-task has had a sample, so that it can end."""
        came = self.stream_samples > self.boundary_sample
        return self.learner is not None and (came or self.resumed)

    @property
    def phase(self) -> str:
        """Where the current sub-task is: "learning", "armed" or "warning"."""
        if self.set_aside:
            return "warning"
        return "armed" if self.armed else "learning"

    @property
    def set_aside_batches(self) -> int:
        """Batches held because they look like a change."""
        return len(self.set_aside)

    @property
    def set_aside_samples(self) -> int:
        """Samples of those batches."""
        return sum(len(batch) for batch in self.set_aside)

    def codes_of(self, batch: Batch) -> Tensor:
        """Class code per sample, with shape (N,), int64, on the CPU; -1 where there is none."""
        return codes_among(batch, self.classes)

    @property
    def shown(self) -> Tensor:
        """Which classes are the sub-task's own, with shape (C,), bool: none while no label came."""
        begin = [*self.held.class_counts, *[0] * len(self.classes)]
        counts = zip(self.class_counts, begin, strict=False)
        seen = torch.tensor([float(now - was) for now, was in counts])
        # The first few of a class that trickles in are learned before any alarm.
        return (seen > 0) & (seen * len(seen[seen > 0]) >= AT_HOME * seen.sum())

    def counted(self, codes: Tensor) -> tuple[int, ...]:
        """`class_counts` with the samples of these codes (N,), on the CPU."""
        counts = torch.bincount(codes[codes != UNLABELLED], minlength=len(self.classes))
        return tuple(old + new for old, new in zip(self.class_counts, counts.tolist(), strict=True))

    def new_labels(self, batch: Batch) -> list[Label]:
        """Labels that samples of the batch carry and no class has, in the vocabulary's order."""
        return new_labels(batch, self.classes)

    def batch_at(self, sample: int) -> int:
        """Index of the batch that holds a sample of the recent stream, or of the next batch."""
        if sample >= self.stream_samples:
            return self.stream_batches
        first = self.stream_batches - len(self.recent_starts)
        earlier = sum(start <= sample for start in self.recent_starts)
        return max(0, first + earlier - 1)


def joined(batches: tuple[Batch, ...], batch: Batch) -> tuple[Batch, ...]:
    """Batches and one more, unless it holds nothing."""
    return (*batches, batch) if len(batch) else batches

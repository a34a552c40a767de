"""The results of an evaluation, as plain values: the content of report.json.

Rules: values only (no I/O, no drawing); every number that a table or figure of
the report shows is derived from what stands here, so that report.json is
complete; names of the JSON are the names of these fields, and a change that
would break a reader changes `SCHEMA`. Not-a-number is written as null.

Positions count the batches and samples that this run sent, from 0, so a stream
that other senders share, or a service that had learned before, does not shift them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from clients.evaluation import scores
from clients.evaluation.sample_quality import SampleQuality
from clients.evaluation.scores import BoundaryScore, FloatArray, Latency, Spread
from clients.evaluation.too_short import TooShort

SCHEMA = "gmr-evaluation/1"


@dataclass(frozen=True)
class History:
    """One value per batch that was sent, in the order of the stream; arrays of shape (B,)."""

    sub_task: tuple[int, ...]  # the true one, 0 for the first
    samples: tuple[int, ...]
    labelled: tuple[int, ...]
    set_aside: tuple[bool, ...]  # kept apart as a suspected change when it arrived
    inlier_rate: tuple[float, ...]
    log_likelihood_mean: tuple[float, ...]
    prequential_accuracy: tuple[float, ...]
    estimated_accuracy: tuple[float, ...]  # of the newest samples, without their labels

    def __len__(self) -> int:
        return len(self.samples)


@dataclass(frozen=True)
class FoundBoundary:
    """A boundary as the service reported it."""

    entry_id: str
    batch: int  # batches sent up to the report, the reporting one included
    sample: int
    detector: str
    evidence: Mapping[str, float]
    version_before: int
    version_after: int


@dataclass(frozen=True)
class Certainty:
    """How well a model knows some samples: means over them; NaN where there is nothing to say."""

    accuracy: float
    probability: float  # that it gives the right class
    log_likelihood: float  # nats


@dataclass(frozen=True)
class Milestone:
    """The model's scores once a sub-task had been learned."""

    sub_task: int
    classes: tuple[int | str, ...]  # of this sub-task
    samples_sent: int
    model_version: int
    accuracy_seen: float  # on the test samples of all classes sent so far
    accuracy_joint: float  # on the whole joint test set, as in the paper
    accuracy_per_sub_task: tuple[float, ...]  # a row of the accuracy matrix
    per_class: tuple[Certainty, ...] = ()  # on test samples, in the order of `Data.classes`


@dataclass(frozen=True)
class StillHeld:
    """A past sub-task: what the model says of its own samples, and what test data say.

    "Then" is when the service took the sub-task to have ended, for test data the first
    evaluation after all its classes had been streamed; "now" is the end of the run. Test
    figures are means over classes, as the model's own samples are spread evenly over them.
    """

    sub_task: int  # as the service counted
    classes: tuple[int | str, ...]  # empty where it had no labels
    samples: int  # the model's own
    model_version: int  # that these were last put to
    own_then: Certainty
    own_now: Certainty
    test_then: Certainty
    test_now: Certainty


@dataclass(frozen=True)
class OutlierTest:
    """The service's scores of samples unlike anything it was sent."""

    name: str
    samples: int
    auroc: float  # against the joint test set, by log-likelihood
    inlier_rate: float  # share of it that the service takes for inliers


@dataclass(frozen=True)
class Speed:
    """Time, seen from the client."""

    stream_seconds: float  # sending, and waiting until all is learned; no pause, no test
    samples_per_second: float  # sent to learned, end to end
    ingest: Latency
    classify: Latency
    classify_batch: int  # samples per /classify request
    ingest_seconds: tuple[float, ...]  # each request, in order
    classify_seconds: tuple[float, ...]


@dataclass(frozen=True)
class ShadowScore:
    """The alarms of a detector that ran beside the deciding one, judged by the true changes."""

    detector: str
    boundaries: BoundaryScore


@dataclass(frozen=True)
class Run:
    """One pass through all sub-tasks against one service."""

    seed: int
    history: History
    milestones: tuple[Milestone, ...]
    found: tuple[FoundBoundary, ...]
    boundaries: BoundaryScore
    confusion: tuple[tuple[int, ...], ...]  # rows: true class, columns: answer; order of `classes`
    outliers: tuple[OutlierTest, ...]
    speed: Speed
    model: Mapping[str, Any]  # the service's own description, GET /model, at the end
    held: tuple[StillHeld, ...] = ()  # past sub-tasks, oldest first
    shadows: tuple[ShadowScore, ...] = ()  # of `--set shadow_detectors=...`
    unwatched: tuple[TooShort, ...] = ()  # sub-tasks that ended before the detector was armed
    reference: tuple[float, ...] = ()  # prequential accuracy of a fresh model on each; NaN: none
    sample_quality: SampleQuality | None = None  # of what the model draws at the end

    @property
    def matrix(self) -> FloatArray:
        """The accuracy matrix, with shape (T, T)."""
        return np.array([milestone.accuracy_per_sub_task for milestone in self.milestones])

    def scores(self) -> dict[str, float]:
        """Every headline number of the run, by name; NaN where one does not apply."""
        matrix, last = self.matrix, self.milestones[-1]
        delays = self.boundaries.delays_batches, self.boundaries.delays_samples
        batches, samples = (float(np.mean(d)) if d else math.nan for d in delays)
        return {
            "accuracy": last.accuracy_joint,
            "average_accuracy": scores.average_accuracy(matrix),
            "backward_transfer": scores.backward_transfer(matrix),
            "forgetting": scores.forgetting(matrix),
            "forward_transfer": self._forward_transfer(),
            "average_anytime_accuracy": scores.average_anytime_accuracy(matrix),
            "prequential_accuracy": scores.prequential_accuracy(
                self.history.prequential_accuracy, self.history.labelled
            ),
            "estimate_error": scores.estimate_error(
                self.history.estimated_accuracy,
                self.history.prequential_accuracy,
                self.history.labelled,
            ),
            **self._sample_scores(),
            "boundaries_true": float(self.boundaries.changes),
            "boundaries_found": float(len(self.boundaries.matches)),
            "boundaries_missed": float(len(self.boundaries.missed)),
            "boundaries_false": float(len(self.boundaries.false)),
            "boundary_delay_batches": batches,
            "boundary_delay_samples": samples,
            "samples_per_second": self.speed.samples_per_second,
            "ingest_p50_seconds": self.speed.ingest.p50,
            "ingest_p99_seconds": self.speed.ingest.p99,
            "classify_p50_seconds": self.speed.classify.p50,
            "classify_p99_seconds": self.speed.classify.p99,
        }

    def _sample_scores(self) -> dict[str, float]:
        """NaN where nothing was drawn."""
        found = self.sample_quality
        return {
            f"sample_{name}": math.nan if found is None else float(getattr(found, name))
            for name in ("purity", "accepted", "precision", "recall", "density", "coverage")
        }

    def _forward_transfer(self) -> float:
        """NaN where no reference was run."""
        if not self.reference:
            return math.nan
        history = self.history
        own = []
        for index in range(len(self.reference)):
            rows = [row for row, task in enumerate(history.sub_task) if task == index]
            own.append(
                scores.prequential_accuracy(
                    [history.prequential_accuracy[row] for row in rows],
                    [history.labelled[row] for row in rows],
                )
            )
        return scores.forward_transfer(own, self.reference)


@dataclass(frozen=True)
class Data:
    """The data that were streamed."""

    source: str
    name: str
    train_samples: int  # distinct ones, of one epoch
    test_samples: int
    features: int
    image_shape: tuple[int, ...] | None  # (height, width) where samples are images
    classes: tuple[int | str, ...]  # in the order of the sub-tasks


@dataclass(frozen=True)
class Protocol:
    """The protocol: everything needed to repeat the evaluation, seeds included."""

    slt: str
    sub_tasks: tuple[tuple[int | str, ...], ...]
    batch_size: int
    epochs: int
    labelled: float  # share of training samples sent with their label
    limit: int | None  # training samples per sub-task and epoch, at most
    tolerance_samples: int  # the longest delay at which a boundary counts as found
    seeds: tuple[int, ...]
    service: Mapping[str, Any]  # "private" or its address, and the settings it was given


@dataclass(frozen=True)
class Evaluation:
    """All of it: what report.json holds."""

    created: str  # ISO 8601, UTC
    command: str
    duration_seconds: float
    data: Data
    protocol: Protocol
    versions: Mapping[str, str]
    hardware: Mapping[str, str | int | float]
    runs: tuple[Run, ...]

    def summary(self) -> dict[str, Spread]:
        """Each headline number over all seeds."""
        each = [run.scores() for run in self.runs]
        return {name: Spread.of([run[name] for run in each]) for name in each[0]}

    def to_dict(self) -> dict[str, Any]:
        """The evaluation as JSON-ready values: no NaN, no arrays, `schema` first."""
        content: dict[str, Any] = {"schema": SCHEMA, **_fields(self)}
        content["summary"] = _plain(self.summary())
        runs = content.pop("runs")
        for run, values in zip(self.runs, runs, strict=True):
            values["accuracy_matrix"] = _plain(run.matrix)
            values["scores"] = _plain(run.scores())
        content["runs"] = runs
        return content


def _fields(value: Any) -> dict[str, Any]:
    content = {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, BoundaryScore):
        for match, plain in zip(value.matches, content["matches"], strict=True):
            plain["delay_batches"], plain["delay_samples"] = (
                match.delay_batches,
                match.delay_samples,
            )
    return content


def _plain(value: Any) -> Any:
    """Turn a value into what JSON can say, NaN and infinity into null."""
    if is_dataclass(value) and not isinstance(value, type):
        return _fields(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value

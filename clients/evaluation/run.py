"""One run through all sub-tasks of a data set, over HTTP and nothing else.

Sub-tasks are streamed through POST /ingest, in order and batch by batch; after each, once all of
it is learned, the service is asked about the whole joint test set through POST /classify.
"""

from __future__ import annotations

import math
import time
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clients.data.datasets import Dataset
from clients.data.outlier_sets import OUTLIER_SAMPLES, outlier_sets
from clients.data.tasks import SLT, SubTask, stream
from clients.evaluation import scores
from clients.evaluation import too_short as unwatched
from clients.evaluation.listener import ProgressListener
from clients.evaluation.plan import Plan
from clients.evaluation.reference import reference_accuracy
from clients.evaluation.results import (
    Certainty,
    FoundBoundary,
    History,
    Milestone,
    OutlierTest,
    Run,
    ShadowScore,
    Speed,
)
from clients.evaluation.retention import still_held
from clients.evaluation.sample_quality import PER_CLASS, SampleQuality, sample_quality
from clients.evaluation.scores import Latency, Position
from clients.evaluation.too_short import TooShort
from clients.http.answers import Boundary, Classification, HistoryPoint, Samples
from clients.http.client import GMRClient
from clients.http.idle import wait_until_looked_back, wait_until_taken_in

CLASSIFY_BATCH = 500
"""Samples per /classify request."""

SAMPLES_PER_CLASS = 6
"""Rows of the montage."""

WATCH_S = 0.5
HISTORY_ROWS = 4000
"""More than the service lets wait."""

Drawn = dict[object, NDArray[np.float32]]
Array = NDArray[Any]


class EvaluationRun:
    """One run through all sub-tasks; keeps what was sent and what the service said of it."""

    def __init__(
        self,
        client: GMRClient,
        plan: Plan,
        slt: SLT,
        dataset: Dataset,
        seed: int,
        listener: ProgressListener,
    ) -> None:
        self._client, self._plan, self._slt, self._seed = client, plan, slt, seed
        self._listener = listener
        self._dataset = dataset.limited(slt, plan.limit, seed)
        rows = slt.rows(dataset.test_y)
        self._test_x, self._test_y = dataset.test_x[rows], dataset.test_y[rows]

        self._entries: list[tuple[int, int]] = []  # entry id of every batch sent, in order
        self._sub_task: list[int] = []
        self._samples: list[int] = []
        self._labelled: list[int] = []
        self._points: dict[tuple[int, int], HistoryPoint] = {}  # entry id -> what was said of it
        self._ingest_seconds: list[float] = []
        self._classify_seconds: list[float] = []
        self._stream_seconds = 0.0
        self._watched = 0.0

    def run(self) -> tuple[Run, Drawn]:
        """Stream, test, and say what was seen."""
        plan, slt = self._plan, self._slt
        self._warn()
        milestones = []
        answers = self._test_y[:0]
        data = self._dataset
        for sub_task in stream(
            slt, data.train_x, data.train_y, epochs=plan.epochs, seed=self._seed
        ):
            self._stream(sub_task)
            answers, milestone = self._test(sub_task)
            milestones.append(milestone)
            self._listener.measured(milestone)

        model = wait_until_looked_back(self._client)
        found = self._found()
        true = [
            self._position(self._sub_task.index(index)) for index in range(1, len(slt.sub_tasks))
        ]
        run = Run(
            seed=self._seed,
            history=self._history(),
            milestones=tuple(milestones),
            found=found,
            boundaries=scores.match_boundaries(
                [Position(boundary.batch, boundary.sample) for boundary in found],
                true,
                plan.tolerance_samples,
            ),
            confusion=tuple(
                tuple(row)
                for row in scores.confusion_matrix(self._test_y, answers, slt.classes).tolist()
            ),
            outliers=self._outliers(),
            speed=self._speed(),
            model=dict(model.raw),
            held=still_held(model.held, milestones, slt),
            shadows=self._shadows(true),
            unwatched=self._unwatched(),
            reference=self._reference() if plan.reference else (),
            sample_quality=self._sample_quality(),
        )
        return run, self._draw()

    def _warn(self) -> None:
        """Say which sub-tasks are shorter than what the detector needs."""
        epochs, labels = self._plan.epochs, self._dataset.train_y
        tasks = range(len(self._slt.sub_tasks))
        sizes = [epochs * len(self._slt.rows(labels, index)) for index in tasks]
        for one in unwatched.expected(self._client.drift(), sizes):
            self._listener.warned(one.told(epochs))

    def _unwatched(self) -> tuple[TooShort, ...]:
        """Which sub-tasks had ended before the detector was armed."""
        if self._client.drift().detector == unwatched.NEVER:
            return ()
        points = (self._points.get(entry) for entry in self._entries)
        return unwatched.seen(self._sub_task, self._samples, points)

    def _reference(self) -> tuple[float, ...]:
        """The prequential accuracy of a fresh model on each sub-task but the first."""
        plan, data = self._plan, self._dataset
        found = []
        for sub_task in stream(
            self._slt, data.train_x, data.train_y, epochs=plan.epochs, seed=self._seed
        ):
            first = self._sub_task.index(sub_task.index)
            batches = (
                (x, hide_labels(y, plan.labelled, [self._seed, first + place]))
                for place, (x, y) in enumerate(sub_task.batches(plan.batch_size))
            )
            fresh = math.nan
            if sub_task.index:
                fresh = reference_accuracy(self._client, batches)
            found.append(fresh)
        return tuple(found)

    def _stream(self, sub_task: SubTask) -> None:
        """Send a sub-task batch by batch, and wait until all of it is learned."""
        plan = self._plan
        self._listener.began(self._seed, sub_task)
        begun = time.perf_counter()
        for x, y in sub_task.batches(plan.batch_size):
            labels = hide_labels(y, plan.labelled, [self._seed, len(self._entries)])
            sent = time.perf_counter()
            receipt = self._client.ingest(x, labels)
            self._ingest_seconds.append(time.perf_counter() - sent)
            self._entries.append(entry_position(receipt.entry_id))
            self._sub_task.append(sub_task.index)
            self._samples.append(len(x))
            self._labelled.append(sum(label is not None for label in labels))
            self._listener.sent(len(x))
            if time.perf_counter() - self._watched > WATCH_S:
                self._watch()
        self._client.wait_until_learned()
        self._stream_seconds += time.perf_counter() - begun
        wait_until_taken_in(self._client)
        self._watch()

    def _watch(self) -> None:
        """Read what the service said of the batches not yet heard of, and pass the news on."""
        unheard = len(self._entries) - len(self._points)
        points = self._client.history(min(max(unheard, 1), HISTORY_ROWS))
        own = set(self._entries[-HISTORY_ROWS:])
        for point in points:
            if (key := entry_position(point.entry_id)) in own:
                self._points[key] = point
        if points and points[-1].inlier_rate is not None:
            self._listener.saw(points[-1].inlier_rate, len(self._reports()))
        self._watched = time.perf_counter()

    def _reports(self) -> list[tuple[int, Boundary]]:
        """Boundaries reported since this run began, each with the batches sent by then."""
        reports = []
        for boundary in self._client.boundaries():
            # Of all that was sent, the service had read what came up to this entry; a report
            # may stand at an entry of its own, when the stream fell quiet.
            sent = bisect_right(self._entries, entry_position(boundary.entry_id))
            if sent:
                reports.append((sent, boundary))
        return reports

    def _shadows(self, true: list[Position]) -> tuple[ShadowScore, ...]:
        """How shadows did; nothing where the service keeps not all of what they said."""
        alarms = {name: list[Position]() for name in self._client.drift().raw.get("shadows") or ()}
        if not alarms:
            return ()
        for event in self._client.kept_events(kinds=["shadow_alarm"]):
            if event.kind == "missed":
                return ()
            sent = bisect_right(self._entries, entry_position(event.data["entry_id"]))
            if sent and event.data["detector"] in alarms:
                alarms[event.data["detector"]].append(self._position(sent))
        tolerance = self._plan.tolerance_samples
        return tuple(
            ShadowScore(name, scores.match_boundaries(said, true, tolerance))
            for name, said in alarms.items()
        )

    def _position(self, batch: int) -> Position:
        return Position(batch, sum(self._samples[:batch]))

    def _test(self, sub_task: SubTask) -> tuple[Array, Milestone]:
        """What the service answers on the joint test set, with shape (N,), and how good that is."""
        labels: list[Array] = []
        certain: list[Array] = []  # the probability of the true class
        log_likelihoods: list[Array] = []
        for start in range(0, len(self._test_x), CLASSIFY_BATCH):
            rows = slice(start, start + CLASSIFY_BATCH)
            sent = time.perf_counter()
            answer = self._client.classify(self._test_x[rows])
            self._classify_seconds.append(time.perf_counter() - sent)
            labels.append(answer.labels)
            certain.append(probabilities_of(self._test_y[rows], answer))
            log_likelihoods.append(answer.log_likelihoods)
        answers = np.concatenate(labels)
        per_class = (
            scores.mean_per_class(self._test_y, values, self._slt.classes).tolist()
            for values in (
                self._test_y == answers,
                np.concatenate(certain),
                np.concatenate(log_likelihoods),
            )
        )
        sub_tasks = self._slt.sub_tasks
        known = [label for classes in sub_tasks[: sub_task.index + 1] for label in classes]
        seen = np.isin(self._test_y, np.array(known, dtype=self._test_y.dtype))
        return answers, Milestone(
            sub_task=sub_task.index,
            classes=sub_task.classes,
            samples_sent=sum(self._samples),
            model_version=answer.model_version,
            accuracy_seen=scores.accuracy(self._test_y[seen], answers[seen]),
            accuracy_joint=scores.accuracy(self._test_y, answers),
            accuracy_per_sub_task=tuple(
                scores.accuracy_per_sub_task(self._test_y, answers, sub_tasks).tolist()
            ),
            per_class=tuple(Certainty(*values) for values in zip(*per_class, strict=True)),
        )

    def _found(self) -> tuple[FoundBoundary, ...]:
        return tuple(
            FoundBoundary(
                entry_id=boundary.entry_id,
                batch=sent,
                sample=self._position(sent).sample,
                detector=boundary.detector,
                evidence=dict(boundary.evidence),
                version_before=boundary.version_before,
                version_after=boundary.version_after,
            )
            for sent, boundary in self._reports()
        )

    def _history(self) -> History:
        points = [self._points.get(entry) for entry in self._entries]

        def values(name: str) -> tuple[float, ...]:
            numbers = [getattr(point, name, None) for point in points]
            return tuple(math.nan if number is None else float(number) for number in numbers)

        return History(
            sub_task=tuple(self._sub_task),
            samples=tuple(self._samples),
            labelled=tuple(self._labelled),
            set_aside=tuple(getattr(point, "kind", "") == "batch_set_aside" for point in points),
            inlier_rate=values("inlier_rate"),
            log_likelihood_mean=values("log_likelihood_mean"),
            prequential_accuracy=values("prequential_accuracy"),
            estimated_accuracy=values("estimated_accuracy"),
        )

    def _outliers(self) -> tuple[OutlierTest, ...]:
        typical = self._client.outliers(self._test_x[: 2 * OUTLIER_SAMPLES]).log_likelihoods
        tests = []
        for name, x in outlier_sets(self._dataset, self._slt, self._seed).items():
            answer = self._client.outliers(x)
            tests.append(
                OutlierTest(
                    name=name,
                    samples=len(x),
                    auroc=scores.auroc(typical, answer.log_likelihoods),
                    inlier_rate=float(answer.inliers.mean()),
                )
            )
        return tuple(tests)

    def _draw(self) -> Drawn:
        """Samples per class, for the classes that the service knows."""
        return {label: one.features for label, one in self._samples_of(SAMPLES_PER_CLASS).items()}

    def _sample_quality(self) -> SampleQuality | None:
        """The samples of the model beside test samples."""
        return sample_quality(
            self._samples_of(PER_CLASS),
            self._test_x,
            self._test_y.tolist(),
            images=self._dataset.image_shape is not None,
        )

    def _samples_of(self, n: int) -> dict[int | str, Samples]:
        """As many of each class that the service knows."""
        known = set(self._client.model().labels)
        return {
            label: self._client.sample(n, [label], seed=self._seed)
            for label in self._slt.classes
            if label in known
        }

    def _speed(self) -> Speed:
        return Speed(
            stream_seconds=self._stream_seconds,
            samples_per_second=sum(self._samples) / self._stream_seconds,
            ingest=Latency.of(self._ingest_seconds),
            classify=Latency.of(self._classify_seconds),
            classify_batch=CLASSIFY_BATCH,
            ingest_seconds=tuple(self._ingest_seconds),
            classify_seconds=tuple(self._classify_seconds),
        )


def probabilities_of(labels: Array, answer: Classification) -> Array:
    """The probability that an answer gives to each sample's own label, with shape (N,).

    A label that is no class yet has none.
    """
    places = {label: place for place, label in enumerate(answer.classes)}
    columns = np.array([places.get(label, -1) for label in labels.tolist()])
    own = answer.probabilities[np.arange(len(labels)), columns]
    return np.where(columns < 0, 0.0, own)


def hide_labels(labels: Array, share: float, seed: Sequence[int]) -> list[Any]:
    """Labels as they are sent: a random `share` of them, None in place of the others.

    Example:
        >>> hide_labels(np.array([3, 1]), 0.0, seed=[0])
        [None, None]
        >>> hide_labels(np.array([3, 1]), 1.0, seed=[0])
        [3, 1]
    """
    shown = np.random.default_rng(seed).random(len(labels)) < share
    return [
        label if keep else None for label, keep in zip(labels.tolist(), shown.tolist(), strict=True)
    ]


def entry_position(entry_id: str) -> tuple[int, int]:
    """An entry id as numbers, so that entries compare in the order of the stream.

    Example:
        >>> entry_position("1700000000000-2") < entry_position("1700000000000-10")
        True
    """
    milliseconds, _, sequence = entry_id.partition("-")
    return int(milliseconds), int(sequence or 0)

"""`gmr evaluate`: continual learning through a live service, measured from outside.

The sub-tasks of a data set are streamed through POST /ingest, in order and batch
by batch; after each, once all of it is learned, the service is asked about the
whole joint test set through POST /classify. Rules:

* the service is told no sub-task, no boundary and no test label;
* everything measured comes over HTTP, so a remote service is measured the same way;
* a run is a function of data, protocol and seed: run again, it sends the same
  batches in the same order;
* positions are those of the batches this run sent, found by their entry ids, so a
  shared or used stream does not shift them.
"""

from __future__ import annotations

import math
import shlex
import sys
import time
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, Protocol

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console

from clients import environment, scores
from clients.answers import Boundary, Classification, HistoryPoint, ModelInfo, SubTaskHeld
from clients.client import GMRClient
from clients.datasets import Dataset, data_folders, load_dataset
from clients.errors import InputError, WaitTimeout
from clients.local import LocalService
from clients.results import (
    Certainty,
    Data,
    Evaluation,
    FoundBoundary,
    History,
    Milestone,
    OutlierTest,
    Run,
    Speed,
    StillHeld,
)
from clients.results import Protocol as StreamProtocol
from clients.scores import Latency, Position
from clients.tasks import PAPER_SLTS, SLT, SubTask, stream

CLASSIFY_BATCH = 500
"""Samples per /classify request."""

SAMPLES_PER_CLASS = 6
"""Rows of the montage."""

OUTLIER_SAMPLES = 500
TEST_SHARE = 0.2
"""Share held out of a data set that brings no test set."""

_WATCH_S = 0.5
_HISTORY_ROWS = 4000  # more than the service lets wait
_WAIT_S = 600.0
_SETTLE_S = 30.0
_LOOK_BACK_S = 15.0
_TAKE_IN_S = 15.0
_RELATED = {"mnist": "fashion_mnist", "fashion_mnist": "mnist"}

Drawn = dict[object, NDArray[np.float32]]
Array = NDArray[Any]


@dataclass(frozen=True)
class Plan:
    """What is asked for."""

    source: str
    slt: str = "D2-2-2-2-2a"
    batch_size: int = 100
    epochs: int = 1
    seeds: tuple[int, ...] = (0,)
    labelled: float = 1.0  # share of training samples sent with their label
    limit: int | None = None  # training samples per sub-task, at most
    tolerance_samples: int = 2000  # the longest delay at which a boundary counts as found
    url: str | None = None  # None: a private service for every seed
    allow_warm: bool = False  # use a service that has learned before
    settings: Mapping[str, object] = field(default_factory=dict)  # of the private service

    def check(self) -> None:
        """Raise `InputError` for what cannot be done."""
        if not 0 <= self.labelled <= 1:
            raise InputError(
                f"The labelled share is {self.labelled}; expected 0 to 1. "
                f"Use 1 for all labels, 0.1 for every tenth."
            )
        if self.url is not None and len(self.seeds) > 1:
            raise InputError(
                f"{len(self.seeds)} seeds need as many fresh models, but the service at {self.url} "
                f"has one. Leave --url out, so that each seed gets a private service."
            )
        if self.url is not None and self.settings:
            raise InputError(
                f"The service at {self.url} has its own settings, so {', '.join(self.settings)} "
                f"cannot be chosen here. Start it with them, or leave --url out."
            )


class Watcher(Protocol):
    """Is told how a run goes on; a progress display, say."""

    def starting(self, seed: int) -> None:
        """A private service is being started."""

    def began(self, seed: int, sub_task: SubTask) -> None:
        """A sub-task is about to be streamed."""

    def sent(self, samples: int) -> None:
        """A batch was accepted."""

    def saw(self, inlier_rate: float, boundaries: int) -> None:
        """The latest known inlier rate, and how many boundaries were reported so far."""

    def measured(self, milestone: Milestone) -> None:
        """A sub-task was learned and tested."""


class Silent:
    """A watcher that shows nothing."""

    def starting(self, seed: int) -> None:
        """Nothing."""

    def began(self, seed: int, sub_task: SubTask) -> None:
        """Nothing."""

    def sent(self, samples: int) -> None:
        """Nothing."""

    def saw(self, inlier_rate: float, boundaries: int) -> None:
        """Nothing."""

    def measured(self, milestone: Milestone) -> None:
        """Nothing."""


def evaluate(plan: Plan, watcher: Watcher, command: str) -> tuple[Evaluation, Drawn]:
    """Run the plan, once per seed.

    Arguments:
        plan: What to do.
        watcher: Is told how it goes.
        command: The command line, for the report.

    Returns:
        What was measured, and samples per class drawn after the first seed.

    Raises:
        InputError: the plan cannot be carried out.
        ClientError: the service failed, or could not be reached.
    """
    plan.check()
    begun, start = datetime.now(UTC), time.perf_counter()
    slt = SLT.parse(plan.slt)
    dataset = with_test_set(load_dataset(plan.source))
    slt.check(dataset.train_y)
    slt.check(dataset.test_y)

    runs: list[Run] = []
    drawn: Drawn = {}
    warm = False
    for seed in plan.seeds:
        if plan.url is not None:
            with GMRClient(plan.url) as client:
                warm = _check_fresh(client, plan)
                run, samples = _Pass(client, plan, slt, dataset, seed, watcher).run()
        else:
            watcher.starting(seed)
            settings = {"seed": seed, **plan.settings}
            with LocalService(settings=settings) as service, GMRClient(service.url) as client:
                run, samples = _Pass(client, plan, slt, dataset, seed, watcher).run()
        runs.append(run)
        drawn = drawn or samples

    described: dict[str, Any] = {"url": plan.url or "private"}
    if warm:
        described["warm"] = True
    return Evaluation(
        created=begun.isoformat(timespec="seconds"),
        command=command,
        duration_seconds=time.perf_counter() - start,
        data=Data(
            source=plan.source,
            name=dataset.name,
            train_samples=sum(runs[0].history.samples) // plan.epochs,
            test_samples=len(slt.rows(dataset.test_y)),
            features=dataset.n_features,
            image_shape=dataset.image_shape,
            classes=slt.classes,
        ),
        protocol=StreamProtocol(
            slt=slt.name,
            sub_tasks=slt.sub_tasks,
            batch_size=plan.batch_size,
            epochs=plan.epochs,
            labelled=plan.labelled,
            limit=plan.limit,
            tolerance_samples=plan.tolerance_samples,
            seeds=plan.seeds,
            service={**described, **plan.settings},
        ),
        versions=environment.versions(),
        hardware=environment.hardware(),
        runs=tuple(runs),
    ), drawn


def with_test_set(dataset: Dataset) -> Dataset:
    """The data set itself, or with a fifth of each class held out where it has no test set."""
    if dataset.has_test_set:
        return dataset
    return dataset.split(max(1, round(TEST_SHARE * len(dataset.train_y))), seed=0)


def limited(dataset: Dataset, slt: SLT, limit: int | None, seed: int) -> Dataset:
    """The data set with at most `limit` training samples per sub-task, chosen at random."""
    if limit is None:
        return dataset
    chosen = [
        np.random.default_rng([seed, index, limit]).permutation(slt.rows(dataset.train_y, index))
        for index in range(len(slt.sub_tasks))
    ]
    rows = np.sort(np.concatenate([part[:limit] for part in chosen]))
    return replace(dataset, train_x=dataset.train_x[rows], train_y=dataset.train_y[rows])


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


def outlier_sets(dataset: Dataset, slt: SLT, seed: int) -> dict[str, Array]:
    """Samples unlike the data, with the same number of features: name -> (n, D).

    Noise and shuffled features are the least that any density should tell apart;
    another data set of the same shape, where one is at hand, is the fair test.
    """
    rng = np.random.default_rng([seed, 2])
    rows = slt.rows(dataset.test_y)
    real = dataset.test_x[rng.permutation(rows)[:OUTLIER_SAMPLES]]
    low, high = dataset.train_x.min(axis=0), dataset.train_x.max(axis=0)
    noise = rng.uniform(low, high, size=real.shape).astype(dataset.train_x.dtype)
    sets = {"uniform noise": noise, "features shuffled": real[:, rng.permutation(real.shape[1])]}
    if dataset.train_x.dtype == np.uint8:
        sets["images inverted"] = 255 - real
    other = _RELATED.get(dataset.name, "")
    if any((folder / f"{other}.npz").is_file() for folder in data_folders()):
        sets[other] = load_dataset(other).test_x[:OUTLIER_SAMPLES]
    return sets


class _Pass:
    """One run through all sub-tasks; keeps what was sent and what the service said of it."""

    def __init__(
        self,
        client: GMRClient,
        plan: Plan,
        slt: SLT,
        dataset: Dataset,
        seed: int,
        watcher: Watcher,
    ) -> None:
        self._client, self._plan, self._slt, self._seed = client, plan, slt, seed
        self._watcher = watcher
        self._dataset = limited(dataset, slt, plan.limit, seed)
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
        milestones = []
        answers = self._test_y[:0]
        data = self._dataset
        for sub_task in stream(
            slt, data.train_x, data.train_y, epochs=plan.epochs, seed=self._seed
        ):
            self._stream(sub_task)
            answers, milestone = self._test(sub_task)
            milestones.append(milestone)
            self._watcher.measured(milestone)

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
        )
        return run, self._draw()

    def _stream(self, sub_task: SubTask) -> None:
        """Send a sub-task batch by batch, and wait until all of it is learned."""
        plan = self._plan
        self._watcher.began(self._seed, sub_task)
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
            self._watcher.sent(len(x))
            if time.perf_counter() - self._watched > _WATCH_S:
                self._watch()
        wait_until_settled(self._client)
        self._stream_seconds += time.perf_counter() - begun
        wait_until_taken_in(self._client)
        self._watch()

    def _watch(self) -> None:
        """Read what the service said of the batches not yet heard of, and pass the news on."""
        unheard = len(self._entries) - len(self._points)
        points = self._client.history(min(max(unheard, 1), _HISTORY_ROWS))
        own = set(self._entries[-_HISTORY_ROWS:])
        for point in points:
            if (key := entry_position(point.entry_id)) in own:
                self._points[key] = point
        if points and points[-1].inlier_rate is not None:
            self._watcher.saw(points[-1].inlier_rate, len(self._reports()))
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

    def _position(self, batch: int) -> Position:
        return Position(batch, sum(self._samples[:batch]))

    def _test(self, sub_task: SubTask) -> tuple[Array, Milestone]:
        """What the service answers on the joint test set, with shape (N,), and how good that is."""
        labels: list[Array] = []
        certain: list[Array] = []  # the probability of the true class
        likelihoods: list[Array] = []
        for start in range(0, len(self._test_x), CLASSIFY_BATCH):
            rows = slice(start, start + CLASSIFY_BATCH)
            sent = time.perf_counter()
            answer = self._client.classify(self._test_x[rows])
            self._classify_seconds.append(time.perf_counter() - sent)
            labels.append(answer.labels)
            certain.append(probabilities_of(self._test_y[rows], answer))
            likelihoods.append(answer.log_likelihoods)
        answers = np.concatenate(labels)
        per_class = (
            scores.mean_per_class(self._test_y, values, self._slt.classes).tolist()
            for values in (
                self._test_y == answers,
                np.concatenate(certain),
                np.concatenate(likelihoods),
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
        known = set(self._client.model().labels)
        return {
            label: self._client.sample(SAMPLES_PER_CLASS, [label], seed=self._seed).features
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


def still_held(
    held: Sequence[SubTaskHeld], milestones: Sequence[Milestone], slt: SLT
) -> tuple[StillHeld, ...]:
    """What the service says of past sub-tasks, beside the test data of the same classes.

    Arguments:
        held: From GET /model, at the end.
        milestones: One per true sub-task, in order.
        slt: Which classes those were.
    """
    met = {label: index for index, classes in enumerate(slt.sub_tasks) for label in classes}
    rows = []
    for one in held:
        labels = tuple(known.label for known in one.classes)
        # Of classes from before this run there are no test data.
        own = [slt.classes.index(label) for label in labels if label in met]
        then = now = Certainty(math.nan, math.nan, math.nan)
        if own and len(own) == len(labels):
            learned = milestones[max(met[label] for label in labels)]
            then, now = (_over_classes(point, own) for point in (learned, milestones[-1]))
        rows.append(
            StillHeld(
                sub_task=one.sub_task,
                classes=labels,
                samples=one.samples,
                model_version=one.model_version,
                own_then=_certainty(
                    one.accuracy_then, one.probability_then, one.log_likelihood_then
                ),
                own_now=_certainty(one.accuracy_now, one.probability_now, one.log_likelihood_now),
                test_then=then,
                test_now=now,
            )
        )
    return tuple(rows)


def _over_classes(milestone: Milestone, classes: Sequence[int]) -> Certainty:
    """The mean over some classes, by their place in `Data.classes`."""
    each = [milestone.per_class[index] for index in classes]
    return Certainty(*np.mean([astuple(one) for one in each], axis=0).tolist())


def _certainty(*values: float | None) -> Certainty:
    return Certainty(*(math.nan if value is None else value for value in values))


def wait_until_settled(client: GMRClient) -> ModelInfo:
    """Wait until everything sent is learned, batches that were set aside included.

    Those are decided about once the stream has been quiet for a while.

    Raises:
        WaitTimeout: it took too long.
    """
    deadline = time.monotonic() + _SETTLE_S
    info = client.wait_until_learned(_WAIT_S)
    while info.raw.get("set_aside"):
        if time.monotonic() > deadline:
            raise WaitTimeout(
                f"{info.raw['set_aside']} samples are still set aside after {_SETTLE_S:.0f} quiet "
                f"seconds; expected a decision about them. Look at the log of the trainer."
            )
        time.sleep(0.1)
        info = client.wait_until_learned(_WAIT_S)
    return info


def wait_until_taken_in(client: GMRClient) -> ModelInfo:
    """Wait until what was learned is in the model that answers, samples of open windows included.

    They are taken in once the stream has been quiet for a while. Where that is long, or others
    go on sending, the model is asked as it is, after a time: its `waiting` says how many are out.
    """
    deadline = time.monotonic() + _TAKE_IN_S
    info = client.model()
    while info.waiting or info.backlog:
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
        info = client.model()
    return info


def wait_until_looked_back(client: GMRClient) -> ModelInfo:
    """Wait until the service has asked its latest model how well it holds the past.

    It does so once the stream has been quiet for a while. Where others go on sending that may
    never be: then what it said last is given, after a time.
    """
    deadline = time.monotonic() + _LOOK_BACK_S
    info = client.model()
    while any(row.model_version != info.model_version for row in info.held):
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
        info = client.model()
    return info


def entry_position(entry_id: str) -> tuple[int, int]:
    """An entry id as numbers, so that entries compare in the order of the stream.

    Example:
        >>> entry_position("1700000000000-2") < entry_position("1700000000000-10")
        True
    """
    milliseconds, _, sequence = entry_id.partition("-")
    return int(milliseconds), int(sequence or 0)


def _check_fresh(client: GMRClient, plan: Plan) -> bool:
    """Whether the service has learned before; raises where that was not allowed."""
    info = client.model()
    warm = info.samples_seen > 0 or info.backlog > 0
    if warm and not plan.allow_warm:
        raise InputError(
            f"The service at {plan.url} has learned {info.samples_seen:,} samples already "
            f"({info.backlog} entries more are waiting); an evaluation needs a fresh model. Start "
            f"one with an empty data directory, leave --url out for a private service, or pass "
            f"--allow-warm to go on all the same.",
            samples_seen=info.samples_seen,
        )
    return warm


def evaluate_command(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE",
            help="digits, mnist, fashion_mnist, devanagari, or a labelled file such as an .npz.",
        ),
    ],
    slt: Annotated[
        str,
        typer.Option(
            "--slt",
            help=f"Sub-tasks: one of {', '.join(PAPER_SLTS)}, or written out, as 0,1/2,3/4.",
        ),
    ] = "D2-2-2-2-2a",
    batch_size: Annotated[int, typer.Option(min=1, help="Samples per request.")] = 100,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over each sub-task.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Of the order, and of a private model.")] = 0,
    seeds: Annotated[
        int, typer.Option(min=1, help="Runs with consecutive seeds, the first being --seed.")
    ] = 1,
    labelled: Annotated[
        float, typer.Option(min=0, max=1, help="Share of training samples sent with a label.")
    ] = 1.0,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Training samples per sub-task, at most.")
    ] = None,
    tolerance: Annotated[
        int, typer.Option(min=1, help="Samples after a change within which it counts as found.")
    ] = 2000,
    url: Annotated[
        str | None,
        typer.Option(help="A running service with a fresh model; without it, a private one."),
    ] = None,
    allow_warm: Annotated[
        bool, typer.Option("--allow-warm", help="Go on though the service has learned before.")
    ] = False,
    preset: Annotated[
        str | None, typer.Option(help="Of the private service: mfa, flat, paper or dcgmm.")
    ] = None,
    components: Annotated[
        int | None, typer.Option(min=1, help="Of the private service's mixture.")
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any setting of the private service."),
    ] = None,
    report: Annotated[
        Path, typer.Option(help="Folder for report.html, report.json and the figures.")
    ] = Path("report"),
) -> None:
    """Measure continual learning on SOURCE through a live service.

    Streams the sub-tasks through POST /ingest without saying where one ends, tests through
    POST /classify after each, and writes a report.

    Example: gmr evaluate mnist --slt D5-5a --seeds 3 --report report/mnist
    """
    # Imported here: drawing takes a second to import, and --help should not.
    from clients.progress import Bars, print_results
    from clients.report import write_report

    plan = Plan(
        source=source,
        slt=slt,
        batch_size=batch_size,
        epochs=epochs,
        seeds=tuple(range(seed, seed + seeds)),
        labelled=labelled,
        limit=limit,
        tolerance_samples=tolerance,
        url=url,
        allow_warm=allow_warm,
        settings=_settings(preset, components, setting or []),
    )
    console = Console()
    with Bars(console, n_seeds=seeds) as bars:
        evaluation, drawn = evaluate(plan, bars, shlex.join(["gmr", *sys.argv[1:]]))
    written = write_report(evaluation, drawn, report)
    print_results(evaluation, written, console)


def _settings(preset: str | None, components: int | None, chosen: list[str]) -> dict[str, object]:
    settings: dict[str, object] = {}
    if preset is not None:
        settings["preset"] = preset
    if components is not None:
        settings["n_components"] = components
    for text in chosen:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise InputError(
                f"--set {text!r} is no setting; expected NAME=VALUE, for example "
                f"--set variance_floor=0.1. `gmr serve --help` lists the names."
            )
        settings[name.strip().replace("-", "_")] = value.strip()
    return settings

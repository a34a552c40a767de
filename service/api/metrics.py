"""The metrics of an API process, joined with those of the trainer.

Rules of this module:

1. Each process has a registry of its own, and nothing is global.
2. Prometheus asks the API only. The trainer leaves its text in Redis, and
   `ApiMetrics.text` merges it: a metric that both processes have is added up, and an
   age is counted up to the moment of asking.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

# A second series per counter, with the time it was made, helps nobody here.
disable_created_metrics()  # type: ignore[no-untyped-call]

REQUEST_BUCKETS: Final = (
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0,
)  # fmt: skip

CHECKPOINT_TIME: Final = "gmr_checkpoint_timestamp_seconds"
CHECKPOINT_AGE: Final = "gmr_checkpoint_age_seconds"


class ApiMetrics:
    """What one API process has to say, joined with what the trainer left in Redis.

    Arguments:
        redis_errors: Gives the number of failed calls so far; asked at each scrape.
    """

    def __init__(self, redis_errors: Callable[[], int] = lambda: 0) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "gmr_http_requests",
            "HTTP requests answered.",
            ["route", "method", "status"],
            registry=self.registry,
        )
        self._request_duration = Histogram(
            "gmr_http_request_duration_seconds",
            "Time to answer an HTTP request.",
            ["route"],
            buckets=REQUEST_BUCKETS,
            registry=self.registry,
        )
        self._listeners = Gauge(
            "gmr_event_listeners", "Open connections of GET /events.", registry=self.registry
        )
        self.models_held = Gauge(
            "gmr_api_models", "Named models whose snapshots are held.", registry=self.registry
        )
        ProcessCollector(registry=self.registry)
        self._redis_errors = redis_errors
        self._redis_up = False
        self._backlog: int | None = None
        self._dead_letters: tuple[int, int] | None = None
        self._ids_age: float | None = None
        self._checkpoint_since: float | None = None
        self._models: Mapping[str, int] = {}
        self._heartbeat_age: float | None = None
        self._trainer_works: bool | None = None
        self._buckets: Mapping[str, bool] = {}
        # What all processes count together, as far as it is known here; and what is not in it yet.
        self._samples_ingested: int | None = None
        self._batches_ingested = 0
        self._rejected: Mapping[str, int] = {}
        self._sent: dict[str, int] = {}
        self._unsent: dict[str, int] = {}

    def rejected(self, reason: str) -> None:
        """A batch was refused."""
        self._unsent[reason] = self._unsent.get(reason, 0) + 1

    @property
    def has_news(self) -> bool:
        """Whether something was counted here that is counted nowhere else."""
        return bool(self._unsent)

    def send_rejected(self) -> Mapping[str, int]:
        """What is to be added to the counts of all processes; `counted` or `not_counted` follows.

        No number ever falls meanwhile, which would look like a restart.
        """
        self._sent, self._unsent = self._unsent, {}
        return self._sent

    def counted(
        self, samples_ingested: int, batches_ingested: int, rejected: Mapping[str, int]
    ) -> None:
        """The counts of all processes, what was sent included."""
        self._samples_ingested, self._batches_ingested = samples_ingested, batches_ingested
        self._rejected, self._sent = rejected, {}

    def not_counted(self) -> None:
        """What was sent did not arrive."""
        self._unsent, self._sent = _added(self._sent, self._unsent), {}

    def answered(self, route: str, method: str, status: int, seconds: float | None) -> None:
        """A request was answered.

        Arguments:
            route: Template, such as `/model`; not the path.
            seconds: None where the length of the answer says nothing.
        """
        self._requests.labels(route, method, str(status)).inc()
        if seconds is not None:
            self._request_duration.labels(route).observe(seconds)

    @contextmanager
    def listening(self) -> Iterator[None]:
        """A client follows the events meanwhile."""
        self._listeners.inc()
        try:
            yield
        finally:
            self._listeners.dec()

    def redis_away(self) -> None:
        """Redis did not answer: what it would have said is left out, not repeated."""
        self._redis_up = False
        self._backlog = self._heartbeat_age = self._dead_letters = self._ids_age = None
        self._checkpoint_since = self._trainer_works = None
        self._models, self._buckets = {}, {}

    def redis_answered(
        self,
        *,
        backlog: int,
        heartbeat_age: float | None,
        trainer_works: bool | None = None,
        buckets: Mapping[str, bool] = MappingProxyType({}),
        dead_letters: tuple[int, int] | None = None,
        models: Mapping[str, int] = MappingProxyType({}),
        ids_age: float | None = None,
        checkpoint_since: float | None = None,
    ) -> None:
        """What Redis says at this moment.

        Arguments:
            backlog: Entries accepted that the served snapshot does not hold.
            heartbeat_age: Seconds since the trainer reported; None when it never has.
            trainer_works: Whether `/health/ready` finds no fault in it; None where that is unknown.
            buckets: The same of the trainer of each bucket of a cluster, by its name.
            dead_letters: How many were not sent again, and the bytes of what they hold.
            models: Named models by their state.
            ids_age: Seconds since the oldest batch id that is remembered; None where none is.
            checkpoint_since: What the age of the newest checkpoint is counted from, Unix seconds,
                where the trainer's metrics do not say; None where nothing was learned.
        """
        self._checkpoint_since = checkpoint_since
        self._redis_up = True
        self._ids_age = ids_age
        self._models = models
        self._dead_letters = dead_letters
        self._backlog, self._heartbeat_age = backlog, heartbeat_age
        self._trainer_works, self._buckets = trainer_works, buckets

    def text(self, trainer: bytes | None = None) -> bytes:
        """All of it in Prometheus' text format.

        Arguments:
            trainer: The trainer's text, from `Stream.trainer_metrics`.
        """
        families = {family.name: family for family in self.registry.collect()}
        for family in self._facts():
            families[family.name] = family
        theirs = trainer.decode("utf-8", "replace") if trainer else ""
        for family in text_string_to_metric_families(theirs):
            ours = families.get(family.name)
            families[family.name] = family if ours is None else _sum(ours, family)
            if family.name == CHECKPOINT_TIME and family.samples[0].value:
                families[CHECKPOINT_AGE] = _checkpoint_age(family.samples[0].value)
        if CHECKPOINT_AGE not in families and self._checkpoint_since is not None:
            families[CHECKPOINT_AGE] = _checkpoint_age(self._checkpoint_since)
        registry = CollectorRegistry()
        registry.register(_Fixed(families.values()))
        return generate_latest(registry)

    def _facts(self) -> Iterator[Metric]:
        if self._samples_ingested is not None:
            yield CounterMetricFamily(
                "gmr_samples_ingested", "Samples accepted into the stream.", self._samples_ingested
            )
            yield CounterMetricFamily(
                "gmr_batches_ingested", "Batches accepted into the stream.", self._batches_ingested
            )
            rejected = CounterMetricFamily(
                "gmr_batches_rejected",
                "Batches refused, by the API or by the trainer.",
                labels=["reason"],
            )
            everything = _added(_added(self._rejected, self._sent), self._unsent)
            for reason, count in everything.items():
                rejected.add_metric([reason], count)
            yield rejected
        yield CounterMetricFamily(
            "gmr_redis_errors",
            "Calls of Redis that failed, repeats included.",
            self._redis_errors(),
        )
        yield GaugeMetricFamily("gmr_redis_up", "1 where Redis answers.", float(self._redis_up))
        if self._backlog is not None:
            yield GaugeMetricFamily(
                "gmr_backlog_entries", "Entries accepted and not yet learned.", self._backlog
            )
        if self._ids_age is not None:
            yield GaugeMetricFamily(
                "gmr_batch_ids_seconds",
                "Time since the oldest batch_id of a sender that is remembered was given.",
                self._ids_age,
            )
        if self._dead_letters is not None:
            letters, nbytes = self._dead_letters
            yield GaugeMetricFamily(
                "gmr_dead_letters", "Entries that could not be used, not sent again.", letters
            )
            yield GaugeMetricFamily(
                "gmr_dead_letters_bytes", "Bytes of those of them that are kept whole.", nbytes
            )
        if self._models:
            models = GaugeMetricFamily(
                "gmr_models", "Named models, by how the trainer has them.", labels=["state"]
            )
            for state, count in self._models.items():
                models.add_metric([state], count)
            yield models
        if self._heartbeat_age is not None:
            yield GaugeMetricFamily(
                "gmr_trainer_heartbeat_age_seconds",
                "Time since the trainer last reported.",
                self._heartbeat_age,
            )
        if self._trainer_works is not None:
            yield GaugeMetricFamily(
                "gmr_trainer_works",
                "1 where the trainer reports, has begun and does not hang.",
                float(self._trainer_works),
            )
        if self._buckets:
            buckets = GaugeMetricFamily(
                "gmr_bucket_works",
                "1 where the trainer of a bucket reports, has begun and does not hang.",
                labels=["bucket"],
            )
            for bucket, works in self._buckets.items():
                buckets.add_metric([bucket], float(works))
            yield buckets


class _Fixed(Collector):
    """Hands out families that were made before."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = sorted(families, key=lambda family: family.name)

    def collect(self) -> Iterable[Metric]:
        return self._families


def _added(some: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    """Both counts together, by name."""
    return {name: some.get(name, 0) + more.get(name, 0) for name in {**some, **more}}


def _checkpoint_age(since: float) -> Metric:
    return GaugeMetricFamily(
        CHECKPOINT_AGE,
        "Time since the newest checkpoint was written, or without one since the first entry.",
        max(0.0, time.time() - since),
    )


def _sum(ours: Metric, theirs: Metric) -> Metric:
    """One family with the samples of both, added up where the labels are the same."""
    total = Metric(ours.name, ours.documentation, ours.type)
    values: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for sample in (*ours.samples, *theirs.samples):
        series = (sample.name, tuple(sorted(sample.labels.items())))
        values[series] = values.get(series, 0.0) + sample.value
    for (name, labels), value in values.items():
        total.add_sample(name, dict(labels), value)
    return total

"""The Python client for asyncio, with the methods of `client.py`, awaited."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any

from numpy.typing import ArrayLike

from clients.http import calls, waiting
from clients.http.answers import (
    ApiKey,
    AuditedAction,
    BatchFate,
    Boundary,
    Classification,
    DeadLetter,
    DeadLetters,
    DriftState,
    HistoryPoint,
    Ingested,
    IngestState,
    KeyShares,
    Label,
    Labelled,
    Ledger,
    ListedModel,
    ModelInfo,
    ModelVersion,
    NamedModel,
    NamedModelSummary,
    NewApiKey,
    Note,
    Outlier,
    OutlierScores,
    Proposal,
    Readiness,
    Requeued,
    Restored,
    Samples,
    ServiceEvent,
    Setting,
)
from clients.http.awaited import Awaited
from clients.http.client import Labels, SampleIds
from clients.http.errors import RequestRefused
from clients.http.feature_order import columns_of
from clients.http.replacing import check_another, check_empty, taken_along
from clients.http.subscription import Feed, position

__all__ = ["AsyncGMRClient"]


class AsyncGMRClient(Awaited):
    """`GMRClient` for asyncio: the same methods, awaited; `events` is an async iterator."""

    async def ingest(
        self,
        features: ArrayLike,
        labels: Labels | None = None,
        *,
        batch_id: str | None = None,
        sample_ids: SampleIds | None = None,
    ) -> Ingested:
        """See `GMRClient.ingest`."""
        rows = self._rounding.looked_at(features)
        call = partial(calls.ingest, labels=labels, batch_id=batch_id, sample_ids=sample_ids)
        return await self._drive(self._order.sent(call, rows, columns_of(features)))

    async def ingest_state(self) -> IngestState:
        """See `GMRClient.ingest_state`."""
        return await self.send(calls.ingest_state())

    async def label(
        self, sample_ids: SampleIds, labels: Labels, *, batch_id: str | None = None
    ) -> Labelled:
        """See `GMRClient.label`."""
        return await self.send(calls.label(sample_ids, labels, batch_id))

    async def name_proposal(
        self, proposal: int, label: Label | None, *, batch_id: str | None = None
    ) -> Labelled:
        """See `GMRClient.name_proposal`."""
        return await self.send(calls.name_proposal(proposal, label, batch_id))

    async def classify(
        self, features: ArrayLike, *, unknown_rate: float | None = None, p_values: bool = False
    ) -> Classification:
        """See `GMRClient.classify`."""
        rows = self._rounding.looked_at(features)
        call = partial(calls.classify, unknown_rate=unknown_rate, p_values=p_values)
        return await self._drive(self._order.sent(call, rows, columns_of(features)))

    async def outliers(
        self,
        features: ArrayLike,
        c: float | None = None,
        *,
        false_positive_rate: float | None = None,
    ) -> OutlierScores:
        """See `GMRClient.outliers`."""
        rows = self._rounding.looked_at(features)
        call = partial(calls.outliers, c=c, false_positive_rate=false_positive_rate)
        return await self._drive(self._order.sent(call, rows, columns_of(features)))

    async def sample(
        self,
        n: int | None = None,
        classes: Sequence[Label] | None = None,
        seed: int | None = None,
        *,
        min_probability: float | None = None,
        noise: bool = True,
    ) -> Samples:
        """See `GMRClient.sample`."""
        return await self.send(calls.sample(n, classes, seed, min_probability, noise))

    async def sample_image(
        self,
        n: int | None = None,
        classes: Sequence[Label] | None = None,
        seed: int | None = None,
        shape: tuple[int, ...] | None = None,
        *,
        min_probability: float | None = None,
        noise: bool = True,
    ) -> bytes:
        """See `GMRClient.sample_image`."""
        return await self.send(calls.sample_image(n, classes, seed, shape, min_probability, noise))

    async def ledger(self) -> Ledger:
        """See `GMRClient.ledger`."""
        return await self.send(calls.ledger())

    async def batch(self, batch_id: str) -> BatchFate:
        """See `GMRClient.batch`."""
        return await self.send(calls.batch(batch_id))

    async def dead_letters(
        self,
        since: str | int | float | None = None,
        *,
        limit: int = 100,
        batch_id: str | None = None,
    ) -> DeadLetters:
        """See `GMRClient.dead_letters`."""
        return await self.send(calls.dead_letters(since, limit, batch_id))

    async def dead_letter(self, id: str) -> DeadLetter:
        """See `GMRClient.dead_letter`."""
        return await self.send(calls.dead_letter(id))

    async def dead_letter_batch(self, id: str) -> bytes:
        """See `GMRClient.dead_letter_batch`."""
        return await self.send(calls.dead_letter_batch(id))

    async def requeue_dead_letter(self, id: str) -> Requeued:
        """See `GMRClient.requeue_dead_letter`."""
        return await self.send(calls.requeue_dead_letter(id))

    async def drop_dead_letter(self, id: str) -> None:
        """See `GMRClient.drop_dead_letter`."""
        await self.send(calls.drop_dead_letters(id))

    async def drop_dead_letters(self) -> int:
        """See `GMRClient.drop_dead_letters`."""
        return await self.send(calls.drop_dead_letters(None))

    async def audit(self, last: int = 100) -> tuple[AuditedAction, ...]:
        """See `GMRClient.audit`."""
        return await self.send(calls.audit(last))

    async def api_keys(self) -> tuple[ApiKey, ...]:
        """See `GMRClient.api_keys`."""
        return await self.send(calls.api_keys())

    async def key_shares(self) -> KeyShares:
        """See `GMRClient.key_shares`."""
        return await self.send(calls.key_shares())

    async def make_api_key(
        self, name: str, roles: Sequence[str], models: Sequence[str] | None = None
    ) -> NewApiKey:
        """See `GMRClient.make_api_key`."""
        return await self.send(calls.make_api_key(name, roles, models))

    async def revoke_api_key(self, id: str) -> None:
        """See `GMRClient.revoke_api_key`."""
        await self.send(calls.revoke_api_key(id))

    async def models(self, *, detail: bool = False) -> tuple[ListedModel, ...]:
        """See `GMRClient.models`."""
        return await self.send(calls.models(detail))

    async def named_model(self, name: str) -> NamedModelSummary:
        """See `GMRClient.named_model`."""
        return await self.send(calls.named_model(name))

    async def make_model(self, name: str, settings: Mapping[str, Any] | None = None) -> NamedModel:
        """See `GMRClient.make_model`."""
        return await self.send(calls.make_model(name, settings or {}))

    async def copy_model(
        self,
        source: str | None,
        name: str,
        *,
        replace: bool = False,
        settings: Mapping[str, Any] | None = None,
        version: int | None = None,
    ) -> NamedModel:
        """See `GMRClient.copy_model`."""
        check_another(source, name)
        of_source = {} if source is None else (await self.named_model(source)).settings
        there = {model.name for model in await self.models()}
        made = await self.make_model(name, {**of_source, **(settings or {})})
        if not replace:  # looked at once it is there, so that nothing is between
            ledger = await self.send(calls.of_model(name, calls.ledger()))
            check_empty(await self.named_model(name), ledger)
        try:
            in_force = await self.send(calls.of_model(source, calls.settings()))
            if asked := taken_along(in_force, settings or ()):
                change = calls.change_settings(asked, "taken along by a copy", None)
                await self.send(calls.of_model(name, change))  # first: they may let the state in
            data = await self.send(calls.of_model(source, calls.checkpoint(version)))
            await self.send(calls.of_model(name, calls.restore(data)))
        except RequestRefused:
            if name not in there:
                await self.take_down_model(name)
            raise
        names = await self.send(calls.of_model(source, calls.feature_names()))
        if names is not None:
            await self.send(calls.of_model(name, calls.name_features(names)))
        return made

    async def take_down_model(self, name: str) -> None:
        """See `GMRClient.take_down_model`."""
        await self.send(calls.take_down_model(name))

    async def drift(self) -> DriftState:
        """See `GMRClient.drift`."""
        return await self.send(calls.drift())

    async def boundaries(self, since: str | int | float | None = None) -> tuple[Boundary, ...]:
        """See `GMRClient.boundaries`."""
        return await self.send(calls.boundaries(since))

    async def boundary(self, id: str) -> Boundary:
        """See `GMRClient.boundary`."""
        return await self.send(calls.boundary(id))

    async def boundary_image(self, id: str, shape: tuple[int, ...] | None = None) -> bytes:
        """See `GMRClient.boundary_image`."""
        return await self.send(calls.boundary_image(id, shape))

    async def history(self, last: int | None = None) -> tuple[HistoryPoint, ...]:
        """See `GMRClient.history`."""
        return await self.send(calls.history(last))

    async def quarantine(self, last: int = 25) -> tuple[Outlier, ...]:
        """See `GMRClient.quarantine`."""
        return await self.send(calls.quarantine(last))

    async def proposals(self) -> tuple[Proposal, ...]:
        """See `GMRClient.proposals`."""
        return await self.send(calls.proposals())

    async def add_note(self, id: str, text: str, *, by: str | None = None) -> Note:
        """See `GMRClient.add_note`."""
        return await self.send(calls.add_note(id, text, by))

    async def declare_boundary(self, note: str | None = None, *, by: str | None = None) -> str:
        """See `GMRClient.declare_boundary`."""
        return await self.send(calls.declare_boundary(note, by))

    async def events(
        self, last_event_id: str | None = None, *, kinds: Sequence[str] | None = None
    ) -> AsyncIterator[ServiceEvent]:
        """See `GMRClient.events`."""
        feed = Feed(self._retry, last_event_id, kinds)
        async with aclosing(self._heard(feed, feed.received)) as events:
            async for event in events:
                yield event

    async def kept_events(
        self, last_event_id: str = "0", *, kinds: Sequence[str] | None = None
    ) -> AsyncIterator[ServiceEvent]:
        """See `GMRClient.kept_events`."""
        until = await self._newest_event(kinds)
        if position(last_event_id) >= position(until):
            return
        async for event in self.events(last_event_id):
            if kinds is None or event.kind in (*kinds, "missed"):
                yield event
            if event.id and position(event.id) >= position(until):
                return

    async def model(self) -> ModelInfo:
        """See `GMRClient.model`."""
        return await self.send(calls.model())

    async def versions(self) -> tuple[ModelVersion, ...]:
        """See `GMRClient.versions`."""
        return await self.send(calls.versions())

    async def rollback(self, version: int) -> Restored:
        """See `GMRClient.rollback`."""
        return await self.send(calls.rollback(version))

    async def release(self, reason: str | None = None, *, by: str | None = None) -> Restored:
        """See `GMRClient.release`."""
        return await self.send(calls.release(reason, by))

    async def merge_classes(
        self, label: Label, into: Label, *, reason: str | None = None, by: str | None = None
    ) -> Restored:
        """See `GMRClient.merge_classes`."""
        return await self.send(calls.merge_classes(label, into, reason, by))

    async def rename_class(
        self, label: Label, to: Label, *, reason: str | None = None, by: str | None = None
    ) -> Restored:
        """See `GMRClient.rename_class`."""
        return await self.send(calls.rename_class(label, to, reason, by))

    async def freeze(self, reason: str | None = None, *, by: str | None = None) -> Restored:
        """See `GMRClient.freeze`."""
        return await self.send(calls.set_mode("frozen", reason, by))

    async def detect_only(self, reason: str | None = None, *, by: str | None = None) -> Restored:
        """See `GMRClient.detect_only`."""
        return await self.send(calls.set_mode("detect_only", reason, by))

    async def thaw(self, reason: str | None = None, *, by: str | None = None) -> Restored:
        """See `GMRClient.thaw`."""
        return await self.send(calls.set_mode("learn", reason, by))

    async def set_ert(self, samples: int | None, *, by: str | None = None) -> Restored:
        """See `GMRClient.set_ert`."""
        return await self.send(calls.set_ert(samples, by))

    async def settings(self) -> Mapping[str, Setting]:
        """See `GMRClient.settings`."""
        return await self.send(calls.settings())

    async def change_settings(
        self,
        settings: Mapping[str, float | int | None],
        *,
        reason: str | None = None,
        by: str | None = None,
    ) -> Restored:
        """See `GMRClient.change_settings`."""
        return await self.send(calls.change_settings(settings, reason, by))

    async def feature_names(self) -> tuple[str, ...] | None:
        """See `GMRClient.feature_names`."""
        return await self.send(calls.feature_names())

    async def name_features(self, names: Sequence[str] | None) -> None:
        """See `GMRClient.name_features`."""
        await self.send(calls.name_features(names))
        self._order.forget()

    async def checkpoint(self, version: int | None = None) -> bytes:
        """See `GMRClient.checkpoint`."""
        return await self.send(calls.checkpoint(version))

    async def restore(self, data: bytes) -> Restored:
        """See `GMRClient.restore`."""
        return await self.send(calls.restore(data))

    async def metrics(self) -> str:
        """See `GMRClient.metrics`."""
        return await self.send(calls.metrics())

    async def ready(self) -> Readiness:
        """See `GMRClient.ready`."""
        return await self.send(calls.ready())

    async def wait_until_ready(self, timeout: float = 60.0) -> None:
        """See `GMRClient.wait_until_ready`."""
        await self._drive(waiting.until_ready(time.monotonic, timeout, 0.1))

    async def wait_until_learned(self, timeout: float = 600.0) -> ModelInfo:
        """See `GMRClient.wait_until_learned`."""
        return await self._drive(waiting.until_learned(time.monotonic, timeout, 0.1))

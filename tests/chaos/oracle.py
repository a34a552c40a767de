"""What a service must have come to, whatever was done to it: what a plain run over its log gives.

The log is what was acknowledged: every request got the id of its entry, and ids are ordered as
entries are. A request that nobody answered was sent again until it was, so that all are known.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

import numpy as np
import orjson
import torch

from core.batch import Batch
from core.engine.checkpoint import dump, load
from core.engine.engine import Engine
from core.events import BatchScored, BoundaryDetected
from service.broker.branch import position
from service.broker.feature_names import with_names
from service.settings import Settings
from service.trainer.detector_table import begun
from service.trainer.device import choose_device
from service.trainer.provenance import WRITTEN_BY
from service.trainer.totals import Totals
from service.upkeep.rebuild import rebuild
from service.wire import RawBatch, RawLabels

Request = RawBatch | RawLabels

P = ParamSpec("P")
R = TypeVar("R")


def as_a_trainer(compute: Callable[P, R]) -> Callable[P, R]:
    """The same, with tiny numbers taken for zero, as in a trainer's process."""

    @functools.wraps(compute)
    def computed(*given: P.args, **named: P.kwargs) -> R:
        torch.set_flush_denormal(True)
        try:
            return compute(*given, **named)
        finally:
            torch.set_flush_denormal(False)

    return computed


@dataclass(frozen=True)
class Outcome:
    """What is left of a storm.

    Arguments:
        acknowledged: Entry ids that were answered, by the batch id of the request.
        checkpoint: The trainer's whole state, as downloaded.
        events: Entry id and kind of every event, in order.
        contents: All that each of these events says.
        history: Entry ids of GET /drift/history, in order.
        rows: All that each of these rows says.
        boundaries: All that GET /drift/boundaries says of each, in order.
        delivered: What the webhook was told, in the order in which each came first.
        ledger: GET /ledger.
        fates: State, and times accepted, of every batch by GET /batches.
    """

    acknowledged: Mapping[str, Sequence[str]]
    checkpoint: bytes
    events: Sequence[tuple[str, str]]
    contents: Sequence[Mapping[str, Any]]
    history: Sequence[str]
    rows: Sequence[Mapping[str, Any]]
    boundaries: Sequence[Mapping[str, Any]]
    delivered: Sequence[Mapping[str, Any]]
    ledger: Mapping[str, Any]
    fates: Mapping[str, tuple[str, int]]


@dataclass(frozen=True)
class Plain:
    """A plain run over a log.

    Arguments:
        state: As bytes, without what a service adds.
        samples_seen: By the model.
        events: Entry id and kind of every event, in order.
        contents: What the engine says in each of these events.
        history: Entry ids of batches, in order.
        totals: What a trainer counts on the way, as in its checkpoints.
        messages: What the webhook is told, in order.
    """

    state: bytes
    samples_seen: int
    events: Sequence[tuple[str, str]]
    contents: Sequence[Mapping[str, Any]]
    history: Sequence[str]
    totals: Mapping[str, Any]
    messages: Sequence[Mapping[str, Any]]

    @classmethod
    @as_a_trainer
    def of(
        cls,
        settings: Settings,
        sent: Mapping[str, Request],
        acknowledged: Mapping[str, Sequence[str]],
        rows: Sequence[str] | None = None,
    ) -> Plain:
        """Learn what was acknowledged, entry by entry.

        Arguments:
            settings: Of the service.
            sent: Requests by their batch ids.
            acknowledged: Entry ids, by batch id.
            rows: Entry ids of the history, of a service that joins small batches: what belongs
                together, since its trainer decides when nothing more waits. None for any other.
        """
        engine = Engine(settings.engine_config(), choose_device(settings.device))
        state, events, history = engine.start(), list[tuple[str, str]](), list[str]()
        contents = list[Mapping[str, Any]]()
        totals = Totals(detectors=begun({}, settings.detector, engine.config.shadows))
        waiting: list[tuple[str, RawBatch]] = []
        for _, entry, id in sorted(
            (position(ids[0]), ids[0], id) for id, ids in acknowledged.items()
        ):
            request, began = sent[id], entry
            if isinstance(request, RawBatch):
                waiting.append((entry, request))
                if rows is not None and entry not in rows:
                    continue
                began, whole = waiting[0][0], _joined([one for _, one in waiting])
                waiting = []
                state, told = engine.step(state, _batch(whole))
                history.append(entry)
            else:
                state, told = engine.label(state, request.sample_ids, request.labels)
            events += [(entry, event.kind) for event in told]
            for event in told:
                totals.count(event)
                if isinstance(event, BatchScored):
                    totals.remember(event.batch_index, began)
                    totals.came(entry)
            contents += [orjson.loads(orjson.dumps(event.to_dict())) for event in told]
        bare = dump(state, settings.engine_config(), {})
        counted = orjson.loads(totals.to_json())
        messages = [
            with_names(one, None) for one in contents if one["kind"] in settings.webhook_kinds
        ]
        seen = state.model.samples_seen
        return cls(bare, seen, events, contents, history, counted, messages)


def faults(plain: Plain, sent: Mapping[str, Request], outcome: Outcome) -> list[str]:
    """What is wrong; nothing where every promise was kept.

    Arguments:
        plain: What ought to have come of it.
        sent: Requests by their batch ids.
        outcome: What was found.
    """
    found = []
    unanswered = sorted(set(sent) - set(outcome.acknowledged))
    if unanswered:
        return [f"{len(unanswered)} requests were never acknowledged: {unanswered[:3]}"]
    twice = {id for id, entries in outcome.acknowledged.items() if len(set(entries)) > 1}
    if twice:
        found.append(f"{len(twice)} requests were accepted as several entries: {sorted(twice)[:3]}")
    theirs, config, beside = load(outcome.checkpoint)
    counted = orjson.loads(beside["totals"])
    for name, value in plain.totals.items():
        if counted[name] != value:
            found.append(f"the trainer has counted {name} {counted[name]!r} instead of {value!r}")
    if dump(theirs, config, {}) != plain.state:
        found.append(
            f"the state is not that of a plain run: {theirs.model.samples_seen} samples learned "
            f"instead of {plain.samples_seen}"
        )
    if list(outcome.events) != plain.events:
        found.append(_difference("events", outcome.events, plain.events))
    else:
        found += _other_contents("event", outcome.contents, plain.contents)
    if list(outcome.history) != plain.history:
        found.append(_difference("rows of the history", outcome.history, plain.history))
    else:
        batches = [one for one in plain.contents if one["kind"] in OF_A_BATCH]
        found += _other_contents("row of the history", outcome.rows, batches)
    found += _other(
        "boundary",
        outcome.boundaries,
        [one for one in plain.contents if one["kind"] == BoundaryDetected.kind],
    )
    found += _other("message to the webhook", outcome.delivered, plain.messages)
    n = sum(len(one) for one in sent.values() if isinstance(one, RawBatch))
    if outcome.ledger["accepted"] != n or outcome.ledger["unaccounted"] != 0:
        found.append(f"the ledger has not {n} samples, or does not add up: {outcome.ledger}")
    wrong = [id for id, fate in outcome.fates.items() if fate[0] in BAD or fate[1] != 1]
    if wrong or set(outcome.fates) != set(sent):
        found.append(f"batches whose fate is wrong or not known: {wrong[:3]}")
    return found


@as_a_trainer
def faults_of_archive(settings: Settings, outcome: Outcome) -> list[str]:
    """What is wrong with the model that the archive of a service makes again."""
    again = rebuild(settings)
    found = [f"the archive: {note}" for note in again.notes]
    if again.missing or again.begins:
        found.append(f"the archive lacks entries: {again.to_json()}")
    found += [
        f"made again it is another model than {one}" for one in again.comparisons if not one.equal
    ]
    theirs, config, _ = load(outcome.checkpoint)
    if dump(theirs, config, {WRITTEN_BY: again.code}) != again.to_bytes():
        found.append("the archive does not make the model again")
    return found


OF_A_BATCH = ("batch_learned", "batch_set_aside", "batch_passed")
BAD = ("waiting", "rejected", "dropped", "lost")


def _joined(batches: Sequence[RawBatch]) -> RawBatch:
    """The samples of several batches, one after the other."""
    features = np.concatenate([one.features for one in batches])
    labels = [label for one in batches for label in one.labels or [None] * len(one)]
    ids = [id for one in batches for id in one.sample_ids or [None] * len(one)]
    return RawBatch.of(features, labels, sample_ids=ids)


def _batch(raw: RawBatch) -> Batch:
    codes = None if raw.codes is None else torch.from_numpy(raw.codes.copy())
    return Batch(torch.from_numpy(raw.features.copy()), codes, raw.vocabulary, raw.sample_ids)


def _other(
    what: str, theirs: Sequence[Mapping[str, Any]], ours: Sequence[Mapping[str, Any]]
) -> list[str]:
    """What is wrong with one list of them, of which a plain run makes another."""
    if len(theirs) != len(ours):
        return [f"{len(theirs)} of kind {what} instead of {len(ours)}"]
    return _other_contents(what, theirs, ours)


def _other_contents(
    what: str, theirs: Sequence[Mapping[str, Any]], ours: Sequence[Mapping[str, Any]]
) -> list[str]:
    """The first of them that does not say what a plain run says; a service may say more."""
    for i, (there, expected) in enumerate(zip(theirs, ours, strict=False)):
        for name, value in expected.items():
            found = there.get(name)
            if name == "explanation" and found and value:  # an event leaves out what is long
                value = {part: value[part] for part in found}
            if found != value:
                return [f"{what} {i} says {name} {found!r} instead of {value!r}"]
    return []


def _difference(what: str, theirs: Sequence[Any], ours: Sequence[Any]) -> str:
    there, expected = set(theirs), set(ours)
    missing = [one for one in ours if one not in there]
    extra = [one for one in theirs if one not in expected]
    return (
        f"{len(theirs)} {what} instead of {len(ours)}: {len(missing)} missing ({missing[:3]}), "
        f"{len(extra)} too many ({extra[:3]}), or others in order"
    )

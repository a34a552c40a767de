"""The checkpoints of a model in a store, looked at for `gmr doctor`; nothing is changed there."""

from __future__ import annotations

from typing import Any

from core.counted import counted
from core.engine.checkpoint import load
from core.errors import InvalidCheckpoint, OtherRelease
from service.broker.connection import SyncClient
from service.broker.keys import Keys
from service.settings import Settings
from service.store.choice import objects_of
from service.store.in_objects import KeptObject, epoch_of, parse, unpointed
from service.store.kept import StoreUnavailable
from service.upkeep.report import ModelFacts, Report, advice_on, refused, subject_of


def look_at_store(
    client: SyncClient, settings: Settings, facts: ModelFacts, report: Report
) -> None:
    """Read what the pointer of a model names, and count what it does not.

    Arguments:
        client: To the Redis of the service.
        settings: Of the service.
        facts: Of the model; what is found goes there.
        report: What wants attention goes there.
    """
    subject = subject_of(facts.name, "checkpoints")
    own = settings.for_model(facts.name, {}) if facts.name else settings
    keys = Keys(own.model)
    objects = objects_of(own)
    text: Any = client.get(keys.checkpoints)
    epoch: Any = client.get(keys.epoch)
    try:
        there = objects.names()
        named = parse(text, objects)
        others = unpointed(there, named or (), objects)
        for one in others if named is None else named:
            try:
                state, config, metadata = load(one.read())
                facts.read(state, config, metadata)
            except (InvalidCheckpoint, KeyError, ValueError) as error:
                if named is not None and not _points_to(client, keys, one):
                    continue  # let go of by a trainer at work, since the pointer was read
                facts.unreadable.append(one.name)
                report.add(
                    subject,
                    refused(one, error),
                    advice_on(error, "bring it back from an earlier version of the object"),
                    blocks=isinstance(error, OtherRelease) and not facts.checkpoints,
                )
                continue
    except StoreUnavailable as error:
        report.add(
            subject,
            f"the store does not answer: {error}",
            "See whether it can be reached from here, and whether the credentials are right.",
            blocks=True,
        )
        return
    if named is None and others:
        report.add(
            subject,
            f"nothing in Redis points to what {objects.place} holds: "
            f"{counted(len(others), 'checkpoint')}",
            "Look whether this is the right Redis. If it has lost its data, a start goes on from "
            "the newest of these.",
        )
    dead = [one for one in others if named is not None and epoch_of(one.name) < int(epoch or 0)]
    report.add(
        subject,
        f"{facts.checkpoints} in {objects.place} can be read; {facts.newest}; epoch "
        f"{int(epoch or 0)}"
        + (f"; to be deleted: {counted(len(dead), 'object')} of earlier epochs" if dead else ""),
    )


def _points_to(client: SyncClient, keys: Keys, one: KeptObject) -> bool:
    """Whether the pointer of a model names a checkpoint now."""
    text: Any = client.get(keys.checkpoints)
    named = parse(text, one.objects)
    return named is None or one.name in {there.name for there in named}

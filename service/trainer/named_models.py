"""The named models of one trainer: which are loaded, and when one is loaded or let go.

Rules of this module:

1. A model that is not loaded costs its place in the one read of all streams, and nothing else.
2. One that misbehaves stops nobody: an error of its own lets it go, and it is tried again later,
   ever more rarely. Faults of the machine end the process, as they do for the default model.
3. Models begin and end here only while no read of streams is under way.
4. A model that the webhook has not been told everything of stays loaded, and is loaded at a start:
   its writer tells. Where there is no room it is let go, and loaded again a while later.
5. Where the node of Redis that has a model is away, the model waits and others go on. One that
   met this in the middle of something stands aside: it is let go, keeps its lease, and goes on
   from its checkpoint. One that did not is as it was.
"""

from __future__ import annotations

import logging
import math
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson
import redis

from core.errors import InvalidSettings
from service.broker.away import AwayNodes
from service.broker.connection import StreamUnavailable, SyncClient, is_transient, unavailable
from service.broker.fenced import LeaseLost, lost
from service.broker.keys import Keys
from service.broker.lease import Lease
from service.broker.reader import Readable
from service.broker.registry import NamedModel, Unwatched, forget, forget_older, read_register
from service.settings import MIB, Settings
from service.store.choice import objects_of
from service.store.kept import StoreUnavailable
from service.trainer.budget import Budget
from service.trainer.faults import is_machines
from service.trainer.heartbeat import Heartbeat
from service.trainer.pace import AMONG_MANY
from service.trainer.writer import ModelWriter

logger = logging.getLogger(__name__)

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0

TELL_AGAIN_S: Final = 60.0
"""Seconds after which a model is loaded again that was let go with something to tell."""

AWAY: Final = "Its node of Redis is away."

PATIENCE_S: Final = 0.05
"""Seconds for which a model of a cluster waits for its node before it stands aside."""


@dataclass(eq=False)
class Slot:
    """One named model as the trainer has it.

    Arguments:
        model: What is registered of it.
        keys: Its keys.
        stream: Its input stream, to be read while it is not loaded.
        writer: None while it is not loaded.
        wanted: Whether it should be loaded: something came.
        used_at: When something came last, by the monotonic clock.
        failures: In a row.
        error: Of the last one; None where all is well.
        again_at: Not before this is it tried again.
        tells_at: When it is to be loaded again to tell the webhook the rest.
        rest_at: Not before this need it look after what is due.
        lease: Of a model that stands aside, to go on by; None of any other.
        led: Whether it was led by that before.
        read_again: Whether what was read of its stream since is to be read again.
    """

    model: NamedModel
    keys: Keys
    stream: Unwatched
    writer: ModelWriter | None = None
    wanted: bool = False
    used_at: float = 0.0
    failures: int = 0
    error: str | None = None
    again_at: float = 0.0
    tells_at: float = math.inf
    rest_at: float = 0.0
    lease: Lease | None = None
    led: bool = False
    read_again: bool = False

    @property
    def streams(self) -> tuple[Readable, ...]:
        """Of which an answer may be this model's."""
        return (self.stream,) if self.writer is None else (self.stream, self.writer.feed)

    @property
    def state(self) -> str:
        """For GET /models: "loaded", "unloaded", "failing" or "leaving"."""
        if self.model.leaving:
            return "leaving"
        if self.error is not None:
            return "failing"
        return "unloaded" if self.writer is None else "loaded"


class NamedModels:
    """Loads models, and lets them go.

    Arguments:
        settings: Of the service.
        client: Connection to Redis that threads may share.
        heartbeat: Beats for those that are loaded.
        away: Nodes whose models wait.
        default: Writer of the default model; while it holds its lease, this trainer is the one.
    """

    def __init__(
        self,
        settings: Settings,
        client: SyncClient,
        heartbeat: Heartbeat,
        away: AwayNodes,
        default: ModelWriter,
    ) -> None:
        self._settings = settings
        self._client = client
        self._heartbeat = heartbeat
        self._away = away
        self._is_on_cluster = isinstance(client, redis.RedisCluster)
        self._token = default.lease.token
        self._call = default.feed.call
        self._keys = Keys(settings.model)
        self._slots: dict[str, Slot] = {}
        self._pace = replace(AMONG_MANY, house=Budget(), checkpoints=Budget())
        self._saving = ThreadPoolExecutor(1, "gmr-checkpoints")
        self._told: bytes | None = None

    def __iter__(self) -> Iterator[Slot]:
        return iter(self._slots.values())

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def loaded(self) -> list[Slot]:
        """Those that are loaded."""
        return [slot for slot in self if slot.writer is not None]

    # What there is ------------------------------------------------------------------

    def refresh(self) -> None:
        """Read the register: take up models that are new, take down those that are to go."""
        register = self._call(lambda: read_register(self._client, self._keys))
        for name in [name for name in self._slots if name not in register]:
            self._unload(self._slots[name])
            del self._slots[name]
        for name, model in register.items():
            if name not in self._slots:
                self._slots[name] = self._slot(model)
            self._slots[name].model = model
            if model.leaving:
                self._take_down(self._slots[name])

    def ring(self, name: str) -> None:
        """Somebody asks for a model, though no entry came."""
        slot = self._slots.get(name)
        if slot is None:
            return
        if slot.writer is None:
            self.want(slot)
        else:
            slot.writer.ring()

    def want(self, slot: Slot) -> None:
        """Something came for a model."""
        slot.wanted, slot.used_at = True, time.monotonic()

    def _slot(self, model: NamedModel) -> Slot:
        keys = self._keys.named(model.name)
        slot = Slot(model, keys, Unwatched(self._client, keys))
        if self._is_wanted(slot):
            self.want(slot)
        return slot

    def _is_wanted(self, slot: Slot) -> bool:
        """Whether something came while nobody watched, was read by a trainer that died, or is still
        to be told."""
        client, keys, found = self._client, slot.keys, list[Any]()

        def look() -> None:
            found.append(client.xlen(keys.input) or client.llen(keys.requests))
            found[-1] = found[-1] or self._has_to_tell(slot)

        return self.is_away(slot) or not self._reached(slot, look) or bool(found[-1])

    def _has_to_tell(self, slot: Slot) -> bool:
        """Whether the outbox of a model holds what the webhook is to be told."""
        return self._settings.webhook_url is not None and bool(self._client.xlen(slot.keys.outbox))

    def _reached(self, slot: Slot, act: Callable[[], None]) -> bool:
        """Do something with the keys of a model; False where its node is away, and others go on.

        Arguments:
            slot: The model.
            act: Safe to repeat. A single server is waited for.

        Raises:
            LeaseLost: Another trainer has taken over.
        """
        if not self._is_on_cluster:
            self._call(act)
            return True
        try:
            act()
        except Exception as error:
            if is_transient(error):
                self._away.missed(slot.keys.input)
                return False
            if isinstance(error, redis.ResponseError):
                raise lost(error) from error
            raise
        return True

    def is_away(self, slot: Slot) -> bool:
        """Whether the node is away that has a model."""
        return self._away.has(slot.keys.input)

    def _take_down(self, slot: Slot) -> None:
        if self.is_away(slot):
            return  # its name stays, and it is tried again
        self._unload(slot)
        if self.is_away(slot):
            return
        name = slot.model.name
        shutil.rmtree(self._settings.data_dir / "models" / name, ignore_errors=True)
        if self._settings.checkpoints_in_store:
            try:
                objects_of(self._settings.for_model(name, {})).clear()
            except StoreUnavailable as error:
                logger.warning("model %r is taken down later: %s", name, error)
                return  # its name stays, and it is tried again
        if not self._reached(slot, lambda: forget(self._client, self._keys, self._token, name)):
            return
        del self._slots[name]
        logger.info("model %r was taken down", name)

    # Loading ------------------------------------------------------------------------

    def load_wanted(self) -> None:
        """Load what is wanted, unless it failed just now."""
        now = time.monotonic()
        for slot in self:
            if now >= slot.tells_at and slot.writer is None:
                self.want(slot)
            if not slot.wanted or slot.writer is not None or now < slot.again_at:
                continue
            if not self.is_away(slot):
                self._load(slot)

    def _load(self, slot: Slot) -> None:
        writer = None
        try:
            settings = slot.model.settings_in(self._settings)
            lease = self._lease_kept(slot)
            stood_aside = lease is not None and slot.led
            writer = ModelWriter(
                settings,
                self._client,
                self._heartbeat,
                self._pace,
                self._saving,
                lease,
                PATIENCE_S if self._is_on_cluster else math.inf,
                stood_aside=stood_aside,
            )
            writer.feed.call(lambda: forget_older(self._client, slot.keys, slot.model))
            writer.begin(patience_s=0)
        except StreamUnavailable as error:
            if writer is not None:
                writer.close()
                slot.lease, slot.led = writer.lease, stood_aside
            self._wait(slot, error)
            return
        except Exception as error:
            if writer is not None:
                _close(writer)
            if is_machines(error) and not isinstance(error, OSError):
                raise
            self._failed(slot, error)
            return
        slot.writer, slot.wanted, slot.error = writer, False, None
        slot.tells_at = math.inf
        slot.lease, slot.led, slot.read_again = None, False, False
        slot.used_at = time.monotonic()

    def _lease_kept(self, slot: Slot) -> Lease | None:
        """The lease of a model that stood aside, if it is this trainer's still."""
        lease = slot.lease
        if lease is None:
            return None
        try:
            lease.held = lease.renew()
        except Exception as error:
            if not is_transient(error):
                raise
            raise unavailable(error) from error
        return lease if lease.held else None

    def stand_aside(self, slot: Slot, error: StreamUnavailable) -> None:
        """Let a model go whose node of Redis is away, until it is back.

        Raises:
            StreamUnavailable: There is one server, and so nothing that could go on.
        """
        writer = slot.writer
        assert writer is not None
        if not self._is_on_cluster:
            raise error
        writer.fall(error)
        writer.close()
        slot.writer, slot.lease, slot.led = None, writer.lease, True
        self.want(slot)
        self._wait(slot, error)

    def _wait(self, slot: Slot, error: StreamUnavailable) -> None:
        """Try a model again when its node is back."""
        if not self._is_on_cluster:
            raise error
        slot.error = str(error)[:1000]
        self._away.missed(slot.keys.input)
        logger.warning("model %r stands aside: %s", slot.model.name, slot.error)

    def failed(self, slot: Slot, error: Exception) -> None:
        """Let a model go whose writer met an error, and try again later.

        Raises:
            Exception: The error, if it is the machine's.
        """
        writer = slot.writer
        assert writer is not None
        writer.fall(error)
        _close(writer)
        slot.writer = None
        if is_machines(error):
            raise error
        self.want(slot)
        self._failed(slot, error)

    def learned(self, slot: Slot) -> None:
        """An entry was applied: all is well again."""
        slot.used_at, slot.failures = time.monotonic(), 0

    def _failed(self, slot: Slot, error: Exception) -> None:
        pause = min(FIRST_PAUSE_S * 2.0**slot.failures, LONGEST_PAUSE_S)
        slot.failures += 1
        slot.again_at = time.monotonic() + pause
        slot.error = f"{type(error).__name__}: {error}"[:1000]
        known = isinstance(error, InvalidSettings | LeaseLost)
        logger.error(
            "model %r is let go, and tried again in %.0f s: %s",
            slot.model.name,
            pause,
            slot.error,
            exc_info=None if known else error,
        )

    # Letting go ---------------------------------------------------------------------

    def unload_idle(self, busy: frozenset[Slot] | set[Slot]) -> None:
        """Let go of models that have been quiet for long, and of more where there is no room.

        Arguments:
            busy: Those with entries that wait.
        """
        now = time.monotonic()
        quiet = [slot for slot in self.loaded if slot not in busy and not self.is_away(slot)]
        quiet.sort(key=lambda slot: slot.used_at)
        room = self._settings.loaded_models_mib * MIB
        loaded_bytes = sum(slot.writer.nbytes for slot in self.loaded if slot.writer is not None)
        for slot in quiet:
            assert slot.writer is not None
            long = now - slot.used_at >= self._settings.unload_after_s
            long = long and not slot.writer.has_to_tell
            if not (long or loaded_bytes > room) or not slot.writer.may_unload:
                continue
            loaded_bytes -= slot.writer.nbytes
            self._unload(slot)
            self._tell_later(slot)

    def _tell_later(self, slot: Slot) -> None:
        """Load a model again in a while that was let go before all was told."""

        def look() -> None:
            if self._has_to_tell(slot):
                slot.tells_at = time.monotonic() + TELL_AGAIN_S

        if not self.is_away(slot) and not self._reached(slot, look):
            slot.tells_at = time.monotonic() + TELL_AGAIN_S

    def _unload(self, slot: Slot) -> None:
        """Let go of a model in order: learn what is in its stream, publish, keep."""
        writer = slot.writer
        if writer is None:
            return
        try:
            writer.end("unloaded")
        except StreamUnavailable as error:
            self.stand_aside(slot, error)
        except Exception as error:
            writer.fall(error)
            if is_machines(error):
                raise
            self._failed(slot, error)
        finally:
            if slot.writer is not None:
                writer.close()
                slot.writer = None

    def stop(self) -> None:
        """Prepare the orderly end of all: calls of Redis wait no longer for ever."""
        for slot in self.loaded:
            assert slot.writer is not None
            slot.writer.stop()

    def end(self) -> None:
        """Let go of all."""
        for slot in self.loaded:
            if not self.is_away(slot):
                self._unload(slot)

    def close(self, error: Exception | None = None) -> None:
        """Let go of threads and folders, whatever has happened.

        Arguments:
            error: Of another model, that ends the process.
        """
        for slot in self.loaded:
            assert slot.writer is not None
            if isinstance(error, StreamUnavailable):
                slot.writer.fall(error)
            elif self.is_away(slot):
                slot.writer.fall(StreamUnavailable(AWAY))
            slot.writer.close()
            slot.writer = None
        self._saving.shutdown()

    # Reporting ----------------------------------------------------------------------

    def report(self) -> None:
        """Say how the models are, where that has changed."""
        states = {}
        for slot in self:
            state, error = slot.state, slot.error
            if state != "leaving" and self.is_away(slot):
                state, error = "failing", error or AWAY
            if state != "unloaded":
                states[slot.model.name] = {"state": state, "error": error}
        report = orjson.dumps(states)
        if report != self._told:
            self._call(lambda: self._client.set(self._keys.model_states, report))
            self._told = report


def _close(writer: ModelWriter) -> None:
    """Let go of a writer that met an error, so that another may begin at once."""
    writer.close()
    with suppress(Exception):  # the lease runs out by itself
        writer.give_up_lease()

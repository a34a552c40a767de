"""Process 1: reads the streams of its models and leads their writers, in one thread.

Rules of this module:

1. Streams are read together, one step ahead. Writers begin and end only while no read is under way.
2. Whose entry is next is told by a fair queue. What waits in it is read again after a restart: the
   stream is the truth, the queue is a convenience.
3. The default model is always loaded, and an error of its writer ends the process.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import torch

from core.errors import InvalidSettings
from service.broker.away import AwayNodes
from service.broker.connection import (
    StreamUnavailable,
    SyncClient,
    connect,
    examiner_of,
    identity_of,
)
from service.broker.entries import Entry
from service.broker.fenced import LeaseLost
from service.broker.lease import Lease
from service.broker.reader import Readable, Reader
from service.broker.registry import Doorbell
from service.ending import MUST_CHANGE_SETTINGS
from service.extras import check_extras
from service.logs import configure_logs
from service.settings import Settings
from service.trainer.fair_queue import FairQueue
from service.trainer.heartbeat import Heartbeat
from service.trainer.named_models import NamedModels, Slot
from service.trainer.pace import ALONE, AMONG_MANY, NEVER
from service.trainer.standby import stand_by
from service.trainer.warm_up import warm_up_meanwhile
from service.trainer.writer import ModelWriter

logger = logging.getLogger(__name__)

TICK_S: Final = 0.05
LOOK_S: Final = 0.5
"""Seconds between two looks at which models have been quiet for long."""

WATCH_S: Final = 0.1
"""While there is something to learn, models that are not loaded are looked at so often."""

REFRESH_S: Final = 30.0
"""Seconds after which the register of models is read though nobody rang."""

MOST_WAITING: Final = 64
"""Entries of the default model that wait in the queue, beyond which no more of them are read."""

MOST_WAITING_OF_ONE: Final = 8
"""The same, of a named model."""

READ_MS: Final = 250
"""Milliseconds for which a read waits where nothing comes."""

FULL_MS: Final = 10
"""The same, where a stream is left out because enough of it waits: that is learned soon, and then
the next read must not be waiting for others still."""


class Trainer:
    """Learns until told to stop.

    Arguments:
        settings: With a Redis address.
        lease: Of the default model, where it was taken before.

    Raises:
        InvalidSettings: They cannot work: no Redis address, no such device, a data dir
            in use, or a checkpoint of another kind of model.
    """

    def __init__(self, settings: Settings, lease: Lease | None = None) -> None:
        self._client = _connect(settings)
        self._away = AwayNodes(self._client)
        self._heartbeat = Heartbeat(self._client, self._away)
        pace = replace(ALONE, status_s=min(ALONE.status_s, settings.stall_s / 4))
        self.default = ModelWriter(settings, self._client, self._heartbeat, pace, lease=lease)
        self._named = NamedModels(settings, self._client, self._heartbeat, self._away, self.default)
        self._doorbell = Doorbell(self._client, self.default.feed.keys)
        self._queue: FairQueue[Slot | None, Entry] = FairQueue()  # None: the default model's
        self._rested_at = self._looked_at = self._refreshed_at = self._watched_at = NEVER
        self._stopping = False

    def stop(self) -> None:
        """Ask for an orderly end: learn what is in the stream, publish, keep, go."""
        self._stopping = True
        self.default.stop()

    def run(self) -> None:
        """Work until `stop` is called.

        Raises:
            InvalidSettings: Another trainer works on this model.
            LeaseLost: Another trainer has taken over.
        """
        failure: Exception | None = None
        try:
            with self._heartbeat:
                self.default.begin()
                self._work()
                self._named.stop()
                self._named.end()
                self.default.end()
        except StreamUnavailable as error:
            failure = error
            self.default.fall(error)
        except Exception as error:
            failure = error
            self.default.fall(error)
            raise
        finally:
            self._named.close(failure)
            self.default.close()
            self._away.close()
            self._client.close()

    def _work(self) -> None:
        reader = Reader(self._client, replicas=self.default.feed.replicas, away=self._away)
        try:
            while not self._stopping:
                if not reader.asked:
                    self._look_after_named()
                    streams, full = self._streams()
                    reader.ask(streams, FULL_MS if full else READ_MS)
                self._take(reader)
                self._learn_one()
                self._rest()
        finally:
            reader.close()

    def _look_after_named(self) -> None:
        """Load and let go of named models. No read of streams is under way."""
        now = time.monotonic()
        for slot in self._named.loaded:
            if slot.read_again and not self._named.is_away(slot):
                self._read_again(slot)
        if now - self._refreshed_at >= REFRESH_S:
            self._refreshed_at = now
            # Before the register is read, so that no ring is lost.
            self.default.feed.call(self._doorbell.prepare)
            self._named.refresh()
        self._named.load_wanted()
        if now - self._looked_at >= LOOK_S:
            self._looked_at = now
            self._named.unload_idle({slot for slot in self._named if self._queue.waiting(slot)})
            self._named.report()

    def _read_again(self, slot: Slot) -> None:
        """Go back to where a model stands, which was not led for a while."""
        assert slot.writer is not None
        self._queue.drop(slot)
        slot.writer.read_again()
        slot.read_again = False

    def _streams(self) -> tuple[list[Readable], bool]:
        """What to read next, and whether anything is left out because enough of it waits."""
        streams: list[Readable] = [self._doorbell]
        full = False
        now = time.monotonic()
        look = not self._queue or now - self._watched_at >= WATCH_S
        if look:
            self._watched_at = now
        for slot in self._named:
            if self._named.is_away(slot):
                slot.read_again = True
            elif slot.writer is None:
                if look and not slot.wanted:
                    streams.append(slot.stream)
            elif self._queue.waiting(slot) < MOST_WAITING_OF_ONE:
                streams.append(slot.writer.feed)
            else:
                full = True
        if self._queue.waiting(None) < MOST_WAITING:
            streams.append(self.default.feed)  # the last one: on a cluster it is waited for
        else:
            full = True
        return streams, full

    def _take(self, reader: Reader) -> None:
        """Take over what was read, waiting a moment where there is nothing else to do."""
        found = reader.next(0.0 if self._queue else TICK_S)
        if found is not None and not self._queue:
            self._heartbeat.activity.went_on()  # whatever was to be done is done
        if not found:
            return
        slots = {stream: slot for slot in self._named for stream in slot.streams}
        for stream, came in found:
            if stream is self._doorbell:
                self._refreshed_at = NEVER
                for name in came:
                    self._named.ring(name)
            elif stream is self.default.feed:
                self.default.expect(came)
                self._queue.put(None, came)
            elif (slot := slots.get(stream)) is None:
                continue  # its model was let go meanwhile, and will be read again
            elif slot.writer is None:
                self._named.want(slot)
            elif self._named.is_away(slot) or slot.read_again:
                slot.read_again = True
            else:
                slot.writer.expect(came)
                self._queue.put(slot, came)

    def _learn_one(self) -> None:
        if not self._queue:
            return
        slot, entry = self._queue.take()
        started = time.perf_counter()
        more, crowded = bool(self._queue.waiting(slot)), bool(self._queue)
        if slot is None:
            self.default.learn(entry, more=more)
        elif slot.writer is None:
            return  # it was let go since, and will be read again
        elif self._named.is_away(slot) or slot.read_again:
            slot.read_again = True
            return
        elif self._let(slot, lambda writer: writer.learn(entry, more=more, crowded=crowded)):
            self._named.learned(slot)
        self._queue.charge(slot, time.perf_counter() - started)

    def _rest(self) -> None:
        """Let writers that have nothing to learn look after what is due."""
        now = time.monotonic()
        if now - self._rested_at < TICK_S:
            return
        self._rested_at = now
        if not self._queue.waiting(None):
            self.default.idle()
        for slot in self._named.loaded:
            if self._named.is_away(slot):
                continue
            if now >= slot.rest_at and not self._queue.waiting(slot):
                slot.rest_at = now + AMONG_MANY.house_s
                self._let(slot, self._rest_one)

    def _rest_one(self, writer: ModelWriter) -> None:
        writer.idle(crowded=bool(self._queue))

    def _let(self, slot: Slot, act: Callable[[ModelWriter], None]) -> bool:
        """Let a named model's writer do something; where that fails, the model is let go."""
        assert slot.writer is not None
        try:
            act(slot.writer)
        except StreamUnavailable as error:
            self._queue.drop(slot)
            self._named.stand_aside(slot, error)
            return False
        except Exception as error:
            self._queue.drop(slot)
            self._named.failed(slot, error)
            return False
        return True


def _connect(settings: Settings) -> SyncClient:
    """A connection to the Redis of the settings.

    Raises:
        InvalidSettings: There is none.
    """
    address = settings.redis_address_of_ones_own()
    return connect(address, examiner_of(settings, "trainer"), identity_of(settings))


def main(settings: Settings) -> int:
    """Run a trainer until SIGTERM or SIGINT; the exit status of the process.

    Returns:
        0 after an orderly end, 2 when the operator must change a setting, 1 otherwise.
    """
    life = Life(settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: life.stop())
    return life.lead()


class Life:
    """A trainer from the start of its process to its end, on whichever thread it is led.

    Arguments:
        settings: Of the service.
    """

    def __init__(self, settings: Settings) -> None:
        self.phase = "starting"  # "standing by", "leading", "ended"
        self.error: str | None = None
        self._settings = settings
        self._trainer: Trainer | None = None
        self._ended = threading.Event()

    def stop(self) -> None:
        """Ask for an orderly end."""
        self._ended.set()
        if self._trainer is not None:
            self._trainer.stop()

    def lead(self) -> int:
        """Stand by where that is asked for, then work; the exit status."""
        configure_logs(self._settings, "trainer")
        # Switches of the whole process, so not the business of a Trainer.
        torch.set_num_threads(self._settings.trainer_threads)
        torch.set_flush_denormal(True)  # tiny numbers would take a slow path of the processor
        os.nice(self._settings.trainer_niceness)  # answers come before learning
        try:
            return self._lead()
        finally:
            self.phase = "ended"

    def _lead(self) -> int:
        settings = self._settings
        try:
            check_extras(settings)
            lease = None
            if settings.standby:
                warm_up_meanwhile(settings.engine_config())
                self.phase = "standing by"
                client = _connect(settings)
                lease = stand_by(client, settings.model, self._ended.wait, settings.lease_s)
                if lease is None:
                    return 0
            self._trainer = trainer = Trainer(settings, lease)
            if self._ended.is_set():
                trainer.stop()
            if lease is None:
                warm_up_meanwhile(settings.engine_config())
            self.phase = "leading"
            trainer.run()
        except InvalidSettings as error:
            self.error = str(error)
            logger.error("%s", error)
            return MUST_CHANGE_SETTINGS
        except LeaseLost as error:
            self.error = str(error)
            logger.error("%s", error)
            return 1
        return 0

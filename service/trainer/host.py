"""Process 1: reads the streams of its models and leads their writers, in one thread.

Rules of this module:

1. Streams are read together, one step ahead. Writers begin and end only while no read is under way.
2. Whose entry is next is told by a fair queue. What waits in it is read again after a restart: the
   stream is the truth, the queue is a convenience.
3. The service's own model is always at work, and an error of its writer ends the process.
"""

from __future__ import annotations

import logging
import signal
import time
from typing import Final

import torch

from core.errors import InvalidSettings
from service.broker.connection import StreamUnavailable, connect
from service.broker.feed import Entry, LeaseLost, Reader
from service.ending import MUST_CHANGE_SETTINGS
from service.extras import check_extras
from service.logs import configure_logs
from service.settings import Settings
from service.trainer.fair_queue import FairQueue
from service.trainer.heartbeat import Heart
from service.trainer.warm_up import rehearse_meanwhile
from service.trainer.writer import ALONE, ModelWriter

logger = logging.getLogger(__name__)

TICK_S: Final = 0.05
MOST_WAITING: Final = 64
"""Entries of a model that wait in the queue, beyond which no more of them are read."""


class Trainer:
    """Learns until told to stop.

    Arguments:
        settings: With a Redis address.

    Raises:
        InvalidSettings: They cannot work: no Redis address, no such device, a data dir
            in use, or a checkpoint of another kind of model.
    """

    def __init__(self, settings: Settings) -> None:
        address = settings.redis_address()
        if address is None:
            raise InvalidSettings(
                "No Redis address is set, and only `gmr serve` brings an embedded Redis. Set "
                "GMR_REDIS_URL, or start the whole service by `gmr serve`."
            )
        self._client = connect(address)
        self._heart = Heart(self._client)
        self.home = ModelWriter(settings, self._client, self._heart, ALONE)
        self._queue: FairQueue[ModelWriter, Entry] = FairQueue()
        self._rested_at = 0.0
        self._stopping = False

    def stop(self) -> None:
        """Ask for an orderly end: learn what is in the stream, publish, keep, go."""
        self._stopping = True
        self.home.stop()

    def run(self) -> None:
        """Work until `stop` is called.

        Raises:
            InvalidSettings: Another trainer works on this model.
            LeaseLost: Another trainer has taken over.
        """
        try:
            with self._heart:
                self.home.begin()
                self._work()
                self.home.end()
        except StreamUnavailable as error:
            self.home.fall(error)
        except Exception as error:
            self.home.fall(error)
            raise
        finally:
            self.home.close()
            self._client.close()

    def _work(self) -> None:
        reader = Reader(self._client)
        try:
            while not self._stopping:
                if not reader.asked:
                    self._ask(reader)
                self._take(reader)
                self._learn_one()
                self._rest()
        finally:
            reader.close()

    def _ask(self, reader: Reader) -> None:
        """Read on, but for whom enough waits already."""
        if self._queue.waiting(self.home) < MOST_WAITING:
            reader.ask([self.home.feed])

    def _take(self, reader: Reader) -> None:
        """Take over what was read, waiting a moment where there is nothing else to do."""
        if not reader.asked:
            return
        for _, entries in reader.next(0.0 if self._queue else TICK_S) or ():
            self.home.expect(entries)
            self._queue.put(self.home, entries)

    def _learn_one(self) -> None:
        if not self._queue:
            return
        writer, entry = self._queue.take()
        started = time.perf_counter()
        writer.learn(entry)
        self._queue.charge(writer, time.perf_counter() - started)

    def _rest(self) -> None:
        """Let writers that have nothing to learn look after what is due."""
        now = time.monotonic()
        if now - self._rested_at < TICK_S:
            return
        self._rested_at = now
        if not self._queue.waiting(self.home):
            self.home.rest()


def main(settings: Settings) -> int:
    """Run a trainer until SIGTERM or SIGINT; the exit status of the process.

    Returns:
        0 after an orderly end, 2 when the operator must change a setting, 1 otherwise.
    """
    configure_logs(settings, "trainer")
    # Switches of the whole process, so not the business of a Trainer.
    torch.set_num_threads(settings.trainer_threads)
    torch.set_flush_denormal(True)  # tiny numbers would take a slow path of the processor
    try:
        check_extras(settings)
        trainer = Trainer(settings)
        rehearse_meanwhile(settings.engine_config())
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: trainer.stop())
        trainer.run()
    except InvalidSettings as error:
        logger.error("%s", error)
        return MUST_CHANGE_SETTINGS
    except LeaseLost as error:
        logger.error("%s", error)
        return 1
    return 0

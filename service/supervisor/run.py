"""`gmr serve`: embedded Redis, trainer and API with one lifetime.

The supervisor starts the parts, starts again what dies, and stops them in the order
in which nothing is lost: the API first, so that no batch is accepted any more; then
the trainer, which learns what is in the stream; then Redis.

Rules of this module:

1. It imports nothing heavy: a supervisor that fails is of no use. Another process does, and its
   forks are the parts: `service.supervisor.fork_server`.
2. The parts get their settings through their environment, so that a flag given here
   holds there, and after every restart.
3. A part that keeps dying ends the service, with a status other than 0.
4. A part that hangs is killed and started again: `service.supervisor.watchdog`.
"""

from __future__ import annotations

import contextlib
import http.client
import logging
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from types import FrameType
from typing import Final

from core.errors import InvalidSettings
from service.broker.connection import identity_of
from service.broker.lease import DirectoryLock
from service.ending import MUST_CHANGE_SETTINGS
from service.extras import check_extras
from service.logs import configure_logs
from service.loopback import connection_to_self
from service.settings import CLIENT_VARIABLES, PREFIX, Settings, mask_url
from service.supervisor.embedded import EmbeddedRedis, find_binary
from service.supervisor.fork_server import ForkServer, may_fork
from service.supervisor.kinship import bury_orphans
from service.supervisor.part import Deaths, Part, PartFailed, describe, keeps_dying
from service.supervisor.watchdog import ApiWatch, TrainerWatch

logger = logging.getLogger(__name__)

POLL_S: Final = 0.1
LEAST_ROOM: Final = 1024 * 1024
"""Bytes on its disk without which the embedded Redis is not started."""

ROOM_LOOK_S: Final = 1.0
LOG_LOOK_S: Final = 60.0
API_STOP_S: Final = 15.0
TRAINER_STOP_S: Final = 60.0
"""Seconds a trainer may take to end beyond its time to drain: a checkpoint is written."""


class Supervisor:
    """Runs the service until a signal ends it.

    Arguments:
        settings: As loaded.
        announce: Told what a person wants to know, line by line.
    """

    def __init__(self, settings: Settings, announce: Callable[[str], None]) -> None:
        self._settings = settings
        self._announce = announce
        self._stop_signals = 0
        self._lock: DirectoryLock | None = None
        self._redis: EmbeddedRedis | None = None
        self._redis_deaths = Deaths(settings.deaths_per_minute)
        self._redis_at = self._log_at = 0.0
        self._full = False
        self._fork_server: ForkServer | None = None
        self._parts: list[Part] = []
        self._port = settings.port

    def run(self) -> int:
        """Start everything, watch, stop in order; the exit status."""
        # SIGHUP: the terminal that it runs in was closed.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._asked_to_stop)
        status = 0
        try:
            self._start()
            self._watch()
        except InvalidSettings as error:
            logger.error("%s", error)
            status = MUST_CHANGE_SETTINGS
        except PartFailed as error:
            logger.error("%s", error)
            status = 1
        finally:
            clean = self._stop()
        return status or (0 if clean else 1)

    def _asked_to_stop(self, number: int, frame: FrameType | None) -> None:
        self._stop_signals += 1
        if self._stop_signals > 1 and number == signal.SIGINT:
            # The second Ctrl-C: whoever presses it wants to be gone. What was accepted
            # is in the stream and is learned at the next start.
            if self._fork_server is not None:
                self._fork_server.end()
            for part in self._parts:
                part.kill()
            if self._redis is not None:
                self._redis.stop()
            os._exit(130)

    def _start(self) -> None:
        settings = self._settings
        check_extras(settings)
        settings.check_exposure()
        self._lock = DirectoryLock(settings.data_dir, "service")
        self._port = free_port(settings.host, settings.port)
        address = settings.redis_address()
        if address is None:
            binary = find_binary(settings.redis_binary)
            self._redis = EmbeddedRedis(
                settings.data_dir, binary, settings.redis_maxmemory_mib, self._lock
            )
            address, redis = self._redis.url, f"embedded {binary}"
        else:
            redis = mask_url(address)
        environment = self._environment(address)
        fork_server = ForkServer(environment) if may_fork(settings.device) else None
        self._fork_server = fork_server
        if fork_server is not None:
            fork_server.begin()  # it imports while Redis starts
        if self._redis is not None and not self._begin_redis(self._redis):
            return
        self._parts = [
            Part(name, module, environment, Deaths(settings.deaths_per_minute), fork_server)
            for name, module in (("API", "service.api"), ("trainer", "service.trainer"))
        ]
        self._announce(f"Redis: {redis}")
        self._announce(f"Data:  {settings.data_dir.absolute()}")
        limit_s = settings.stall_s
        self._parts[0].faults = ApiWatch(self._answers, limit_s).fault
        trainer = TrainerWatch(
            address,
            settings.model,
            limit_s,
            identity_of(settings),
            stands_by=settings.standby,
        )
        self._parts[1].faults = trainer.fault
        for part in self._parts:
            part.start()

    def _environment(self, redis_url: str) -> dict[str, str]:
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.upper().startswith(PREFIX) or name in CLIENT_VARIABLES
        }
        return {
            **inherited,
            **self._settings.environment(),
            "GMR_REDIS_URL": redis_url,
            "GMR_DATA_DIR": str(self._settings.data_dir.absolute()),
            "GMR_PORT": str(self._port),
            "GMR_CLUSTER": "false",  # a service of its own answers for itself
        }

    def _watch(self) -> None:
        answered = False
        while not self._stop_signals:
            self._watch_redis()
            for part in self._parts:
                part.look()
                status = part.watch()
                # Killed by somebody, it says nothing about whether it can start.
                ended = status is not None and status >= 0
                if ended and part.name == "API" and not answered:
                    raise PartFailed(
                        f"The API did not start ({describe(status or 0)}); the reason is above."
                    )
            if not answered and self._answers():
                answered = True
                url = self._settings.url(self._port)
                self._announce(f"API:   {url}  (what it can do: {url}/docs)")
                if self._settings.on_all_addresses:
                    host = self._settings.host
                    self._announce(f"       It listens on all addresses of this machine ({host}).")
            births = [part.birth for part in self._parts if part.birth is not None]
            if not births:
                bury_orphans(self._children())
            select.select(births, [], [], POLL_S)

    def _children(self) -> list[int]:
        """The processes that somebody waits for."""
        parents = [self._redis, self._fork_server, *self._parts]
        return [one.pid for one in parents if one is not None and one.pid is not None]

    def _watch_redis(self) -> None:
        now = time.monotonic()
        if self._redis is None or now < self._redis_at:
            return
        if (status := self._redis.poll()) is None:
            if now >= self._log_at:
                self._log_at = now + LOG_LOOK_S
                self._redis.bound_log()
            return
        free = self._redis.free_bytes()
        if free < LEAST_ROOM:
            # It ends by the first write that fails, as it must; reads are answered without it.
            if not self._full:
                logger.error(
                    "the embedded Redis ended (%s): its disk is full (%d kB are free). What was "
                    "accepted is safe, and reads are answered; it is started again when there is "
                    "room",
                    describe(status),
                    free // 1024,
                )
            self._full, self._redis_at = True, now + ROOM_LOOK_S
            return
        if self._full:
            self._full = False
            logger.warning("there is room on the disk again; starting the embedded Redis")
        else:
            pause = self._redis_deaths.count()
            if pause is None:
                raise keeps_dying("embedded Redis")
            logger.error("the embedded Redis died (%s); starting it again", describe(status))
            time.sleep(pause)
        self._try_redis(self._redis)

    def _begin_redis(self, redis: EmbeddedRedis) -> bool:
        """Start the embedded Redis, once its disk has room; False where the end was asked for.

        Raises:
            InvalidSettings: It cannot be started.
            PartFailed: It was killed too often.
        """
        redis.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        while not self._stop_signals:
            free = redis.free_bytes()
            if free >= LEAST_ROOM:
                if self._try_redis(redis):
                    return not self._stop_signals
                if self._redis_deaths.count() is None:
                    raise keeps_dying("embedded Redis")
            elif not self._full:
                self._full = True
                logger.error(
                    "the disk of the embedded Redis is full (%d kB are free): the service starts "
                    "when there is room. What was accepted is safe",
                    free // 1024,
                )
            time.sleep(POLL_S)
        return False

    def _try_redis(self, redis: EmbeddedRedis) -> bool:
        """Start the embedded Redis; False where somebody killed it, or its disk filled up.

        Raises:
            InvalidSettings: It cannot be started.
        """
        try:
            redis.start(lambda: self._stop_signals > 0)
        except InvalidSettings:
            ended = redis.poll()
            killed = ended is not None and ended < 0
            if redis.free_bytes() >= LEAST_ROOM and not killed:
                raise
            return False
        self._full = False
        return True

    def _answers(self) -> bool:
        """Whether the API answers that it is alive."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self._settings.host, self._settings.host)
        connection = connection_to_self(host, self._port, self._settings.scheme, timeout_s=1)
        with contextlib.closing(connection):
            try:
                connection.request("GET", "/health/live")
                return connection.getresponse().status == 200
            except (OSError, http.client.HTTPException):
                return False

    def _stop(self) -> bool:
        """Stop every part, in order; whether all of them ended well."""
        times = {"API": API_STOP_S, "trainer": self._settings.drain_timeout_s + TRAINER_STOP_S}
        clean = True
        if self._fork_server is not None:
            self._fork_server.end()  # before the parts, which it could still begin
        for part in self._parts:
            clean = part.stop(times[part.name]) and clean
        if self._redis is not None:
            clean = self._redis.stop() == 0 and clean
        if self._lock is not None:
            self._lock.release()
        return clean


def serve(settings: Settings) -> int:
    """Run the whole service until SIGTERM or SIGINT.

    Returns:
        The exit status: 0 after an orderly end, 2 when the operator must change
        something, 1 when a part did not end well.
    """
    configure_logs(settings, "serve")
    return Supervisor(settings, lambda line: print(line, flush=True)).run()


def free_port(host: str, port: int) -> int:
    """The port to listen on, tried out.

    Raises:
        InvalidSettings: It is taken, or the host is not this machine's.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as attempt:
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            attempt.bind(address)
            return int(attempt.getsockname()[1])
    except OSError as error:
        raise InvalidSettings(
            f"The API cannot listen on {host}, port {port}: {error.strerror}. Stop what uses that "
            f"port, or choose another by --port (0 picks a free one)."
        ) from error

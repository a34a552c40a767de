"""A service that a storm attacks: from outside, by signals, and inside, at named instants."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks._ports import free_port
from tests.chaos.clock import Clock
from tests.chaos.inside import AIM, AT_START, HANGS, HERE, INSTANTS, SABOTAGE
from tests.chaos.power import Medium
from tests.chaos.preloaded import COMPILER, preloading
from tests.service.running import wait_until
from tests.service.supervisor.services import Service
from tests.service.webhook.listening import SECRET, Listening, listening

SUPERVISOR = "service.supervisor"
NEVER_CAME_S = 10.0
"""Seconds after which an instant is no longer waited for."""


class Attacked:
    """One data dir and one port; the service on it is started again when it is killed whole.

    Arguments:
        data_dir: Of the service.
        webhook: Is told of events.
        sabotage: A promise that it breaks, of `tests.chaos.sabotage`; None for none.
        settings: Of the service.
    """

    def __init__(
        self,
        data_dir: Path,
        webhook: Listening,
        sabotage: str | None = None,
        **settings: object,
    ) -> None:
        told = {"webhook_url": webhook.url, "webhook_secret": SECRET}
        self.webhook = webhook
        self._data_dir, self._given = data_dir, {"port": free_port(), **told, **settings}
        self._aims = data_dir.with_name(data_dir.name + "-aims")
        self._aims.mkdir(exist_ok=True)
        self._environment = {AIM: str(self._aims)}
        self._medium = self.clock = None
        if COMPILER is not None:
            self._medium, self.clock = medium, clock = Medium(self._aims), Clock(self._aims)
            self._environment |= medium.environment | clock.environment
            self._environment |= preloading(medium.library, clock.library)
        if sabotage is not None:
            self._environment[SABOTAGE] = sabotage
        self.lines: list[str] = []
        self._killing = False
        self._begin()
        self.settings = self.service.settings
        self.url = f"http://127.0.0.1:{self._given['port']}"

    def _begin(self) -> None:
        command = ("-m", HERE, SUPERVISOR)
        self._began = len(self.lines)
        self.service = Service(self._data_dir, command, self._environment, **self._given)
        self.service.lines = self.lines  # of all that were begun

    def wait_until_it_answers(self) -> None:
        """Return when it does."""
        self.service.wait_until_it_answers()

    def children(self) -> dict[str, int]:
        """Process numbers of what runs, by name."""
        return self.service.children()

    @property
    def is_gone(self) -> bool:
        """Whether the service has ended, without having been killed whole."""
        return not self._killing and self.service.process.poll() is not None

    def kill(self) -> None:
        """Kill the supervisor, see its parts go, and start another."""
        there, self._killing = self.children(), True
        self._end(there)
        self._begin()
        self._killing = False

    def _end(self, parts: dict[str, int]) -> None:
        self.service.process.send_signal(signal.SIGKILL)
        self.service.process.wait()
        wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in parts.values()), 60)
        self.service.close()

    def fail_power(self, chance: random.Random, *, torn: bool) -> bool:
        """End all at once, lose what the medium need not hold, and start again.

        Arguments:
            chance: Decides how much is lost.
            torn: Whether Redis was in the middle of a command.

        Returns:
            False where there is no compiler, and so no record of what is safe; or where the service
            still starts.
        """
        parts = self.children()
        answers = any(line.startswith("API:") for line in self.lines[self._began :])
        if self._medium is None or not answers:
            return False
        self._killing = True
        for pid in parts.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._end(parts)
        self._medium.fail(self._data_dir, chance, torn=torn)
        self._begin()
        self._killing = False
        return True

    def strike(self, instant: str, victim: str) -> bool:
        """Kill a part when another, or itself, gets to an instant; False where that did not come.

        Arguments:
            instant: One of `INSTANTS`.
            victim: The part to be killed.
        """
        pid = 0
        if victim != INSTANTS[instant].part:
            found = self.children().get(victim)
            if found is None:
                return False
            pid = found
        return self._aim(instant, str(pid))

    def _aim(self, instant: str, what: str) -> bool:
        aim = self._aims / "aim"
        beside = aim.with_suffix(".tmp")
        beside.write_text(f"{instant}\n{what}", "utf-8")
        beside.rename(aim)
        if instant == AT_START:
            self.send("service.trainer", signal.SIGKILL)
        deadline = time.monotonic() + NEVER_CAME_S
        while aim.exists():
            if time.monotonic() > deadline:
                try:
                    aim.unlink()
                except FileNotFoundError:
                    return True
                return False
            time.sleep(0.01)
        return True

    def hang(self, instant: str) -> bool:
        """Let a part hang when it gets to an instant, until it is killed for that.

        Arguments:
            instant: One of `INSTANTS`.
        """
        victim = self.children().get(INSTANTS[instant].part)
        if victim is None or not self._aim(instant, HANGS):
            return False
        wait_until(lambda: self.is_gone or victim not in self.children().values(), 60)
        return True

    def send(self, part: str, number: int) -> int | None:
        """Send a signal to a part; its process, or None where it was not there."""
        pid = self.children().get(part)
        if pid is None:
            return None
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            return None
        return pid

    def stop(self) -> int:
        """End it in order; its exit status."""
        return self.service.stop(timeout_s=120)

    def close(self) -> None:
        """Kill it, whatever it does."""
        self.service.close()


@contextlib.contextmanager
def attacked(data_dir: Path, sabotage: str | None = None, **settings: object) -> Iterator[Attacked]:
    """A service under attack, for as long as a block."""
    with listening() as webhook:
        one = Attacked(data_dir, webhook, sabotage, **settings)
        try:
            one.wait_until_it_answers()
            yield one
        finally:
            one.close()

"""How long the trainer has neither gone on nor computed.

A heartbeat says that a process breathes, not that it works: its thread beats on while the thread
that learns hangs at a disk. So what counts is what was done: an entry applied, or a look at the
stream that found nothing more. A single step may take long (loops that are compiled, a boundary of
a large model), so time in which the process computes does not count as stalled, up to a limit for
one that computes for ever. Neither does time in which Redis is away: all wait for it then.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

COMPUTES: Final = 0.1
"""Share of a processor from which on the process computes. One that waits takes a hundredth."""

FOREVER: Final = 10
"""Times the limit after which a step that computes without end is stalled as well."""


class Progress:
    """Follows what one process does. Threads may share it.

    Arguments:
        clock: Seconds, for tests.
        computed: Seconds of processor time of the process.

    Example:
        >>> now, busy = [0.0], [0.0]
        >>> progress = Progress(lambda: now[0], lambda: busy[0])
        >>> now[0] = 30.0
        >>> progress.measure()["stalled_s"]
        30.0
        >>> now[0], busy[0] = 50.0, 20.0
        >>> progress.measure()["stalled_s"], progress.measure()["step_s"]
        (30.0, 50.0)
        >>> progress.went_on()
        >>> progress.measure()
        {'stalled_s': 0.0, 'step_s': 0.0}
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        computed: Callable[[], float] = time.process_time,
    ) -> None:
        self._clock, self._computed = clock, computed
        self._went_on_at = self._measured_at = clock()
        self._computed_then = computed()
        self._stalled_s = 0.0

    def went_on(self) -> None:
        """Something was done, or there is nothing to do."""
        self._went_on_at, self._stalled_s = self._clock(), 0.0

    def measure(self) -> dict[str, float]:
        """Seconds since it went on: those without computing, and all."""
        now, computed = self._clock(), self._computed()
        since = max(self._measured_at, self._went_on_at)
        if computed - self._computed_then < COMPUTES * (now - self._measured_at):
            self._stalled_s += max(0.0, now - since)
        self._measured_at, self._computed_then = now, computed
        return {"stalled_s": self._stalled_s, "step_s": now - self._went_on_at}


def stall_of(status: dict[str, object], limit_s: float) -> str | None:
    """Why a trainer with this status has stalled, in words; None where it has not.

    Arguments:
        status: As it reports.
        limit_s: Seconds without progress.

    Example:
        >>> stall_of({"stalled_s": 4.0, "step_s": 90.0, "last_entry_id": "1-0"}, 60.0)
        >>> stall_of({"stalled_s": 61.0, "step_s": 90.0, "last_entry_id": "1-0"}, 60.0)
        'The trainer has hung for 61 seconds after entry 1-0.'
    """
    stalled, step = status.get("stalled_s"), status.get("step_s")
    if status.get("state") == "stopped":
        return None
    if isinstance(stalled, float) and stalled > limit_s:
        return (
            f"The trainer has hung for {stalled:.0f} seconds after entry {status['last_entry_id']}."
        )
    if isinstance(step, float) and step > FOREVER * limit_s:
        return (
            f"The trainer has computed for {step:.0f} seconds after entry "
            f"{status['last_entry_id']} without an end."
        )
    return None

"""How long the trainer has neither gone on nor computed.

A heartbeat says that a process breathes, not that it works: its thread beats on while the thread
that learns hangs at a disk. So what counts is what was done: an entry applied, or a look at the
stream that found nothing more. A single step may take long (loops that are compiled, a boundary of
a large model), so time in which the process computes does not count as stalled, up to a limit for
one that computes for ever. Neither does time in which Redis is away: all wait for it then.

Checkpoints are written on a thread beside that one, which learns on while a disk hangs. So how long
a write has taken is told as well.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Final

COMPUTES: Final = 0.1
"""Share of a processor from which on the process computes. One that waits takes a hundredth."""

FOREVER: Final = 10
"""Times the limit after which a step that computes, or a write, has no end."""


class Activity:
    """Follows what one process does. Threads may share it.

    Arguments:
        clock: Seconds, for tests.
        computed: Seconds of processor time of the process.

    Example:
        >>> now, busy = [0.0], [0.0]
        >>> activity = Activity(lambda: now[0], lambda: busy[0])
        >>> now[0] = 30.0
        >>> activity.measure()["stalled_s"]
        30.0
        >>> now[0], busy[0] = 50.0, 20.0
        >>> activity.measure()["stalled_s"], activity.measure()["step_s"]
        (30.0, 50.0)
        >>> activity.went_on()
        >>> with activity.saving():
        ...     now[0] = 60.0
        ...     activity.went_on()
        ...     activity.measure()
        {'stalled_s': 0.0, 'step_s': 0.0, 'saving_s': 10.0}
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
        self._saving_since: float | None = None

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        """While a checkpoint is written, one at a time."""
        self._saving_since = self._clock()
        try:
            yield
        finally:
            self._saving_since = None

    def went_on(self) -> None:
        """Something was done, or there is nothing to do."""
        self._went_on_at, self._stalled_s = self._clock(), 0.0

    def measure(self) -> dict[str, float]:
        """Seconds since it went on, those without computing and all; and since a write began."""
        now, computed = self._clock(), self._computed()
        since = max(self._measured_at, self._went_on_at)
        if computed - self._computed_then < COMPUTES * (now - self._measured_at):
            self._stalled_s += max(0.0, now - since)
        self._measured_at, self._computed_then = now, computed
        saving_since = self._saving_since  # of another thread
        return {
            "stalled_s": self._stalled_s,
            "step_s": now - self._went_on_at,
            "saving_s": 0.0 if saving_since is None else now - saving_since,
        }


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
    stalled, step, saving = (status.get(name) for name in ("stalled_s", "step_s", "saving_s"))
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
    if isinstance(saving, float) and saving > FOREVER * limit_s:
        return f"The trainer has been writing a checkpoint for {saving:.0f} seconds."
    return None

"""What Linux lets processes say of their parents and children; elsewhere none of it is there.

See prctl(2) for each of the calls.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Callable, Collection
from typing import Any, Final

LINUX: Final = sys.platform.startswith("linux")

_SET_PARENT_DEATH_SIGNAL: Final = 1
_SET_CHILD_SUBREAPER: Final = 36


def _system() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def die_with_parent(number: signal.Signals) -> Callable[[], None] | None:
    """What a child must run first so that it gets a signal when its parent, which calls this, ends.

    None where the system has no such thing.
    """
    if not LINUX:
        return None
    system, parent = _system(), os.getpid()  # before the fork: loading takes locks

    def prepare() -> None:
        system.prctl(_SET_PARENT_DEATH_SIGNAL, int(number))
        if os.getppid() != parent:  # it ended before the line above
            os._exit(1)

    return prepare


def die_with(parent: int, number: signal.Signals) -> None:
    """Get a signal when the parent of this process ends; end at once where that is another one."""
    _system().prctl(_SET_PARENT_DEATH_SIGNAL, int(number))
    if os.getppid() != parent:
        os._exit(1)


def adopt_orphans() -> bool:
    """Let this process be the parent of descendants that lose theirs; whether that can be."""
    if not LINUX or _system().prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        return False
    # Whoever began this process may have had it ignored; then the ends of children are not kept.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    return True


def bury_orphans(own: Collection[int]) -> None:
    """Take note of the ends of children that were adopted, so that the system forgets them.

    Arguments:
        own: Children that somebody else waits for.
    """
    if not LINUX:
        return
    with contextlib.suppress(ChildProcessError):  # no children at all
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if ended.si_pid in own:
                return  # whoever hides behind it is found once that one is waited for
            os.waitpid(ended.si_pid, 0)


def rename(arguments: list[str]) -> None:
    """Let `ps` show other arguments for this process, as many letters as its own have room for."""
    if not LINUX:
        return
    with open("/proc/self/stat", encoding="utf-8") as file:
        numbers = file.read().rpartition(")")[2].split()
    start, end = int(numbers[45]), int(numbers[46])  # arg_start and arg_end of proc(5)
    if not start < end:  # not told
        return
    title = b"\0".join(os.fsencode(one) for one in arguments)[: max(0, end - start - 1)]
    ctypes.memmove(start, title.ljust(end - start, b"\0"), end - start)

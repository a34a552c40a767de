"""`python -m tests.chaos.inside MODULE`: a process of a service, with what a storm does inside it.

Variables say what:

- `CHAOS_AIM`: a folder. A file `aim` in it names an instant and a process. Whoever gets to that
  instant takes the file away and kills the process, which may be itself; or it hangs there, as at a
  disk that does not answer.
- `CHAOS_SABOTAGE`: a promise that this service breaks, by name (`tests.chaos.sabotage`). The
  oracle must notice.

The parts of the service know nothing of either: their methods are wrapped here.
"""

from __future__ import annotations

import importlib
import inspect
import os
import runpy
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

AIM: Final = "CHAOS_AIM"
SABOTAGE: Final = "CHAOS_SABOTAGE"
HERE: Final = "tests.chaos.inside"
HANGS: Final = "hangs"
LONG_S: Final = 1e6


class Instant(NamedTuple):
    """When a method of a part begins or ends."""

    part: str
    owner: str
    method: str
    when: Literal["before", "after"]


AT_START: Final = "a start has looked for its place"

INSTANTS: Final = {
    "a checkpoint is to be written": Instant(
        "service.trainer", "service.store.in_folder.FolderCheckpoints", "write", "before"
    ),
    "a checkpoint is written and has no name yet": Instant(
        "service.trainer", "pathlib.Path", "rename", "before"
    ),
    "a checkpoint has its name": Instant("service.trainer", "pathlib.Path", "rename", "after"),
    "a checkpoint was read back": Instant(
        "service.trainer", "service.store.in_folder.FolderCheckpoints", "write", "after"
    ),
    "old checkpoints are deleted": Instant(
        "service.trainer", "service.store.in_folder.FolderCheckpoints", "prune", "after"
    ),
    "events are told, their checkpoint is not asked for": Instant(
        "service.trainer", "service.trainer.saver.Saver", "save", "before"
    ),
    "entries are to be released": Instant(
        "service.trainer", "service.broker.feed.Feed", "release", "before"
    ),
    "entries are released": Instant(
        "service.trainer", "service.broker.feed.Feed", "release", "after"
    ),
    "a model is to be published": Instant(
        "service.trainer", "service.broker.snapshots.Publisher", "publish", "before"
    ),
    "a model is published": Instant(
        "service.trainer", "service.broker.snapshots.Publisher", "publish", "after"
    ),
    "an entry is learned": Instant(
        "service.trainer", "service.trainer.intake.Intake", "_dealt_with", "after"
    ),
    "reports are to be sent": Instant(
        "service.trainer", "service.broker.report_queue.ReportQueue", "flush", "before"
    ),
    "reports are sent": Instant(
        "service.trainer", "service.broker.report_queue.ReportQueue", "flush", "after"
    ),
    AT_START: Instant("service.trainer", "service.broker.feed.Feed", "open", "after"),
    "an entry is to be appended": Instant(
        "service.api", "service.broker.appender.Appender", "_appended", "before"
    ),
    "an entry is appended and not answered": Instant(
        "service.api", "service.broker.appender.Appender", "_appended", "after"
    ),
}
"""Where a death would hurt; each is a place in the code of a part."""


def main() -> None:
    """Wrap what is to be wrapped, then be the module that was asked for."""
    module = sys.argv[1]
    if module == "service.supervisor":
        _pass_on()
    _be(module)


def _be(module: str) -> None:
    sys.argv = [module]
    if (folder := os.environ.get(AIM)) is not None:
        from service.trainer import activity, attempts

        activity.FOREVER = 2  # type: ignore[misc]
        # Three kills at one entry look like an entry that kills, and here are no fault of its own.
        attempts.MOST_DEATHS = 1_000_000  # type: ignore[misc]
        for name, instant in INSTANTS.items():
            if instant.part == module:
                _wrap(name, instant, Path(folder) / "aim")
    if name := os.environ.get(SABOTAGE):
        from tests.chaos.sabotage import SABOTAGES

        SABOTAGES[name](module)
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _pass_on() -> None:
    """Let the parts of a supervisor begin here, too."""
    from service.supervisor import part
    from service.supervisor.part import Part

    # A storm kills more often than anything does by itself, and is not to wait for long pauses.
    part.LONGEST_PAUSE_S = 0.3  # type: ignore[misc]
    whole = Part.__init__

    def begun(self: Part, name: str, module: str, *given: Any) -> None:
        whole(self, name, module, *given)
        self._arguments = [HERE, module]

    Part.__init__ = begun  # type: ignore[method-assign]


def _wrap(name: str, instant: Instant, aim: Path) -> None:
    module, _, kind = instant.owner.rpartition(".")
    owner = getattr(importlib.import_module(module), kind)
    whole: Callable[..., Any] = getattr(owner, instant.method)
    here = _is_checkpoint if instant.owner == "pathlib.Path" else _anywhere

    def strike() -> None:
        try:
            aimed, _, pid = aim.read_text("utf-8").partition("\n")
            if aimed != name:
                return
            aim.unlink()
        except (OSError, ValueError):
            return
        if pid == HANGS:
            time.sleep(LONG_S)
        else:
            os.kill(int(pid) or os.getpid(), signal.SIGKILL)

    if inspect.iscoroutinefunction(whole):

        async def later(*given: Any, **named: Any) -> Any:
            if instant.when == "before":
                strike()
            result = await whole(*given, **named)
            if instant.when == "after":
                strike()
            return result

        setattr(owner, instant.method, later)
        return

    def now(*given: Any, **named: Any) -> Any:
        hot = here(*given)
        if hot and instant.when == "before":
            strike()
        result = whole(*given, **named)
        if hot and instant.when == "after":
            strike()
        return result

    setattr(owner, instant.method, now)


def _anywhere(*given: object) -> bool:
    return True


def _is_checkpoint(path: Path, *given: object) -> bool:
    return path.name.endswith(".safetensors.tmp") and path.parent.name == "checkpoints"


if __name__ == "__main__":
    main()

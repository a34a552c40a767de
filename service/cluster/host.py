"""A host: the process in which the trainer of one bucket lives. Ray starts it again when it dies.

Rules of this module:

1. The constructor does nothing that can fail: Ray gives up an actor whose constructor has failed.
2. All hosts of a bucket are alike. The one that has the lease leads, the others stand by.
   One whose node of Ray has died ends: else it would lead on, and nobody could ask or move it.
3. What cannot be helped by starting again is told; by everything else the process ends, and Ray
   starts it anew.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from service.trainer.host import Life

LOOK_S: Final = 1.0


class Host:
    """Leads the trainer of one bucket on a thread of its own.

    Arguments:
        environment: Variables of the settings, for this bucket. Its node's own do not count.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = dict(environment)
        self._life: Life | None = None
        self._stopping = False
        self._error: str | None = None
        threading.Thread(target=self._lead, name="gmr-host", daemon=True).start()
        node = (os.getppid(),)
        threading.Thread(target=_end_with, args=node, name="gmr-node", daemon=True).start()

    def status(self) -> dict[str, object]:
        """What it does: phase (starting, standing by, leading, refused, ended), error, place."""
        import ray

        life = self._life
        phase = "starting" if life is None else life.phase
        return {
            "phase": "refused" if self._error else phase,
            "error": self._error,
            "pid": os.getpid(),
            "node": ray.get_runtime_context().get_node_id(),
        }

    def stop(self) -> None:
        """Ask for an orderly end: learn what is in the stream, keep it, give up the lease."""
        self._stopping = True
        if self._life is not None:
            self._life.stop()

    def _lead(self) -> None:
        try:
            from core.errors import InvalidSettings
            from service.ending import MUST_CHANGE_SETTINGS
            from service.settings import PREFIX, Settings

            for name in [one for one in os.environ if one.upper().startswith(PREFIX)]:
                del os.environ[name]
            os.environ.update(self._environment)
            try:
                settings = Settings.load()
            except InvalidSettings as error:  # as where another release has begun this host
                self._error = str(error)
                return
            from service.trainer.host import Life

            self._life = life = Life(settings)
            if self._stopping:
                life.stop()
            status = life.lead()
        except BaseException as error:
            print(f"{type(error).__name__}: {error}", flush=True)
            os._exit(1)
        if status == MUST_CHANGE_SETTINGS:
            self._error = life.error
        elif status:
            os._exit(status)


def _end_with(parent: int) -> None:
    """End this process soon after its parent, which is a node of Ray.

    Ray looks after that, too, but takes one that nobody has waited for to be alive.
    """
    while os.getppid() == parent:
        time.sleep(LOOK_S)
    os._exit(1)

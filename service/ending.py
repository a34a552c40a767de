"""How a process of the service ends: with the status it means, whatever its threads do."""

from __future__ import annotations

import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Final, NoReturn

from core.errors import InvalidSettings

MUST_CHANGE_SETTINGS: Final = 2
"""Exit status of a process that starting again will not help."""


def end_at_once_when_asked() -> None:
    """Let SIGTERM and SIGINT end a process that is still starting, with status 0."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: os._exit(0))


def end_with(work: Callable[[], int]) -> NoReturn:
    """Do the work of a process, then end it.

    The status is what `work` returns; 2, and a line of text, where a setting is wrong; 1,
    and a traceback, after any other error.

    The interpreter is not taken down. It would stop daemon threads (`service.trainer.warm_up`)
    wherever they are, and one that is within a compiler's or torch's native code then
    aborts the whole process: an orderly end would look like a crash.
    """
    try:
        status = work()
    except InvalidSettings as error:
        print(error, file=sys.stderr)
        status = MUST_CHANGE_SETTINGS
    except SystemExit as asked:
        status = asked.code if isinstance(asked.code, int) else int(asked.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)

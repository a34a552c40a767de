"""An answer of Ray, waited for so long and no longer.

What asks Ray's head has no time limit that ends it, but for answers of hosts: it tries again and
again, outside of Python, so that not even Ctrl-C would end it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

from core.errors import GMRError

HEAD_S: Final = 30.0
"""Seconds to wait for a head. One that works takes a second, and some on a busy machine."""

T = TypeVar("T")


class RaySilent(GMRError):
    """Ray takes connections, and answers nothing; try again later."""


def answer(ask: Callable[[], T]) -> T:
    """What Ray answers.

    Arguments:
        ask: Asks it, on a thread of its own, which is left to itself where there is no answer.

    Raises:
        RaySilent: It does not answer in time.
    """
    told = Future[T]()

    def run() -> None:
        try:
            told.set_result(ask())
        except BaseException as error:
            told.set_exception(error)

    threading.Thread(target=run, name="gmr-ray", daemon=True).start()
    try:
        return told.result(HEAD_S)
    except TimeoutError:
        if told.done():
            raise
    raise RaySilent(
        f"Ray has not answered for {HEAD_S:.0f} s, though it takes connections; expected an answer "
        f"within seconds. Its head (gcs_server), or the node of this machine (raylet), is stopped "
        f"or overloaded: let it go on, or start it anew, then give the command again. Hosts that "
        f"run learn on meanwhile."
    )

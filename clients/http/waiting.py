"""Waiting for the service, as procedures without I/O.

Each is a generator that yields the next call to send, or the seconds to pause; the
clients send and pause, and hand back the answer or throw in the error.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from clients.http import calls
from clients.http.answers import ModelInfo, Readiness
from clients.http.calls import Call
from clients.http.errors import ServiceUnreachable, WaitTimeout

T = TypeVar("T")

Steps = Generator[Call[Any] | float, Any, T]


def until_learned(now: Callable[[], float], timeout: float, pause: float) -> Steps[ModelInfo]:
    """Ask GET /model until everything accepted is learned.

    Arguments:
        now: The clock, in seconds.
        timeout: Seconds to wait at most.
        pause: Seconds between two questions.

    Returns:
        The last answer.

    Raises:
        WaitTimeout: the backlog was not empty in time.
    """
    deadline = now() + timeout
    while True:
        info: ModelInfo = yield calls.model()
        # Samples set aside count as read, but the trainer has yet to learn them: it does so
        # by itself once the stream has been quiet for a moment.
        if info.backlog == 0 and info.set_aside == 0:
            return info
        if now() + pause > deadline:
            raise WaitTimeout(
                f"After {timeout:g} s {info.backlog} entries were still waiting to be learned and "
                f"{info.set_aside} samples set aside ({info.samples_seen} samples learned so far). "
                f"Wait longer, or see GET /health/ready whether the trainer is running.",
                backlog=info.backlog,
                samples_seen=info.samples_seen,
            )
        yield pause


def until_ready(now: Callable[[], float], timeout: float, pause: float) -> Steps[None]:
    """Ask GET /health/ready until it says yes; no answer at all counts as no.

    Raises:
        WaitTimeout: it did not in time.
    """
    deadline = now() + timeout
    while True:
        try:
            readiness: Readiness = yield calls.ready()
        except ServiceUnreachable as error:
            readiness = Readiness(False, str(error))
        if readiness.ready:
            return
        if now() + pause > deadline:
            raise WaitTimeout(
                f"After {timeout:g} s the service was still not ready: {readiness.reason} "
                f"Wait longer, or look at its log."
            )
        yield pause

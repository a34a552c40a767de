"""When a request is sent again, and after how long.

| what happened | sent again |
|---|---|
| no connection was made | always |
| a certificate that does not count, or none | never |
| 429, 503: the service says it did nothing | always |
| 503 with `perhaps_done`: the service does not know whether it did it | if the call is repeatable |
| the connection broke, or no answer came in time; 502, 504 | if the call is repeatable |
| anything else | never |

Pauses grow exponentially and are drawn at random, so that many clients do not
come back at once; `Retry-After` is the least that is waited.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    Retrying,
    retry_if_exception,
    stop_before_delay,
)

from clients.http.errors import ClientError, ServiceError, ServiceUnreachable

A = TypeVar("A")
T = TypeVar("T")

_DID_NOTHING = (429, 503)
_UNKNOWN = (502, 504)
_PERHAPS_DONE = "perhaps_done"
"""Member of a problem document; true where a request may have been carried out."""


class NotSent(ServiceUnreachable):
    """No connection was made, so the service cannot have seen the request."""


class NotTrusted(ServiceUnreachable):
    """What answers shows no certificate that counts; trying again helps nobody."""


@dataclass(frozen=True)
class RetryPolicy:
    """The patience of a client.

    Attributes:
        total_s: Seconds from the first try after which none is begun; 0 for one try.
        first_s: Upper end of the first random pause, in seconds.
        longest_s: Longest random pause, in seconds.
        notify: Is told the error and the seconds that will be waited, before each pause.
    """

    total_s: float = 30.0
    first_s: float = 0.1
    longest_s: float = 5.0
    notify: Callable[[ClientError, float], None] | None = field(default=None, compare=False)

    def run(self, once: Callable[[A], T], what: A, *, repeatable: bool) -> T:
        """Call `once(what)` until it succeeds, or raise its last error."""
        return Retrying(**self._options(repeatable))(once, what)

    async def run_async(
        self, once: Callable[[A], Coroutine[Any, Any, T]], what: A, *, repeatable: bool
    ) -> T:
        """As `run`, for a coroutine function."""
        result: T = await AsyncRetrying(**self._options(repeatable))(once, what)
        return result

    def pause(self, attempt: int, error: BaseException | None) -> float:
        """Seconds to wait after the `attempt`-th try (from 1) failed with `error`."""
        # Bounded exponent: a patient client may try for days.
        reach = min(self.longest_s, self.first_s * 2 ** min(attempt - 1, 30))
        least = getattr(error, "retry_after", None) or 0.0
        return least + random.uniform(0, reach)

    def _options(self, repeatable: bool) -> dict[str, Any]:
        return {
            "retry": retry_if_exception(lambda error: may_retry(error, repeatable)),
            "stop": stop_before_delay(self.total_s),
            "wait": self._wait,
            "before_sleep": self._before_sleep,
            "reraise": True,
        }

    def _wait(self, state: RetryCallState) -> float:
        error = None if state.outcome is None else state.outcome.exception()
        return self.pause(state.attempt_number, error)

    def _before_sleep(self, state: RetryCallState) -> None:
        error = None if state.outcome is None else state.outcome.exception()
        if self.notify is not None and isinstance(error, ClientError):
            self.notify(error, state.upcoming_sleep)


def may_retry(error: BaseException, repeatable: bool) -> bool:
    """The table above."""
    if isinstance(error, NotSent):
        return True
    if isinstance(error, NotTrusted):
        return False
    if isinstance(error, ServiceUnreachable):
        return repeatable
    if isinstance(error, ServiceError):
        if error.status in _UNKNOWN or error.context.get(_PERHAPS_DONE):
            return repeatable
        return error.status in _DID_NOTHING
    return False

"""Asking Redis from the API: again for a while, and then an error that says what is known.

Redis may restart under a live service, or hang. Every call is repeated for a while and then raises
`StreamUnavailable`; `redis_errors` counts each failure. Questions are given up sooner than what is
to be kept.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

from service.broker.connection import (
    AsyncClient,
    StreamUnavailable,
    is_refusal,
    is_transient,
    is_worth_repeating,
    not_told,
    turned_away,
    weakness_of,
)
from service.broker.durability import Durability, Examiner
from service.broker.keys import Keys
from service.broker.refusals import refusal_of

RETRY_S: Final = 3.0
"""Seconds for which a call is repeated before it is given up."""

ROWS_PER_S: Final = 5000
"""At which long lists come at least, also on a busy machine."""

READ_S: Final = 1.0
READ_TRIES: Final = 3
"""A question is asked so often and each time waited for so long: where Redis hangs, better a 503
soon than late. Several tries, because a busy process may itself have slept through one."""

FIRST_PAUSE_S: Final = 0.02
LONGEST_PAUSE_S: Final = 0.5


class Caller:
    """The API's connection to the keys of one model.

    Arguments:
        client: Connection that does not repeat commands by itself.
        model: Name of the model; of a named one SERVICE/NAME.
        examiner: Looks at each connection of the client.
    """

    def __init__(self, client: AsyncClient, model: str, examiner: Examiner | None = None) -> None:
        self.client = client
        self.keys = Keys(model)
        self.redis_errors = 0
        self.examiner = examiner or Examiner(model, "api")

    @property
    def durability(self) -> Durability | None:
        """What Redis promises of what it acknowledges; None before the first connection."""
        return self.examiner.found

    async def read(self, operation: Callable[[], Any], seconds: float | None = None) -> Any:
        """The answer to a question, which nobody waits long for.

        Arguments:
            operation: Changes nothing that matters.
            seconds: Longest wait, where it may be asked once only.
        """
        tries = READ_TRIES if seconds is None else 1
        while True:
            tries -= 1
            try:
                async with asyncio.timeout(READ_S if seconds is None else seconds):
                    return await self.call(operation, not_told)
            except TimeoutError as error:
                self.redis_errors += 1
                if not tries:
                    raise not_told(error) from error

    async def once(self, operation: Callable[[], Any]) -> Any:
        """The operation's result, tried once."""
        try:
            return await operation()
        except Exception as error:
            if not (is_transient(error) or is_refusal(error)):
                raise
            self.redis_errors += 1
            raise (turned_away if is_refusal(error) else not_told)(error) from error

    async def call(
        self, operation: Callable[[], Any], away: Callable[[Exception], StreamUnavailable]
    ) -> Any:
        """The operation's result, repeating it while Redis is away for a moment.

        Untyped, because redis-py types every answer as bytes, text or nothing, and
        which it is depends on the connection.

        Arguments:
            operation: Safe to repeat.
            away: Makes the error of the last failure.
        """
        deadline = time.monotonic() + RETRY_S
        pause = FIRST_PAUSE_S
        unsure = False  # whether an earlier try may have done it
        while True:
            try:
                result = await operation()
            except Exception as error:
                if not (is_transient(error) or is_refusal(error)):
                    raise
                self.redis_errors += 1
                known = refusal_of(error)
                if known is not None and known[0] == "NOPERM":
                    self.examiner.doubt_rights()
                    unsure = True  # a script may have begun
                elif known is None and weakness_of(error) is None:
                    unsure = True
                if not is_worth_repeating(error) or time.monotonic() + pause > deadline:
                    raise (away if unsure else turned_away)(error) from error
                await asyncio.sleep(pause)
                pause = min(2 * pause, LONGEST_PAUSE_S)
            else:
                _heed_cancellation()
                return result


def _heed_cancellation() -> None:
    """Raise where a cancellation got lost.

    The client waits by `asyncio.wait_for`, which up to Python 3.11 swallows a
    cancellation that comes in the same turn as the result. Whoever cancelled an
    endless loop of reads would wait for ever.
    """
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError

"""Brings events from the outbox to the receiver: a thread beside the trainer.

Rules of this module:

1. Learning never waits for it, and it never fails learning: it has a thread of its own, and
   shares with the trainer nothing but connections to Redis and a counter.
2. One sender per model: it lives and ends with the trainer, and taking a message out of the
   outbox goes through the fence, which only the trainer that began last passes.
3. A message leaves the outbox when the receiver has it, and the next one waits until then. So
   each arrives once at least, in order; ids tell the receiver which it knows already.
4. While the receiver is away it is tried again for as long as that lasts, ever more rarely. A
   message that it refuses while it is well is given up after a few attempts: it must not hold
   up all that follow.
"""

from __future__ import annotations

import logging
import threading
from types import TracebackType
from typing import Final, Self

import orjson
from prometheus_client import Counter
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_result,
    sleep_using_event,
    stop_when_event_set,
    wait_random_exponential,
)

from service.broker.connection import SyncClient, is_transient, read_stream
from service.broker.feature_names import names_of, tells_features, with_names
from service.broker.fenced import WRITE
from service.broker.keys import Keys
from service.broker.lease import Lease
from service.webhook.envelope import cloud_event
from service.webhook.receiver import Answer, Outcome, Receiver

logger = logging.getLogger(__name__)

BLOCK_MS: Final = 250
COUNT: Final = 16
FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 300.0
MOST_REFUSALS: Final = 8
"""Attempts over about a minute."""

PAUSE_S: Final = 1.0
"""Between two attempts to reach Redis, or after a fault of our own."""

JOIN_S: Final = 2.0
"""Seconds to wait at the end for an attempt under way; its message is sent again otherwise."""


class WebhookSender:
    """Works between `__enter__` and `__exit__`.

    Arguments:
        client: Connection that threads may share.
        keys: Of the model.
        lease: Of the trainer that it belongs to.
        receiver: Closed at the end.
        deliveries: Counts attempts by outcome.
        first_pause_s: Longest pause before the first repetition, in seconds; it doubles.
    """

    def __init__(
        self,
        client: SyncClient,
        keys: Keys,
        lease: Lease,
        receiver: Receiver,
        deliveries: Counter,
        *,
        first_pause_s: float = FIRST_PAUSE_S,
    ) -> None:
        self._client = client
        self._keys = keys
        self._lease = lease
        self._receiver = receiver
        self._deliveries = deliveries
        # From the first, so that their increase is known when the receiver comes back.
        for outcome in Outcome:
            deliveries.labels(outcome.value)
        self._write = client.register_script(WRITE)
        self._end = threading.Event()
        self._is_behind = True
        self._thread = threading.Thread(target=self._run, name="gmr-webhook", daemon=True)
        self._backoff = wait_random_exponential(multiplier=first_pause_s, max=LONGEST_PAUSE_S)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end.set()
        self._thread.join(JOIN_S)

    @property
    def is_behind(self) -> bool:
        """Whether the outbox held something when it was read last."""
        return self._is_behind

    def _run(self) -> None:
        after = "0-0"
        while not self._end.is_set():
            try:
                for id, data in self._waiting(after):
                    if not self._bring(id, data) or not self._take_out(id):
                        break
                    after = id
            except Exception as error:
                # Whatever it was, the outbox still holds what was not brought.
                if is_transient(error):
                    logger.debug("webhook waits for Redis: %s", error)
                else:
                    logger.exception("webhook: unexpected fault, going on in a moment")
                self._end.wait(PAUSE_S)
        self._receiver.close()

    def _waiting(self, after: str) -> list[tuple[str, bytes]]:
        """The next messages, waiting a moment for one."""
        rows = read_stream(self._client, self._keys.outbox, after, BLOCK_MS, COUNT)
        self._is_behind = bool(rows)
        return [(id.decode(), fields[b"data"]) for _, batch in rows for id, fields in batch]

    def _bring(self, id: str, data: bytes) -> bool:
        """Tell the receiver until it is done with this message; False when asked to end first."""
        try:
            record = orjson.loads(data)
            names = self._names() if tells_features(record) else None
            body = cloud_event(self._keys.model, id, with_names(record, names))
        except Exception as error:
            if is_transient(error):
                raise  # no fault of the message
            # It would fail for ever, and hold up all that follow.
            logger.exception("webhook: event %s cannot be told, and is left out", id)
            return True
        answer: Answer = Retrying(
            retry=retry_if_result(lambda answer: answer.outcome is not Outcome.DELIVERED),
            stop=lambda state: stop_when_event_set(self._end)(state) or _given_up(state),
            wait=self._pause,
            sleep=sleep_using_event(self._end),
            before_sleep=lambda state: self._complain(id, state),
            retry_error_callback=lambda state: _answer(state),
        )(self._attempt, id, body)
        if answer.outcome is Outcome.REFUSED and not self._end.is_set():
            logger.error("webhook: event %s is given up, refused with %s", id, answer.reason)
            return True
        return answer.outcome is Outcome.DELIVERED

    def _names(self) -> tuple[str, ...] | None:
        """What the features are called; None without names."""
        text, n_features = map(self._client.get, (self._keys.feature_names, self._keys.features))
        return None if text is None or n_features is None else names_of(text, int(n_features))

    def _attempt(self, id: str, body: bytes) -> Answer:
        answer = self._receiver.tell(id, body)
        self._deliveries.labels(answer.outcome.value).inc()
        if answer.outcome is Outcome.DELIVERED:
            logger.info("webhook: event %s delivered", id)
        return answer

    def _pause(self, state: RetryCallState) -> float:
        """Seconds until the next attempt: ever longer, and what the receiver asks for at least."""
        asked = min(_answer(state).retry_after_s, LONGEST_PAUSE_S)
        return max(asked, self._backoff(state))

    def _complain(self, id: str, state: RetryCallState) -> None:
        logger.warning(
            "webhook: event %s was not taken (%s); attempt %d in %.1f s",
            id,
            _answer(state).reason,
            state.attempt_number + 1,
            state.upcoming_sleep,
        )

    def _take_out(self, id: str) -> bool:
        """Remove a message from the outbox; False when another trainer has begun."""
        keys = [self._keys.fence, self._keys.outbox]
        try:
            self._write(keys=keys, args=[self._lease.token, 3, "XDEL", self._keys.outbox, id])
        except Exception as error:
            if "LEASELOST" not in str(error):
                raise
            logger.warning("webhook: another trainer works on this model now")
            self._end.set()
            return False
        return True


def _answer(state: RetryCallState) -> Answer:
    assert state.outcome is not None
    answer: Answer = state.outcome.result()
    return answer


def _given_up(state: RetryCallState) -> bool:
    """Whether the receiver has said often enough that it does not want this message."""
    return state.attempt_number >= MOST_REFUSALS and _answer(state).outcome is Outcome.REFUSED

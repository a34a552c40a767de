"""State of one subscription to GET /events: where to resume, and when to give up.

No I/O: the clients open the connection and hand in what comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import orjson

from clients.http.answers import ServiceEvent
from clients.http.errors import ClientError, InputError, UnexpectedAnswer
from clients.http.replies import Reply, service_error
from clients.http.retry import RetryPolicy, may_retry


class Record(Protocol):
    """A server-sent event, as parsers of the format hand it out."""

    @property
    def event(self) -> str: ...
    @property
    def data(self) -> str: ...
    @property
    def id(self) -> str: ...


class Feed:
    """Follows the events of a service across connections.

    Arguments:
        policy: How long the service may be away.
        last_event_id: Begin after this event; None begins with the next one.
        kinds: Ask for these only; `missed` comes all the same.
    """

    def __init__(
        self, policy: RetryPolicy, last_event_id: str | None, kinds: Sequence[str] | None
    ) -> None:
        self.last_event_id = last_event_id
        self._policy = policy
        self.query = None if kinds is None else {"kinds": ",".join(kinds)}
        self._failures = 0
        self._away_since: float | None = None

    def headers(self) -> dict[str, str]:
        """The headers of the next connection."""
        headers = {"accept": "text/event-stream", "cache-control": "no-store"}
        if self.last_event_id:
            headers["last-event-id"] = self.last_event_id
        return headers

    def opened(self, reply: Reply) -> None:
        """The service answered; raises the `ServiceError` that it answered with, if any."""
        if reply.status >= 400:
            raise service_error(reply)
        kind = reply.headers.get("content-type", "").partition(";")[0].strip()
        if kind != "text/event-stream":
            raise UnexpectedAnswer(
                f"GET /events answered with {kind or 'no media type'!r}; expected "
                f"text/event-stream. Check that the address is that of the service."
            )
        self._away_since = None

    def received(self, record: Record) -> ServiceEvent | None:
        """The event that a record holds; None for one that only carries an id or a pause."""
        if record.id:
            self.last_event_id = record.id
        if not record.data:
            return None
        # Not when a connection opens: one that is closed at once must not be hammered.
        self._failures = 0
        try:
            data = orjson.loads(record.data)
        except orjson.JSONDecodeError as error:
            raise UnexpectedAnswer(
                f"The event {record.id!r} holds no JSON ({error}). Use client and service of one "
                f"version."
            ) from None
        return ServiceEvent(record.id, record.event, data)

    def interrupted(self, error: ClientError | None, now: float) -> float:
        """The connection ended, with an error or without.

        Arguments:
            error: What went wrong; None when the service ended it.
            now: A clock, in seconds.

        Returns:
            Seconds to wait before connecting again.

        Raises:
            ClientError: `error`, once the service has been away for too long.
        """
        self._failures += 1
        if self._away_since is None:
            self._away_since = now
        pause = self._policy.pause(self._failures, error)
        # Following repeats nothing, so whatever may be retried at all is.
        if error is not None and (
            not may_retry(error, repeatable=True)
            or now + pause - self._away_since > self._policy.total_s
        ):
            raise error
        return pause


def position(event_id: str) -> tuple[int, int]:
    """The place of an event among all, to be compared.

    Raises:
        InputError: it is no id of an event.

    Example:
        >>> position("1700000000000-20003") > position("0")
        True
    """
    first, _, second = event_id.partition("-")
    try:
        return int(first), int(second or 0)
    except ValueError:
        raise InputError(
            f"{event_id!r} is no id of an event. Expected one like 1700000000000-20003, or 0 for "
            f"all that are kept. Give back what an event had as id."
        ) from None

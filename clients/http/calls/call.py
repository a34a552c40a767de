"""One call: a request, how its reply is read, and whether it may be sent again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import orjson

from clients.http import answers, replies
from clients.http.errors import UnexpectedAnswer
from clients.http.replies import Reply
from service.wire import MEDIA_TYPE

T = TypeVar("T")

JSON = "application/json"
BINARY_PREFERRED = f"{MEDIA_TYPE}, {JSON};q=0.9"


@dataclass(frozen=True)
class Call(Generic[T]):
    """One request, and how its reply is read.

    Attributes:
        method: HTTP method.
        path: Below the service's address.
        read: Reply -> answer, for statuses below 400 and those in `expected`.
        query: Parameters, in order.
        headers: Beside those of every request.
        body: Bytes to send.
        repeatable: Sending it twice does what sending it once does.
        patient: Try again at all; False for a question about this very moment.
        expected: Statuses from 400 on that are answers, not errors.
    """

    method: str
    path: str
    read: Callable[[Reply], T]
    query: tuple[tuple[str, str], ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    repeatable: bool = True
    patient: bool = True
    expected: frozenset[int] = frozenset()

    def answer(self, reply: Reply) -> T:
        """What the reply means.

        Raises:
            ServiceError: the service refused or failed.
            UnexpectedAnswer: the reply is not what the contract says.
        """
        if reply.status >= 400 and reply.status not in self.expected:
            raise replies.service_error(reply)
        if reply.status >= 300 and reply.status not in self.expected:
            raise UnexpectedAnswer(
                f"The service answered {self.method} {self.path} with HTTP {reply.status} and "
                f"points to {reply.headers.get('location', 'nowhere')!r}; expected the answer "
                f"itself. Use that address."
            )
        try:
            return self.read(reply)
        except (LookupError, TypeError, ValueError) as error:
            raise UnexpectedAnswer(
                f"The answer to {self.method} {self.path} cannot be read "
                f"({type(error).__name__}: {error}). Use client and service of one version."
            ) from error


def get(path: str, read: Callable[[Any], T], query: tuple[tuple[str, str], ...] = ()) -> Call[T]:
    return Call(
        "GET", path, lambda reply: read(replies.json(reply)), query=query, headers={"accept": JSON}
    )


def put(path: str, body: dict[str, object]) -> Call[answers.Restored]:
    return Call(
        "PUT",
        path,
        lambda reply: answers.build(answers.Restored, replies.json(reply)),
        headers={"content-type": JSON, "accept": JSON},
        body=orjson.dumps(body),
    )

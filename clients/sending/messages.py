"""Messages of a broker -> batches: those that wait together go as one.

A message is JSON like the body of POST /ingest. Topics of sensors bring one sample a message, and a
batch of one costs nearly as much as one of a hundred. So messages that fit together are sent as one
batch, in their order. Whatever is wrong with one of them must not hold up the others: where a batch
is refused, its messages go one by one.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from clients.http.client import GMRClient
from clients.http.errors import RequestConflict, RequestRefused
from core.errors import InvalidBatch
from service.wire import refuse_unknown

FIELDS = frozenset({"features", "labels", "sample_ids", "batch_id"})
"""Fields of a message, those of the body of POST /ingest."""

REFUSED = (413, 422)
"""Statuses by which a batch is refused for what it holds."""

USED = "/batch-conflict"
"""End of the type of the error by which a name was used for something else before."""


class Message(NamedTuple):
    """A message as it came.

    Attributes:
        value: JSON: an object with `features`, and where there are any `labels`, `sample_ids` and
            `batch_id`.
        place: Where it came from, to say which was left out.
        batch_id: Its name as a batch, where the broker gives it one that lasts.
    """

    value: bytes
    place: str
    batch_id: str | None = None


@dataclass(frozen=True)
class _Batch:
    """What is sent at once: a message, or several that follow each other."""

    messages: tuple[Message, ...]
    features: list[Any]
    labels: list[Any] | None
    sample_ids: list[Any] | None
    batch_id: str | None
    kind: object  # None: it goes alone, under a name that its sender gave

    @classmethod
    def of(cls, message: Message) -> _Batch:
        """One message.

        Raises:
            InvalidBatch: It has a field that means nothing, or one twice.
            ValueError, TypeError, RecursionError: It is none that could be sent.
        """
        try:
            body = json.loads(message.value, object_pairs_hook=_once)
        except ValueError as error:
            raise ValueError(f"It is no JSON: {error}") from error
        if not isinstance(body, dict):
            raise TypeError(f"It is a JSON {type(body).__name__}; expected an object")
        # As the service does: misspelt labels would be learned as none.
        refuse_unknown("field", body, FIELDS, "message")
        if "features" not in body:
            raise ValueError("It has no `features`; expected rows of numbers")
        features, labels, ids = body["features"], body.get("labels"), body.get("sample_ids")
        own = body.get("batch_id", message.batch_id)
        shape = np.shape(features)
        if not isinstance(features, list) or len(shape) < 2:
            raise ValueError(f"`features` has shape {shape}; expected rows of numbers")
        for named in (labels, ids):
            if named is not None and (not isinstance(named, list) or len(named) != len(features)):
                raise ValueError(f"`labels` or `sample_ids` is no list of {len(features)} values")
        # A name that the sender gave is one of this message alone.
        kind = None if "batch_id" in body else (shape[1:], message.batch_id is None)
        return cls((message,), features, labels, ids, own, kind)

    def __len__(self) -> int:
        return len(self.features)

    def __add__(self, other: _Batch) -> _Batch:
        """This one and the next as one; its name is that of the first message and of the last."""
        first, last = self.messages[0].batch_id, other.messages[-1].batch_id
        return _Batch(
            self.messages + other.messages,
            self.features + other.features,
            _together(self.labels, len(self), other.labels, len(other)),
            _together(self.sample_ids, len(self), other.sample_ids, len(other)),
            None if first is None or last is None else f"{first}..{last.rpartition('-')[2]}",
            self.kind,
        )

    def send(self, client: GMRClient) -> None:
        client.ingest(
            self.features, self.labels, sample_ids=self.sample_ids, batch_id=self.batch_id
        )


def hand_on(
    messages: Sequence[Message],
    client: GMRClient,
    left_out: Callable[[str, Exception], None] | None = None,
) -> None:
    """Hand on messages in their order; on return the service holds each, or never will.

    The same messages are parted into the same batches of the same names, so that the service learns
    once what is handed on twice: where they have names, and come together again.

    Arguments:
        messages: As they came, of one order.
        client: Of the model that learns them.
        left_out: Told of each message that can never be learned: its place, and why. Without it, a
            line on standard error says so.

    Raises:
        ClientError: Nothing is wrong with the messages: the service is away, the key does not
            count, there is no such model. Some may have been handed on.
    """
    left_out = _say if left_out is None else left_out
    for batch in _batches(messages, left_out):
        try:
            batch.send(client)
        except (TypeError, ValueError, InvalidBatch, RequestRefused) as error:
            if isinstance(error, RequestRefused) and error.status not in REFUSED:
                raise
            if len(batch.messages) == 1:
                left_out(batch.messages[0].place, error)
            else:
                for message in batch.messages:
                    hand_on([message], client, left_out)
        except RequestConflict as error:
            # A name of the broker's is no fault of the message: such as those of a topic that was
            # deleted and made again.
            if batch.kind is not None or not error.type.endswith(USED):
                raise
            left_out(batch.messages[0].place, error)


def _batches(
    messages: Sequence[Message], left_out: Callable[[str, Exception], None]
) -> Iterator[_Batch]:
    """Messages in as few batches as keep their order."""
    held: _Batch | None = None
    for message in messages:
        try:
            one = _Batch.of(message)
        except (InvalidBatch, TypeError, ValueError, RecursionError) as error:
            left_out(message.place, error)
            continue
        if held is not None and held.kind is not None and held.kind == one.kind:
            held = held + one
        else:
            if held is not None:
                yield held
            held = one
    if held is not None:
        yield held


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, each field of which came once: of two only one would be learned."""
    fields: dict[str, Any] = {}
    for name, value in pairs:
        if name in fields:
            raise InvalidBatch(
                f"The message has the field `{name[:40]}` twice; expected it once. Leave one out."
            )
        fields[name] = value
    return fields


def _together(
    one: list[Any] | None, n_one: int, other: list[Any] | None, n_other: int
) -> list[Any] | None:
    """Labels or ids of both, None for a sample without one; None where neither has any."""
    if one is None and other is None:
        return None
    return [*(one or [None] * n_one), *(other or [None] * n_other)]


def _say(place: str, error: Exception) -> None:
    print(f"{place} is left out: {error}", file=sys.stderr)

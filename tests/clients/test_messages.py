"""Tests for clients.sending.messages: messages go together where they fit, and alone where not."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from clients.http.client import GMRClient
from clients.http.errors import RequestConflict, RequestRefused, ServiceBusy
from clients.sending.messages import Message, hand_on
from core.errors import InvalidBatch


class Service:
    """Takes batches; refuses those that hold a 13, as the client does before it sends."""

    def __init__(self, error: Exception | None = None) -> None:
        self.batches: list[dict[str, Any]] = []
        self.error = error or InvalidBatch("13 brings bad luck")

    def ingest(self, features: Any, labels: Any, **named: Any) -> None:
        if any(13 in row for row in features):
            raise self.error
        self.batches.append({"features": features, "labels": labels, **named})


def message(*rows: float, place: str | None = None, **more: Any) -> Message:
    value = json.dumps({"features": [[row, 0.5] for row in rows], **more}).encode()
    return Message(value, place or f"t-0-{int(rows[0])}", place or f"t-0-{int(rows[0])}")


def handed(*messages: Message, service: Service | None = None) -> tuple[Service, list[str]]:
    service, out = service or Service(), list[str]()
    hand_on(messages, cast(GMRClient, service), lambda place, _: out.append(place))
    return service, out


def test_messages_of_one_kind_are_one_batch_with_the_labels_and_ids_that_they_have() -> None:
    service, out = handed(
        message(1, 2), message(3, labels=["a"]), message(4, sample_ids=["x"]), message(5)
    )
    assert out == []
    assert service.batches == [
        {
            "features": [[1, 0.5], [2, 0.5], [3, 0.5], [4, 0.5], [5, 0.5]],
            "labels": [None, None, "a", None, None],
            "sample_ids": [None, None, None, "x", None],
            "batch_id": "t-0-1..5",
        }
    ]


def test_what_has_no_labels_and_no_names_is_sent_without() -> None:
    made = [Message(message(row).value, "somewhere") for row in (1, 2)]
    service, _ = handed(*made)
    [batch] = service.batches
    assert (batch["labels"], batch["sample_ids"], batch["batch_id"]) == (None, None, None)


def test_order_is_kept_where_kinds_differ_and_a_name_of_the_senders_own_goes_alone() -> None:
    wide = Message(b'{"features": [[1, 2, 3]]}', "t-0-3", "t-0-3")
    service, _ = handed(message(1), message(2), wide, message(4, batch_id="mine"), message(5))
    ids = [batch["batch_id"] for batch in service.batches]
    assert ids == ["t-0-1..2", "t-0-3", "mine", "t-0-5"]


@pytest.mark.parametrize("status", [413, 422, None])
def test_one_bad_message_is_left_out_and_holds_up_no_other(status: int | None) -> None:
    error = None if status is None else RequestRefused(status=status, title="too bad")
    service, out = handed(message(1), message(13), message(3), service=Service(error))
    assert out == ["t-0-13"]
    assert [batch["batch_id"] for batch in service.batches] == ["t-0-1", "t-0-3"]


def test_what_is_no_fault_of_the_messages_is_raised() -> None:
    for error in (
        RequestRefused(status=404, title="no such model"),
        ServiceBusy(status=429, title="full"),
    ):
        with pytest.raises(type(error)):
            handed(message(1), message(13), service=Service(error))


@pytest.mark.parametrize(
    "value",
    [
        b"no JSON",
        b"\xff",
        b"[]",
        b"3",
        b"{}",
        b'{"features": [1, 2]}',
        b'{"features": [[1, 2], [3]]}',
        b'{"features": {"a": 1}}',
        b'{"features": "ab", "labels": "ab"}',
        b'{"features": [[1], [2]], "labels": "ab"}',
        b'{"features": [[1], [2]], "labels": ["a"]}',
        b'{"features": [[1], [2]], "sample_ids": {"a": 1, "b": 2}}',
        b'{"features": null}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_batch_is_left_out(value: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    bad = Message(value, "t-0-2", "t-0-2")
    service, out = handed(message(1), bad, message(3))
    assert out == ["t-0-2"]
    assert [batch["batch_id"] for batch in service.batches] == ["t-0-1..3"]
    hand_on([bad], cast(GMRClient, service))
    assert capsys.readouterr().err.startswith("t-0-2 is left out: ")


@pytest.mark.parametrize(
    ("field", "advice"),
    [
        ("label", "Did you mean `labels`?"),
        ("Labels", "Did you mean `labels`?"),
        ("ids", "Leave it out."),
        ("samples_id", "Did you mean `sample_ids`?"),
    ],
)
def test_a_message_with_a_misspelt_field_is_left_out_and_not_learned_without_it(
    field: str, advice: str, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = message(2, **{field: ["a"]})
    service, out = handed(message(1), bad, message(3))
    assert out == ["t-0-2"]
    assert [batch["batch_id"] for batch in service.batches] == ["t-0-1..3"]
    hand_on([bad], cast(GMRClient, service))
    said = capsys.readouterr().err
    assert f"has a field {field!r}" in said
    assert advice in said


@pytest.mark.parametrize("field", ["labels", "features", "sample_ids", "batch_id"])
def test_a_message_with_a_field_twice_is_left_out_and_learned_by_neither(
    field: str, capsys: pytest.CaptureFixture[str]
) -> None:
    body = message(2, labels=["a"], sample_ids=["x"], batch_id="mine").value
    again = f', "{field}": {json.dumps(json.loads(body)[field])}}}'
    bad = Message(body[:-1] + again.encode(), "t-0-2", "t-0-2")
    service, out = handed(message(1), bad, message(3))
    assert out == ["t-0-2"]
    assert [batch["batch_id"] for batch in service.batches] == ["t-0-1..3"]
    hand_on([bad], cast(GMRClient, service))
    assert f"The message has the field `{field}` twice" in capsys.readouterr().err


def conflict(kind: str) -> RequestConflict:
    return RequestConflict(status=409, title="", detail="", type=f"/problems/{kind}")


def test_a_message_whose_own_name_was_used_for_another_is_left_out_and_holds_up_nobody() -> None:
    service = Service(conflict("batch-conflict"))
    _, out = handed(message(1), message(13, batch_id="x"), message(3), service=service)
    assert out == ["t-0-13"]
    assert [batch["batch_id"] for batch in service.batches] == ["t-0-1", "t-0-3"]


@pytest.mark.parametrize(
    ("bad", "kind"),
    [
        # A topic that was made anew has the names of the one before: nothing may be passed by.
        (message(13), "batch-conflict"),
        (message(13, batch_id="x"), "model-leaving"),
    ],
)
def test_a_conflict_that_is_no_fault_of_the_message_is_raised(bad: Message, kind: str) -> None:
    with pytest.raises(RequestConflict):
        handed(bad, service=Service(conflict(kind)))


@pytest.mark.parametrize(
    ("value", "said"),
    [(b"{}", "It has no `features`"), (b"", "It is no JSON"), (b"\xff", "It is no JSON")],
)
def test_what_is_wrong_with_a_message_is_said_in_words(
    value: bytes, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    hand_on([Message(value, "t-0-2")], cast(GMRClient, Service()))
    assert capsys.readouterr().err.startswith(f"t-0-2 is left out: {said}")

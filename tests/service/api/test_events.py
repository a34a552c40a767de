"""Tests for GET /events: server-sent events, live, resumable, for several at once."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from core.events import KINDS as EVENT_KINDS
from service.api.parts import position
from service.settings import Settings
from service.wire import RawBatch
from tests.service.api.stack import (
    labels,
    learned,
    make_settings,
    problem,
    samples,
    send,
    serving,
    teach,
    training,
    wait_until,
)
from tests.service.running import LONGEST_S


class Listener:
    """Reads one answer of GET /events, event by event."""

    def __init__(self, response: httpx2.Response) -> None:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        self.response = response
        self.lines = response.iter_lines()
        first = self.block()
        assert first == {"retry": "2000", "id": first["id"]}
        self.start = first["id"]

    def block(self) -> dict[str, str]:
        """The next block of lines, comments under the name ''."""
        fields: dict[str, str] = {}
        for line in self.lines:
            if not line:
                return fields
            name, _, value = line.partition(":")
            fields[name] = value.strip()
        raise EOFError

    def event(self) -> tuple[str, str, dict[str, Any]]:
        """Id, kind and content of the next event."""
        while "data" not in (fields := self.block()):
            pass
        return fields.get("id", ""), fields["event"], json.loads(fields["data"])

    def events(self, until: str) -> list[tuple[str, str, dict[str, Any]]]:
        """Events up to the first of the kind `until`."""
        found = [self.event()]
        while found[-1][1] != until:
            found.append(self.event())
        return found


@contextlib.contextmanager
def listening(client: httpx2.Client, query: str = "", **headers: str) -> Iterator[Listener]:
    with client.stream(
        "GET", f"/events{query}", headers={k.replace("_", "-"): v for k, v in headers.items()}
    ) as response:
        yield Listener(response)


@pytest.fixture
def live(settings: Callable[..., Settings]) -> Iterator[httpx2.Client]:
    made = settings()
    with training(made), serving(made) as client:
        yield client


def test_events_come_as_they_happen(live: httpx2.Client) -> None:
    with listening(live) as listener:
        send(live, RawBatch.of(samples(20), labels(20)))
        events = listener.events(until="model_published")
    assert [kind for _, kind, _ in events] == [
        "class_discovered",
        "class_discovered",
        "batch_learned",
        "model_published",
    ]
    for _, kind, data in events:
        assert data["kind"] == kind
        assert data["entry_id"]
        assert data["time"] > 1e9
    assert events[2][2]["samples"] == 20


def test_a_new_listener_hears_nothing_of_the_past(live: httpx2.Client) -> None:
    teach(live, batches=2)
    with listening(live) as listener:
        send(live, RawBatch.of(samples(5), labels(5), "now"))
        _, kind, data = listener.event()
        # The last publication may still be on its way; no batch of the past is.
        while kind != "batch_learned":
            _, kind, data = listener.event()
        assert data["samples"] == 5


def test_a_listener_goes_on_where_it_was(live: httpx2.Client) -> None:
    teach(live, batches=3)
    with listening(live, Last_Event_ID="0") as listener:
        everything = listener.events(until="model_published")
    middle = everything[2][0]
    with listening(live, Last_Event_ID=middle) as listener:
        assert listener.event() == everything[3]
    with listening(live, f"?after={middle}") as listener:
        assert listener.event() == everything[3]
    ids = [tuple(map(int, id.split("-"))) for id, _, _ in everything]
    assert ids == sorted(set(ids))


def test_a_listener_that_heard_nothing_yet_goes_on_where_it_began(live: httpx2.Client) -> None:
    teach(live, batches=2)
    with listening(live) as listener:
        start = listener.start
    send(live, RawBatch.of(samples(5), labels(5), "while away"))
    with listening(live, Last_Event_ID=start) as listener:
        assert listener.start == start
        id, kind, data = listener.event()
        # The last publication may have been on its way; no batch of the past was.
        while kind != "batch_learned":
            id, kind, data = listener.event()
        assert data["samples"] == 5
        assert position(id) > position(start)


def test_a_listener_before_the_first_event_begins_before_it(blank: httpx2.Client) -> None:
    with listening(blank) as listener:
        assert listener.start == "0-0"


def test_only_wanted_kinds_are_sent(live: httpx2.Client) -> None:
    teach(live, batches=3)
    with listening(live, "?kinds=class_discovered,boundary", Last_Event_ID="0") as listener:
        assert [listener.event()[1] for _ in range(2)] == ["class_discovered"] * 2
        live.post("/drift/boundary").raise_for_status()
        assert listener.event()[1] == "boundary"


def test_several_listeners_hear_the_same(live: httpx2.Client) -> None:
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(4) as pool:
        listeners = [stack.enter_context(listening(live)) for _ in range(4)]
        assert "gmr_event_listeners 4.0" in live.get("/metrics").text
        send(live, RawBatch.of(samples(20), labels(20)))
        heard = list(pool.map(lambda one: one.events(until="model_published"), listeners))
    assert heard[0] == heard[1] == heard[2] == heard[3]


def test_a_listener_that_leaves_is_forgotten(live: httpx2.Client) -> None:
    with listening(live) as listener:
        assert not listener.response.is_closed
        assert "gmr_event_listeners 1.0" in live.get("/metrics").text
    wait_until(lambda: "gmr_event_listeners 0.0" in live.get("/metrics").text)


def test_events_that_were_dropped_are_not_passed_over_in_silence(
    redis_url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    settings = make_settings(redis_url, tmp_path_factory.mktemp("few"), events_length=1)
    with training(settings), serving(settings) as client:
        teach(client, batches=1)
        # Redis trims in whole nodes of about a hundred events.
        for i in range(120):
            send(client, RawBatch.of(samples(2, seed=i)))
        learned(client)
        with listening(client, Last_Event_ID="1-1") as listener:
            id, kind, data = listener.event()
            assert (id, kind, data["after"]) == ("", "missed", "1-1")
            assert listener.event()[0] == data["oldest"]


def test_silence_is_filled_with_comments(
    blank: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.api.routes.events.KEEP_ALIVE_S", 0.1)
    with listening(blank) as listener:
        assert [listener.block() for _ in range(2)] == [{"": "still here"}] * 2


@pytest.mark.parametrize("keep_alive_s", [0.05, 3.0])
def test_events_of_other_kinds_are_no_silence(
    live: httpx2.Client, monkeypatch: pytest.MonkeyPatch, keep_alive_s: float
) -> None:
    """Whether they come one after the other, or all of them before it is time for a comment."""
    monkeypatch.setattr("service.api.routes.events.KEEP_ALIVE_S", keep_alive_s)
    with listening(live, "?kinds=boundary") as listener:
        teach(live)
        blocks = (listener.block() for _ in range(int(LONGEST_S / keep_alive_s)))
        ids = (block["id"] for block in blocks if "id" in block)
        # Who comes back goes on after what was not asked for.
        assert any(position(id) > position(listener.start) for id in ids)


def test_the_end_of_the_service_ends_the_events(settings: Callable[..., Settings]) -> None:
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(1) as pool:
        with serving(settings()) as client:
            own = stack.enter_context(httpx2.Client(base_url=client.base_url, timeout=LONGEST_S))
            listener = stack.enter_context(listening(own))
            rest = pool.submit(lambda: list(listener.lines))
        # The server has stopped by now: an answer without end would have kept it.
        assert rest.result(timeout=5) == []


@pytest.mark.parametrize("last", ["yesterday", "-1", "1-2-3", "$", "(1-1", "9" * 16])
def test_an_id_that_is_none_is_refused(blank: httpx2.Client, last: str) -> None:
    problem(blank.get("/events", headers={"Last-Event-ID": last}), 422, "invalid-request")


def test_digits_that_redis_does_not_read_are_refused(blank: httpx2.Client) -> None:
    problem(blank.get("/events", params={"after": "\u0663-1"}), 422, "invalid-request")


@pytest.mark.parametrize(
    ("kinds", "unknown"),
    [("nonsense", ["nonsense"]), ("boundary,nope", ["nope"]), ("", []), (",", [])],
)
def test_a_kind_of_event_that_there_is_not_is_refused(
    blank: httpx2.Client, kinds: str, unknown: list[str]
) -> None:
    document = problem(blank.get("/events", params={"kinds": kinds}), 422, "invalid-request")
    assert document["unknown"] == unknown
    assert set(document["known"]) == {*EVENT_KINDS, "missed"}
    assert all(kind in document["detail"] for kind in EVENT_KINDS)


def test_a_misspelt_kind_of_event_is_answered_with_the_one_that_was_meant(
    blank: httpx2.Client,
) -> None:
    document = problem(blank.get("/events?kinds=boundery"), 422, "invalid-request")
    assert "Did you mean `boundary`?" in document["detail"]


def test_every_kind_of_event_may_be_asked_for(blank: httpx2.Client) -> None:
    for kind in (*EVENT_KINDS, "missed"):
        with listening(blank, f"?kinds={kind}") as listener:
            assert listener.start

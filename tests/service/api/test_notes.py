"""Tests for notes on boundaries: who says what, how much of it, and for how long."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import httpx2
import pytest
import redis

from service.broker import notes
from service.broker.stream import Stream
from service.settings import Settings
from tests.service.api.stack import learned, problem, serving, teach, training

MakeSettings = Callable[..., Settings]


def boundaries(client: httpx2.Client) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = client.get("/drift/boundaries").json()["boundaries"]
    return rows


def add(client: httpx2.Client, id: str, text: str, **more: str) -> httpx2.Response:
    return client.post(f"/drift/boundaries/{id}/notes", json={"text": text, **more})


def texts(row: dict[str, Any]) -> list[tuple[str, str | None]]:
    return [(note["text"], note["by"]) for note in row["notes"]]


def test_notes_travel_with_their_boundary_through_restarts_and_rollbacks(
    settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = settings(detector="none", checkpoint_interval_s=0.05)
    with serving(own) as client:
        with training(own):
            teach(client, batches=2)
            said = {"note": "The lens was cleaned.", "by": "ada"}
            client.post("/drift/boundary", json=said).raise_for_status()
            learned(client)
            teach(client, batches=1)
            client.post("/drift/boundary").raise_for_status()
            learned(client)
            first, second = boundaries(client)
            assert texts(first) == [("The lens was cleaned.", "ada")]
            assert first["severity"] is None
            assert second["notes"] == []
            # An unknown place, an empty text and a long one say nothing.
            problem(add(client, "1-1", "x"), 404, "unknown-boundary")
            problem(add(client, first["id"], ""), 422, "invalid-request")
            problem(add(client, first["id"], "x" * 2001), 422, "invalid-request")
            bad = client.post("/drift/boundary", json={"note": "x" * 2001})
            problem(bad, 422, "invalid-request")
        # There is no trainer, and none is needed.
        answer = add(client, first["id"], "It had been\ndirty.", by="bo")
        assert answer.status_code == 201
        assert answer.json()["time"] == pytest.approx(first["time"], abs=60)
        with training(own):
            [kept] = [
                one["version"]
                for one in client.get("/model/versions").json()["versions"]
                if one.get("before_boundary") == 1
            ]
            client.post("/model/rollback", json={"version": kept}).raise_for_status()
        first, second = boundaries(client)
        assert first["dropped"]
        both = [("The lens was cleaned.", "ada"), ("It had been\ndirty.", "bo")]
        assert texts(first) == both
        assert texts(client.get(f"/drift/boundaries/{first['id']}").json()) == both
        # Both kinds of growth end.
        monkeypatch.setattr(notes, "MOST_NOTES", 2)
        monkeypatch.setattr(notes, "MOST_NOTED", 1)
        assert add(client, first["id"], "again").status_code == 201
        limit = problem(add(client, first["id"], "and again"), 409, "too-many-notes")
        assert limit["limit"] == 2
        assert add(client, second["id"], "newer").status_code == 201
        first, second = boundaries(client)
        assert texts(first) == both[:1]  # what came with the boundary is part of it
        assert texts(second) == [("newer", None)]


@pytest.mark.anyio
async def test_a_note_whose_answer_was_lost_is_there_once(
    settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Stream.open(settings()) as stream:
        kept, execute, lost = notes.Notes(stream), stream.client.execute_command, [True]

        async def executed(*command: Any, **options: Any) -> Any:
            answer = await execute(*command, **options)
            if command[0] == "EVALSHA" and lost and lost.pop():
                raise redis.ConnectionError("Connection reset by peer")
            return answer

        monkeypatch.setattr(stream.client, "execute_command", executed)
        for text in ("one", "two"):
            await kept.add("1-1", text, None)
        assert not lost
        assert [note.text for note in await kept.of("1-1")] == ["one", "two"]


@pytest.mark.anyio
async def test_what_a_later_release_says_with_a_note_is_left_out(settings: MakeSettings) -> None:
    async with Stream.open(settings()) as stream:
        kept = notes.Notes(stream)
        note = await kept.add("1-1", "one", None)
        later = json.dumps({**asdict(note), "invented": 1})
        await stream.client.hset(stream.keys.notes, "1-1", later)
        assert await kept.all() == {"1-1": [note]}

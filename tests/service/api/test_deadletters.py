"""Tests for /deadletters, and for what is refused before it becomes a dead letter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import numpy as np
import pytest

from clients.http.async_client import AsyncGMRClient
from clients.http.client import GMRClient
from clients.http.errors import RequestConflict, RequestRefused
from service.broker.connection import connect
from service.broker.keys import Keys
from service.settings import Settings
from service.wire import NO_LIMITS, RawBatch, RawLabels, parse_safetensors
from tests.service.api.stack import (
    N_FEATURES,
    SAFETENSORS,
    labels,
    learned,
    problem,
    samples,
    send,
    serving,
    teach,
    training,
    wait_until,
)

MakeSettings = Callable[..., Settings]
NEW = [f"class {i}" for i in range(10)]


def distinct_labels(batch_id: str, seed: int = 50) -> RawBatch:
    """Ten samples of ten classes that nobody has seen."""
    return RawBatch.of(samples(10, seed=seed), NEW, batch_id)


def listed(client: httpx2.Client, **query: Any) -> dict[str, Any]:
    answer = client.get("/deadletters", params=query)
    answer.raise_for_status()
    document: dict[str, Any] = answer.json()
    return document


@pytest.fixture
def apart(settings: MakeSettings) -> Iterator[tuple[httpx2.Client, Settings]]:
    """An API that allows more classes than its trainer, so that it cannot know."""
    made = settings(checkpoint_interval_s=0.1)
    strict = made.model_copy(update={"max_classes": 4})
    with training(strict), serving(made) as client:
        teach(client, batches=2)
        yield client, made


def test_what_cannot_be_learned_is_listed_read_and_told(
    apart: tuple[httpx2.Client, Settings],
) -> None:
    client, _ = apart
    assert listed(client)["deadletters"] == []
    sent = distinct_labels("too many")
    accepted = send(client, sent).json()
    learned(client)
    [letter] = listed(client)["deadletters"]
    expected = {
        "entry_id": accepted["entry_id"],
        "batch_id": "too many",
        "samples": 10,
        "kind": "batch",
        "reason": "invalid_labels",
        "whole": True,
        "requeued_as": None,
        "requeued_from": None,
    }
    assert {name: letter[name] for name in expected} == expected
    assert "12; at most 4" in letter["detail"]
    assert letter["size"] > sent.features.nbytes
    assert listed(client)["bytes"] == letter["size"]

    whole = client.get(f"/deadletters/{letter['id']}").json()
    assert {name: whole[name] for name in letter} == letter
    np.testing.assert_array_equal(np.float32(whole["features"]), sent.features)
    assert whole["labels"] == NEW
    body = client.get(f"/deadletters/{letter['id']}", headers={"Accept": SAFETENSORS})
    assert body.headers["content-type"] == SAFETENSORS
    again = parse_safetensors(body.content, NO_LIMITS)
    assert (again.batch_id, again.labels) == ("too many", NEW)
    np.testing.assert_array_equal(again.features, sent.features)

    # The sender's repeat says what became of it, and adds nothing.
    repeat = send(client, sent)
    assert repeat.status_code == 200
    assert repeat.json() == {
        **accepted,
        "backlog": 0,
        "duplicate": True,
        "rejected": "invalid_labels",
        "deadletter": letter["id"],
    }
    text = client.get("/metrics").text
    assert "gmr_dead_letters 1.0" in text
    assert f"gmr_dead_letters_bytes {float(letter['size'])}" in text
    assert 'gmr_batches_rejected_total{reason="invalid_labels"} 1.0' in text


def test_a_letter_is_sent_again_once_and_learned_when_the_limit_was_raised(
    settings: MakeSettings,
) -> None:
    made = settings(checkpoint_interval_s=0.1)
    strict = made.model_copy(update={"max_classes": 4})
    with serving(made) as client:
        with training(strict):
            teach(client, batches=2)
            send(client, distinct_labels("too many"))
            learned(client)
        [letter] = listed(client)["deadletters"]
        with training(made):
            wait_until(lambda: client.get("/health/ready").status_code == 200)
            answer = client.post(f"/deadletters/{letter['id']}")
            assert answer.status_code == 202
            again = answer.json()
            assert again["requeued_from"] == letter["entry_id"] != again["entry_id"]
            assert (again["batch_id"], again["samples"]) == ("too many", 10)
            model = learned(client)
            assert model["samples_seen"] == 210
            assert {"label": NEW[0], "count": 1} in model["classes"]
            refused = client.post(f"/deadletters/{letter['id']}")
            told = problem(refused, 409, "dead-letter-conflict")
            assert told["entry_id"] == again["entry_id"]
            # It is a plain duplicate of what was learned by now.
            repeat = send(client, distinct_labels("too many")).json()
            assert (repeat["duplicate"], repeat["rejected"]) == (True, None)
            assert repeat["entry_id"] == again["entry_id"]
            [after] = listed(client)["deadletters"]
            assert after["requeued_as"] == again["entry_id"]
            assert listed(client)["total"] == listed(client)["bytes"] == 0
            assert "gmr_dead_letters 0.0" in client.get("/metrics").text


def test_a_letter_that_fails_again_is_a_letter_of_its_own(
    apart: tuple[httpx2.Client, Settings],
) -> None:
    client, _ = apart
    send(client, distinct_labels("too many"))
    learned(client)
    [first] = listed(client)["deadletters"]
    again = client.post(f"/deadletters/{first['id']}").json()
    learned(client)
    _, second = listed(client)["deadletters"]
    assert (second["entry_id"], second["requeued_from"]) == (again["entry_id"], first["entry_id"])
    assert send(client, distinct_labels("too many")).json()["deadletter"] == second["id"]


def test_letters_are_paged_found_by_batch_and_dropped(
    apart: tuple[httpx2.Client, Settings],
) -> None:
    client, _ = apart
    for i in range(5):
        send(client, distinct_labels(f"b{i}"))
    learned(client)
    page = listed(client, limit=2)
    pages = [page]
    while page["next"]:
        page = listed(client, limit=2, since=page["next"])
        pages.append(page)
    names = [[one["batch_id"] for one in page["deadletters"]] for page in pages]
    assert names == [["b0", "b1"], ["b2", "b3"], ["b4"]]
    [found] = listed(client, batch_id="b3")["deadletters"]
    assert found["batch_id"] == "b3"
    problem(client.get("/deadletters?limit=0"), 422, "out-of-range")
    problem(client.get("/deadletters?since=x"), 422, "invalid-request")

    assert client.delete(f"/deadletters/{found['id']}").json() == {"dropped": 1}
    for method in ("GET", "POST", "DELETE"):
        for id in (found["id"], "nonsense"):
            problem(client.request(method, f"/deadletters/{id}"), 404, "unknown-dead-letter")
    # Nothing can bring it back but its sender, who may.
    assert send(client, distinct_labels("b3")).status_code == 202
    learned(client)
    assert client.delete("/deadletters").json() == {"dropped": 5}
    assert listed(client) == {
        "deadletters": [],
        "next": None,
        "total": 0,
        "bytes": 0,
        "dropped": 0,
    }


def test_the_oldest_letters_make_room_and_it_is_told(settings: MakeSettings) -> None:
    made = settings(dead_letters_length=2)
    strict = made.model_copy(update={"max_classes": 4})
    with training(strict), serving(made) as client:
        teach(client, batches=1)
        for i in range(5):
            send(client, distinct_labels(f"b{i}"))
        learned(client)
        found = wait_until(lambda: (page := listed(client))["dropped"] == 3 and page)
        assert [one["batch_id"] for one in found["deadletters"]] == ["b3", "b4"]
        wait_until(lambda: "gmr_dead_letters_dropped_total 3.0" in client.get("/metrics").text)
        # What made room can be sent again: nothing else has it.
        assert send(client, distinct_labels("b0")).status_code == 202


def test_entries_of_other_kinds_are_shown_as_far_as_they_can_be_read(
    apart: tuple[httpx2.Client, Settings],
) -> None:
    client, made = apart
    with connect(made.redis_address() or "") as redis:
        redis.xadd(Keys(made.model).input, {"hello": "world"})
        redis.xadd(Keys(made.model).input, dict(RawLabels.of([1, 2], NEW[:2]).to_entry()))
        many = RawLabels.of(list(range(10)), NEW, "late").to_entry()
        redis.xadd(Keys(made.model).input, dict(many))
    learned(client)
    strange, late = listed(client)["deadletters"]
    assert (strange["kind"], strange["samples"], strange["reason"]) == (None, None, "invalid_batch")
    raw = client.get(f"/deadletters/{strange['id']}").json()
    assert raw["fields"] == {"hello": "d29ybGQ="}
    shown = client.get(f"/deadletters/{late['id']}").json()
    assert (shown["kind"], shown["labels"], shown["sample_ids"]) == ("labels", NEW, [*range(10)])
    for one in (strange, late):
        answer = client.get(f"/deadletters/{one['id']}", headers={"Accept": SAFETENSORS})
        problem(answer, 406, "not-acceptable")
    problem(client.post(f"/deadletters/{strange['id']}"), 422, "invalid-batch")


def test_the_clients_have_methods_for_them(apart: tuple[httpx2.Client, Settings]) -> None:
    http, _ = apart
    for i in range(3):
        send(http, distinct_labels(f"b{i}"))
    learned(http)
    with GMRClient(str(http.base_url)) as client:
        page = client.dead_letters(limit=2)
        assert [one.batch_id for one in page.letters] == ["b0", "b1"]
        assert (page.total, page.dropped) == (3, 0)
        [last] = client.dead_letters(page.next).letters
        assert client.dead_letters(batch_id="b2").letters == (last,)
        assert client.dead_letter(last.id).raw["labels"] == NEW
        assert parse_safetensors(client.dead_letter_batch(last.id), NO_LIMITS).labels == NEW
        assert client.requeue_dead_letter(last.id).requeued_from == last.entry_id
        with pytest.raises(RequestConflict):
            client.requeue_dead_letter(last.id)
        client.drop_dead_letter(last.id)
        with pytest.raises(RequestRefused):
            client.dead_letter(last.id)
        assert client.ingest(samples(10, seed=50), NEW, batch_id="b0").rejected == "invalid_labels"


@pytest.mark.anyio
async def test_the_async_client_has_them_too(apart: tuple[httpx2.Client, Settings]) -> None:
    http, _ = apart
    send(http, distinct_labels("b"))
    learned(http)
    async with AsyncGMRClient(str(http.base_url)) as client:
        [letter] = (await client.dead_letters()).letters
        assert (await client.dead_letter(letter.id)).reason == "invalid_labels"
        assert await client.dead_letter_batch(letter.id)
        assert (await client.requeue_dead_letter(letter.id)).deadletter == letter.id
        await client.wait_until_learned()
        await client.drop_dead_letter(letter.id)
        assert await client.drop_dead_letters() == 1


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


# Known before it is accepted ----------------------------------------------------------


def test_too_many_classes_are_refused_before_they_are_accepted(settings: MakeSettings) -> None:
    made = settings(max_classes=4)
    with training(made), serving(made) as client:
        # More than there may be, whatever the model knows.
        alone = RawBatch.of(samples(10), NEW)
        told = problem(send(client, alone), 422, "invalid-labels")
        assert (told["classes"], told["limit"]) == (10, 4)
        teach(client, batches=1)
        few = {"features": samples(3).tolist(), "labels": NEW[:3]}
        told = problem(client.post("/ingest", json=few), 422, "invalid-labels")
        assert (told["classes"], told["limit"]) == (5, 4)
        late = {"sample_ids": [1, 2, 3], "labels": NEW[:3]}
        problem(client.post("/labels", json=late), 422, "invalid-labels")
        # Classes that are known count once, and unused ones of a batch not at all.
        enough = {"features": samples(4).tolist(), "labels": [3, "cat", *NEW[:2]]}
        assert client.post("/ingest", json=enough).status_code == 202
        assert learned(client)["samples_seen"] == 104
        assert listed(client)["deadletters"] == []


def test_a_name_for_a_proposal_that_is_not_open_is_refused(settings: MakeSettings) -> None:
    made = settings()
    with serving(made) as client:
        # Nobody can know while no trainer reports.
        name = {"proposal": 7, "label": "x"}
        assert client.post("/labels", json=name).status_code == 202
        with training(made):
            teach(client, batches=1)
            told = problem(client.post("/labels", json=name), 404, "unknown-proposal")
            assert told["known"] == []
            [letter] = listed(client)["deadletters"]
            assert (letter["reason"], letter["kind"]) == ("unknown_proposal", "name")


def test_a_boundary_that_ends_nothing_is_refused(settings: MakeSettings) -> None:
    made = settings(detector="none", checkpoint_interval_s=0.05)
    with training(made), serving(made) as client:
        learned(client)
        wait_until(lambda: client.get("/health/ready").status_code == 200)
        told = problem(client.post("/drift/boundary"), 409, "empty-sub-task")
        assert told["sub_task"] == 0
        teach(client, batches=1)
        assert client.post("/drift/boundary").status_code == 202
        learned(client)
        assert problem(client.post("/drift/boundary"), 409, "empty-sub-task")["sub_task"] == 1
        assert client.get("/drift").json()["boundaries"] == 1
        assert listed(client)["deadletters"] == []


def test_a_boundary_that_turns_out_to_end_nothing_is_a_dead_letter(
    settings: MakeSettings,
) -> None:
    made = settings(detector="none")
    with serving(made) as client:
        send(client, RawBatch.of(samples(10), labels(10)))
        entries = [client.post("/drift/boundary").json()["entry_id"] for _ in range(2)]
        with training(made):
            learned(client)
            [letter] = listed(client)["deadletters"]
            assert (letter["entry_id"], letter["kind"]) == (entries[1], "boundary")
            assert letter["reason"] == "empty_sub_task"
            assert client.get("/drift").json()["boundaries"] == 1


def test_a_first_batch_that_cannot_be_used_does_not_decide_on_d(settings: MakeSettings) -> None:
    made = settings()
    strict = made.model_copy(update={"max_classes": 4})
    with training(strict), serving(made) as client:
        send(client, distinct_labels("first"))
        wait_until(lambda: listed(client)["deadletters"])
        other = {"features": [[0.5, 0.1], [0.2, 0.3]]}
        wait_until(lambda: client.get("/model").json()["features"] is None)
        assert client.post("/ingest", json=other).status_code == 202
        assert learned(client)["features"] == 2
        told = problem(send(client, distinct_labels("again")), 422, "shape-mismatch")
        assert (told["expected"], told["got"]) == (2, N_FEATURES)


def test_an_upload_of_another_d_is_refused_at_once(settings: MakeSettings) -> None:
    made = settings()
    with training(made), serving(made) as client:
        teach(client, batches=1)
        content = client.get("/model/checkpoint").content
    other = made.model_copy(update={"model": "other"})
    with serving(other) as client:  # without a trainer: what is accepted waits
        headers = {"Content-Type": SAFETENSORS}
        assert client.post("/ingest", json={"features": [[0.5, 0.1]]}).status_code == 202
        answer = client.put("/model/checkpoint", content=content, headers=headers)
        told = problem(answer, 422, "invalid-checkpoint")
        assert (told["expected"], told["got"]) == (2, N_FEATURES)

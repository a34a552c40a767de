"""Tests for GET and PUT /model/checkpoint."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
import torch

from core.engine.checkpoint import FORMAT, load
from core.tensors import pack
from service.broker.connection import connect
from service.settings import MIB, Settings
from service.store.kept import StoreUnavailable
from service.trainer.saver import Saver
from service.wire import RawBatch
from tests.core.states import assert_identical
from tests.service.api.stack import (
    SAFETENSORS,
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

BINARY = {"Content-Type": SAFETENSORS}


def test_the_whole_state_can_be_downloaded(taught: httpx2.Client) -> None:
    response = taught.get("/model/checkpoint")
    assert response.headers["content-type"] == SAFETENSORS
    assert response.headers["content-disposition"].startswith("attachment")
    state, config, _ = load(response.content)
    assert state.model.samples_seen == 600
    assert state.model.classes == (3, "cat")
    assert config.n_components == 4


def test_another_service_goes_on_from_it(
    taught: httpx2.Client, settings: Callable[..., Settings]
) -> None:
    content = taught.get("/model/checkpoint").content
    drawn = taught.get("/sample?n=4&seed=1").json()["features"]
    made = settings(experts=True)
    with training(made), serving(made) as client:
        response = client.put("/model/checkpoint", content=content, headers=BINARY)
        assert response.status_code == 200
        assert response.json()["applied"] is True
        assert response.json()["model_version"] >= 1
        model = learned(client)
        assert [row["count"] for row in model["classes"]] == [300, 300]
        assert client.get("/sample?n=4&seed=1").json()["features"] == drawn
        teach(client, batches=1)
        assert learned(client)["samples_seen"] == 700


def test_the_state_of_a_kept_version_is_what_it_was(settings: Callable[..., Settings]) -> None:
    made = settings(detector="none", checkpoint_interval_s=0.05)
    with training(made), serving(made) as client:
        teach(client, batches=2)
        # Of the version right before a boundary, whatever else the trainer writes down.
        client.post("/drift/boundary").raise_for_status()
        teach(client, batches=1)

        def before() -> list[dict[str, Any]]:
            kept = client.get("/model/versions").json()["versions"]
            return [one for one in kept if one["before_boundary"] == 1]

        [kept] = wait_until(before)
        version = kept["version"]
        response = client.get(f"/model/checkpoint?version={version}")
        assert response.status_code == 200, response.text
        assert f"-{version}.safetensors" in response.headers["content-disposition"]
        state, _, _ = load(response.content)
        assert (state.model.version, state.model.samples_seen) == (version, 200)
        for path in (made.data_dir / "checkpoints").glob(f"{version}-*.safetensors"):
            assert_identical(state.model, load(path.read_bytes())[0].model)
        assert learned(client)["samples_seen"] == 300
        unknown = problem(client.get(f"/model/checkpoint?version={10**9}"), 404, "unknown-version")
        assert (unknown["unknown"], version in unknown["known"]) == (10**9, True)
        for path in (made.data_dir / "checkpoints").glob(f"{version}-*.safetensors"):
            path.write_bytes(path.read_bytes()[:-1])
        damaged = problem(
            client.get(f"/model/checkpoint?version={version}"), 404, "unknown-version"
        )
        assert version not in damaged["known"]
        problem(client.get("/model/checkpoint?version=-1"), 422, "invalid-request")


def test_a_store_that_is_away_is_asked_again(
    settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(saver: Saver, version: int) -> None:
        raise StoreUnavailable("the store does not answer")

    monkeypatch.setattr(Saver, "find", find)
    made = settings()
    with training(made), serving(made) as client:
        teach(client, batches=1)
        away = problem(client.get("/model/checkpoint?version=1"), 503, "unavailable")
        assert "the store does not answer" in away["detail"]


def test_bytes_that_are_no_checkpoint_never_reach_the_stream(taught: httpx2.Client) -> None:
    content = taught.get("/model/checkpoint").content
    for damaged in (b"", b"nonsense", content[:-1], content[:200] + b"?" + content[201:]):
        response = taught.put("/model/checkpoint", content=damaged, headers=BINARY)
        problem(response, 422, "invalid-checkpoint")
    assert taught.get("/model").json()["backlog"] == 0


def test_a_checkpoint_of_other_features_is_refused(
    taught: httpx2.Client, settings: Callable[..., Settings]
) -> None:
    content = taught.get("/model/checkpoint").content
    made = settings()
    with training(made), serving(made) as client:
        send(client, RawBatch.of(samples(50)[:, :9]))
        assert learned(client)["features"] == 9
        response = client.put("/model/checkpoint", content=content, headers=BINARY)
        document = problem(response, 422, "invalid-checkpoint")
        assert "16 features" in document["detail"]
        assert client.get("/model").json()["features"] == 9


def test_other_media_types_are_refused(taught: httpx2.Client) -> None:
    response = taught.put("/model/checkpoint", json={})
    problem(response, 415, "unsupported-media-type")


def test_a_checkpoint_larger_than_one_may_be_is_refused_by_its_own_limit(
    settings: Callable[..., Settings],
) -> None:
    with serving(settings(max_checkpoint_bytes=2000)) as client:
        response = client.put("/model/checkpoint", content=bytes(2001), headers=BINARY)
        document = problem(response, 413, "body-too-large")
        assert (document["limit"], document["got"]) == (2000, 2001)
        assert document["detail"].startswith(
            "The checkpoint has 2,001 bytes; the limit is 2,000. Raise GMR_MAX_CHECKPOINT_BYTES"
        )
        # Without a length it is noticed on the way, whatever the parts arrive in: its header, which
        # should have 5,000 bytes, has not come by then.
        content = (5000).to_bytes(8, "little") + bytes(1993)
        response = client.put("/model/checkpoint", content=in_parts(content), headers=BINARY)
        assert "more than 2,000 bytes" in problem(response, 413, "body-too-large")["detail"]


def in_parts(content: bytes, size: int = 1000) -> Iterator[bytes]:
    """The same bytes, so that no length is declared."""
    for start in range(0, len(content), size):
        yield content[start : start + size]


LARGE_D = 30_000


def test_a_large_model_moves_from_one_service_to_another_with_defaults(
    redis_url: str, tmp_path: Path
) -> None:
    # The default preset and its default components: what users have.
    defaults = {name: getattr(Settings(), name) for name in ("n_components", "experts")}
    old = make_settings(redis_url, tmp_path / "old", **defaults)
    new = make_settings(redis_url, tmp_path / "new", **defaults)
    random = np.random.default_rng(3)
    probe = random.random((2, LARGE_D), np.float32)
    with training(old), serving(old) as client:
        for label in ("a", "b"):
            features = random.random((25, LARGE_D), np.float32) + (label == "b")
            send(client, RawBatch.of(features, [label] * 25)).raise_for_status()
        learned(client)
        response = client.get("/model/checkpoint")
        content = response.content
        assert len(content) > old.max_body_bytes == 32 * MIB
        assert int(response.headers["content-length"]) == len(content)
        before = client.post("/classify", **binary(probe)).json()
    with training(new), serving(new) as client:
        response = client.put("/model/checkpoint", content=in_parts(content, MIB), headers=BINARY)
        # A trainer that needs long to read it is not waited for: 202.
        assert (response.status_code, response.json()["applied"]) in ((200, True), (202, False))
        assert learned(client)["samples_seen"] == 50
        after = client.post("/classify", **binary(probe)).json()
        assert {**after, "model_version": 0} == {**before, "model_version": 0}
        assert load(client.get("/model/checkpoint").content)[0].model.samples_seen == 50


def binary(features: np.ndarray) -> dict[str, Any]:
    return {"content": RawBatch.of(features).to_safetensors(), "headers": BINARY}


def kept_in_redis(settings: Settings) -> list[bytes]:
    """Keys of what large transfers leave behind."""
    with connect(settings.redis_address() or "") as client:
        keys = client.keys(f"{{gmr:{settings.model}}}:*")
        return [key for key in keys if b":upload" in key or b":answer" in key]


def test_nothing_is_left_of_a_transfer(settings: Callable[..., Settings]) -> None:
    made = settings()
    with training(made), serving(made) as client:
        teach(client, batches=1)
        content = client.get("/model/checkpoint").content
        for damaged in (content[:-1], content + b"?", content[:-1] + b"?"):
            response = client.put("/model/checkpoint", content=damaged, headers=BINARY)
            problem(response, 422, "invalid-checkpoint")
        response = client.put("/model/checkpoint", content=content, headers=BINARY)
        assert response.status_code == 200
        wait_until(lambda: not [key for key in kept_in_redis(made) if b"answer:" not in key])


def test_an_upload_that_breaks_off_leaves_nothing(
    settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.api.routes.checkpoint.PIECE_BYTES", 100)
    made = settings()
    content = pack(FORMAT, {"x": torch.zeros(1000)}, {})

    def broken() -> Iterator[bytes]:
        yield content[:3000]
        wait_until(lambda: kept_in_redis(made))
        raise RuntimeError("hung up")

    with serving(made) as client:
        with pytest.raises(RuntimeError, match="hung up"):
            client.put("/model/checkpoint", content=broken(), headers=BINARY)
        wait_until(lambda: not kept_in_redis(made))
        assert client.get("/model").json()["backlog"] == 0


def test_only_so_many_uploads_wait_at_a_time(
    settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.api.routes.checkpoint.APPLY_TIMEOUT_S", 0.01)
    content = pack(FORMAT, {"x": torch.zeros(10)}, {})
    with serving(settings()) as client:  # nobody takes them over
        for _ in range(2):
            response = client.put("/model/checkpoint", content=content, headers=BINARY)
            assert response.status_code == 202
        response = client.put("/model/checkpoint", content=content, headers=BINARY)
        problem(response, 429, "backlog-full")
        assert "Retry-After" in response.headers


def test_only_so_many_uploads_come_at_a_time(
    settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.api.routes.checkpoint.APPLY_TIMEOUT_S", 0.01)
    monkeypatch.setattr("service.api.routes.checkpoint.PIECE_BYTES", 100)
    made, content = settings(), pack(FORMAT, {"x": torch.zeros(1000)}, {})
    head = (
        f"PUT /model/checkpoint HTTP/1.1\r\nHost: localhost\r\nContent-Type: {SAFETENSORS}\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    with serving(made) as client, contextlib.ExitStack() as stack:
        for n in (1, 2):
            address = client.base_url.host, client.base_url.port
            sender = stack.enter_context(socket.create_connection(address, 10))
            sender.sendall(head.encode() + content[:1000])
            wait_until(lambda n=n: len(kept_in_redis(made)) == n)  # type: ignore[misc]
        response = client.put("/model/checkpoint", content=content, headers=BINARY)
        problem(response, 429, "backlog-full")
        stack.close()  # they break off, and make room
        wait_until(
            lambda: (
                client.put("/model/checkpoint", content=content, headers=BINARY).status_code == 202
            )
        )


def test_a_file_that_only_looks_like_a_checkpoint_is_refused_by_the_trainer(
    settings: Callable[..., Settings],
) -> None:
    made = settings()
    with training(made), serving(made) as client:
        teach(client, batches=1)
        content = pack(FORMAT, {"x": torch.zeros(10)}, {"state": "{}", "config": "{}"})
        response = client.put("/model/checkpoint", content=content, headers=BINARY)
        document = problem(response, 422, "invalid-request")
        assert "does not fit this release" in document["detail"]
        assert learned(client)["samples_seen"] == 100


def test_without_a_trainer_there_is_nothing_to_download(
    blank: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.api.routes.checkpoint.ANSWER_TIMEOUT_S", 0.2)
    response = blank.get("/model/checkpoint")
    problem(response, 503, "unavailable")
    assert "Retry-After" in response.headers

"""Images of another shape than the model's, by whichever way they come."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import numpy as np
import pytest
from PIL import Image

from service.settings import Settings
from service.wire import RawBatch
from tests.service.api.stack import (
    N_FEATURES,
    SAFETENSORS,
    labels,
    learned,
    make_settings,
    problem,
    samples,
    send,
    serving,
    training,
    wait_until,
)

HEADERS = {"Content-Type": SAFETENSORS}
COLOUR = (2, 2, 3)


def images(n: int, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    flat = samples(n, seed=seed)[:, : int(np.prod(shape))]
    return (255 * flat).astype(np.uint8).reshape(n, *shape)


@pytest.fixture(scope="module")
def coloured(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    made = make_settings(redis_url, tmp_path_factory.mktemp("coloured"))
    with training(made), serving(made) as client:
        send(client, RawBatch.of(images(200, COLOUR), labels(200))).raise_for_status()
        assert learned(client)["image_shape"] == [*COLOUR]
        yield client


def told(response: httpx2.Response) -> None:
    document = problem(response, 422, "shape-mismatch")
    assert (document["shape"], document["expected_shape"]) == ([3, 2, 2], [*COLOUR])
    assert "(3, 2, 2)" in document["detail"]
    assert "(2, 2, 3)" in document["detail"]
    assert "channels last" in document["detail"]


@pytest.mark.parametrize("route", ["/ingest", "/classify", "/outliers"])
@pytest.mark.parametrize("whole", [True, False])
def test_images_with_channels_first_are_refused(
    coloured: httpx2.Client, route: str, whole: bool
) -> None:
    turned = np.moveaxis(images(9, COLOUR), -1, 1)
    turned = turned if whole else turned.astype(np.float32)
    body = RawBatch.of(turned).to_safetensors()
    told(coloured.post(route, content=body, headers=HEADERS))


def test_the_open_inference_protocol_refuses_them_too(coloured: httpx2.Client) -> None:
    name = coloured.get("/model").json()["name"]
    tensor = {"name": "features", "datatype": "UINT8", "data": [0] * 24}
    wrong = coloured.post(
        f"/v2/models/{name}/infer", json={"inputs": [{**tensor, "shape": [2, 3, 2, 2]}]}
    )
    assert wrong.status_code == 422
    assert "(3, 2, 2)" in wrong.text
    assert "(2, 2, 3)" in wrong.text
    for shape in ([2, 12], [2, *COLOUR]):
        body = {"inputs": [{**tensor, "shape": shape}]}
        assert coloured.post(f"/v2/models/{name}/infer", json=body).status_code == 200


def test_where_images_were_learned_bytes_and_floats_are_answered_alike(
    coloured: httpx2.Client,
) -> None:
    name, sent = coloured.get("/model").json()["name"], images(9, COLOUR)
    rows = sent.reshape(9, -1)
    answers = []
    for datatype, x in [("UINT8", rows), ("FP32", (rows / np.float32(255)))]:
        tensor = {"name": "features", "datatype": datatype, "shape": [*x.shape], "data": x.tolist()}
        answers.append(coloured.post(f"/v2/models/{name}/infer", json={"inputs": [tensor]}).json())
    assert answers[0]["outputs"] == answers[1]["outputs"]
    plain = coloured.post("/outliers", json={"features": (rows / np.float32(255)).tolist()}).json()
    whole = RawBatch.of(sent).to_safetensors()
    assert coloured.post("/outliers", content=whole, headers=HEADERS).json() == plain


@pytest.mark.parametrize("route", ["/classify", "/outliers"])
def test_flat_rows_say_no_shape_and_are_taken(coloured: httpx2.Client, route: str) -> None:
    sent = images(9, COLOUR)
    answers = [
        coloured.post(route, content=RawBatch.of(x).to_safetensors(), headers=HEADERS)
        for x in (sent, sent.reshape(9, -1))
    ]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert answers[0].json() == answers[1].json()


def test_one_channel_is_no_other_shape(settings: Callable[..., Settings]) -> None:
    made = settings()
    with training(made), serving(made) as client:
        for seed, shape in enumerate([(4, 4), (4, 4, 1), (1, 4, 4), (N_FEATURES,)]):
            batch = RawBatch.of(images(100, shape, seed), labels(100))
            send(client, batch).raise_for_status()
            assert learned(client)["samples_seen"] == 100 * (seed + 1)
        problem(send(client, RawBatch.of(images(9, (2, 8)))), 422, "shape-mismatch")
        assert learned(client)["image_shape"] == [4, 4]


def test_one_channel_that_comes_first_is_drawn(settings: Callable[..., Settings]) -> None:
    made, png = settings(), {"Accept": "image/png"}
    with training(made), serving(made) as client:
        send(client, RawBatch.of(images(100, (1, 2, 8)), labels(100))).raise_for_status()
        assert learned(client)["image_shape"] == [2, 8]
        picture = Image.open(io.BytesIO(client.get("/sample?n=1", headers=png).content))
        assert picture.width > 3 * picture.height


def test_what_was_accepted_before_the_shape_was_known_is_a_dead_letter(
    settings: Callable[..., Settings], tmp_path: Path
) -> None:
    made = settings()
    with serving(made) as client:
        send(client, RawBatch.of(images(100, (4, 4)), labels(100))).raise_for_status()
        assert send(client, RawBatch.of(images(9, (2, 8)))).status_code == 202
        with training(made):
            letters = wait_until(lambda: client.get("/deadletters").json()["deadletters"])
            assert [letter["reason"] for letter in letters] == ["shape_mismatch"]
            assert "(2, 8)" in letters[0]["detail"]
            assert learned(client)["samples_seen"] == 100
            wait_until(lambda: client.get("/model").json()["image_shape"] == [4, 4])
            id = letters[0]["id"]
            problem(client.post(f"/deadletters/{id}"), 422, "shape-mismatch")


def test_the_shape_of_the_settings_counts_from_the_first_batch_on(
    settings: Callable[..., Settings],
) -> None:
    made = settings(image="2,2,4")
    with training(made), serving(made) as client:
        send(client, RawBatch.of(images(100, (4, 2, 2)), labels(100))).raise_for_status()
        letters = wait_until(lambda: client.get("/deadletters").json()["deadletters"])
        assert [letter["reason"] for letter in letters] == ["shape_mismatch"]


@pytest.mark.parametrize("route", ["/ingest", "/classify", "/outliers"])
@pytest.mark.parametrize("shape", [(N_FEATURES,), (4, 4)])
def test_bytes_are_refused_where_the_model_is_a_table(
    taught: httpx2.Client, route: str, shape: tuple[int, ...]
) -> None:
    body = RawBatch.of(images(9, shape)).to_safetensors()
    document = problem(taught.post(route, content=body, headers=HEADERS), 422, "shape-mismatch")
    assert document["dtype"] == "uint8"
    assert "this model is a table" in document["detail"]
    assert "as float32" in document["detail"]
    name = taught.get("/model").json()["name"]
    tensor = {"name": "features", "datatype": "UINT8", "data": [0] * 32, "shape": [2, *shape]}
    answer = taught.post(f"/v2/models/{name}/infer", json={"inputs": [tensor]})
    assert (answer.status_code, "is a table" in answer.text) == (422, True)


def test_bytes_that_were_accepted_before_a_table_was_known_are_a_dead_letter(
    settings: Callable[..., Settings],
) -> None:
    made = settings(experts=True)  # which tell tables from images
    with serving(made) as client:
        send(client, RawBatch.of(samples(100), labels(100))).raise_for_status()
        assert send(client, RawBatch.of(images(9, (N_FEATURES,)))).status_code == 202
        with training(made):
            letters = wait_until(lambda: client.get("/deadletters").json()["deadletters"])
            assert [letter["reason"] for letter in letters] == ["shape_mismatch"]
            assert "is a table" in letters[0]["detail"]
            assert learned(client)["samples_seen"] == 100

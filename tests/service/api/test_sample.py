"""Tests for GET /sample."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator

import httpx2
import numpy as np
import pytest
import torch
from PIL import Image

from core.batch import Batch
from core.engine.checkpoint import dump
from core.engine.engine import Engine
from service.settings import Settings
from service.wire import RawBatch, unpack
from tests.service.api.stack import (
    CLASSES,
    N_FEATURES,
    SAFETENSORS,
    learned,
    make_settings,
    problem,
    samples,
    send,
    serving,
    training,
)


@pytest.fixture(scope="module")
def doubting(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    """A service whose two classes look the same, so that it is sure of neither."""
    settings = make_settings(redis_url, tmp_path_factory.mktemp("doubting"))
    with training(settings), serving(settings) as client:
        for i in range(6):
            send(client, RawBatch.of(samples(100, seed=i), ["a"] * 50 + ["b"] * 50))
        learned(client)
        yield client


def test_samples_come_with_labels_and_likelihoods(taught: httpx2.Client) -> None:
    response = taught.get("/sample")
    answer = response.json()
    assert np.shape(answer["features"]) == (25, N_FEATURES)
    assert set(answer["labels"]) <= set(CLASSES)
    assert len(answer["log_likelihoods"]) == 25
    assert response.headers["X-Model-Version"] == str(answer["model_version"])


def test_the_same_seed_and_version_give_the_same_samples(taught: httpx2.Client) -> None:
    one, same, other = (
        taught.get("/sample", params={"n": 5, "seed": seed}).json() for seed in (1, 1, 2)
    )
    assert one == same
    assert one["model_version"] == other["model_version"]
    assert one["features"] != other["features"]


def test_without_a_seed_every_answer_is_another_and_names_its_seed(taught: httpx2.Client) -> None:
    one, other = (taught.get("/sample?n=5") for _ in range(2))
    assert one.json()["features"] != other.json()["features"]
    for response in (one, other):
        seed = response.json()["seed"]
        assert 0 <= seed < 2**53
        assert response.headers["X-Sample-Seed"] == str(seed)
        again = taught.get("/sample", params={"n": 5, "seed": seed})
        assert again.json() == response.json()


@pytest.mark.parametrize(
    "accept", ["application/json", SAFETENSORS, "application/x-npy", "image/png"]
)
def test_the_seed_is_named_in_every_form(taught: httpx2.Client, accept: str) -> None:
    given = taught.get("/sample?n=4&seed=12", headers={"Accept": accept})
    assert given.headers["X-Sample-Seed"] == "12"

    def drawn_twice() -> tuple[httpx2.Response, httpx2.Response]:
        drawn = taught.get("/sample?n=4", headers={"Accept": accept})
        seed = drawn.headers["X-Sample-Seed"]
        params = {"n": "4", "seed": seed}
        return drawn, taught.get("/sample", params=params, headers={"Accept": accept})

    drawn, again = drawn_twice()
    while again.headers["X-Model-Version"] != drawn.headers["X-Model-Version"]:
        # A newer model was published meanwhile, which draws other samples.
        drawn, again = drawn_twice()
    assert again.content == drawn.content != given.content


def test_rows_are_even_over_the_wanted_classes(taught: httpx2.Client) -> None:
    for n, expected in ((20, {10}), (21, {10, 11})):
        drawn = taught.get(f"/sample?classes=3,cat&n={n}").json()["labels"]
        assert {drawn.count(label) for label in CLASSES} == expected


def test_samples_of_wanted_classes_belong_to_them(taught: httpx2.Client) -> None:
    answer = taught.get("/sample?classes=cat&n=20").json()
    assert answer["labels"] == ["cat"] * 20
    named = taught.post("/classify", json={"features": answer["features"]}).json()
    assert named["labels"] == ["cat"] * 20
    both = taught.get("/sample?classes=3,cat&n=50&seed=1").json()
    assert set(both["labels"]) == set(CLASSES)
    assert taught.get("/sample?classes=3&classes=cat&n=50&seed=1").json() == both


def test_each_sample_says_how_probable_its_class_is(taught: httpx2.Client) -> None:
    for query in ("", "&classes=cat"):
        answer = taught.get(f"/sample?n=20{query}").json()
        named = taught.post("/classify", json={"features": answer["features"]}).json()
        codes = [named["classes"].index(label) for label in answer["labels"]]
        wanted = [row[code] for row, code in zip(named["probabilities"], codes, strict=True)]
        np.testing.assert_allclose(answer["probabilities"], wanted, atol=1e-4)
    assert answer["short"] == [False] * 20


def test_samples_that_fall_short_are_drawn_again_and_the_rest_is_told(
    taught: httpx2.Client,
) -> None:
    # Of two classes, the most probable one always has a half.
    easy = taught.get("/sample?n=50&min_probability=0.5")
    assert easy.headers["X-Samples-Short"] == "0"
    assert min(easy.json()["probabilities"]) >= 0.5
    assert easy.json()["short"] == [False] * 50
    for accept in ("application/json", SAFETENSORS, "application/x-npy", "image/png"):
        response = taught.get("/sample?n=50&min_probability=0.5", headers={"Accept": accept})
        assert response.headers["X-Samples-Short"] == "0"


def test_what_no_draw_can_reach_is_given_all_the_same_and_told(doubting: httpx2.Client) -> None:
    response = doubting.get("/sample?n=20&classes=a&min_probability=0.99")
    answer = response.json()
    assert len(answer["features"]) == 20
    assert max(answer["probabilities"]) < 0.99
    assert answer["short"] == [True] * 20
    assert response.headers["X-Samples-Short"] == "20"
    npy = doubting.get(
        "/sample?n=20&classes=a&min_probability=0.99", headers={"Accept": "application/x-npy"}
    )
    assert npy.headers["X-Samples-Short"] == "20"


def test_without_noise_samples_vary_less(taught: httpx2.Client) -> None:
    plain, clean = (
        np.array(taught.get(f"/sample?n=100&classes=cat&noise={noise}&seed=0").json()["features"])
        for noise in ("true", "false")
    )
    assert clean.var(0).sum() < plain.var(0).sum()
    default = taught.get("/sample?n=100&classes=cat&seed=0").json()["features"]
    np.testing.assert_array_equal(default, plain)


def test_an_unknown_class_is_not_found_and_the_known_ones_are_listed(
    taught: httpx2.Client,
) -> None:
    document = problem(taught.get("/sample?classes=3,dog"), 404, "unknown-class")
    assert document["unknown"] == ["dog"]
    assert document["known"] == list(CLASSES)


def test_no_class_at_all_is_refused(taught: httpx2.Client) -> None:
    problem(taught.get("/sample?classes="), 422, "invalid-request")
    document = problem(taught.get("/sample?classes=&classes=cat"), 404, "unknown-class")
    assert document["unknown"] == [""]


@pytest.mark.parametrize("n", ["0", "-1", "10001"])
def test_n_has_limits(taught: httpx2.Client, n: str) -> None:
    document = problem(taught.get("/sample", params={"n": n}), 422, "out-of-range")
    assert (document["low"], document["high"]) == (1, 10_000)


def test_without_n_no_more_are_drawn_than_may_be(settings: Callable[..., Settings]) -> None:
    with serving(settings(max_sample_n=10)) as client:
        problem(client.get("/sample"), 409, "model-not-ready")
        problem(client.get("/sample?n=25"), 422, "out-of-range")


@pytest.mark.parametrize("least", ["-0.01", "1.01", "nan", "inf"])
def test_a_probability_has_limits(taught: httpx2.Client, least: str) -> None:
    response = taught.get("/sample", params={"min_probability": least})
    document = problem(response, 422, "out-of-range")
    assert (document["parameter"], document["low"], document["high"]) == ("min_probability", 0, 1)
    assert least in document["detail"]


@pytest.mark.parametrize(
    "query",
    [
        *("n=many", "seed=-1", "seed=1e3", f"seed={2**63}"),
        *("min_probability=sure", "min_probability=", "noise=loud"),
    ],
)
def test_parameters_that_are_no_numbers_are_refused(taught: httpx2.Client, query: str) -> None:
    document = problem(taught.get(f"/sample?{query}"), 422, "invalid-request")
    assert document["errors"][0]["where"] == f"query.{query.partition('=')[0]}"


@pytest.mark.parametrize("media_type", ["application/x-npy", "application/octet-stream"])
def test_npy_holds_the_features(taught: httpx2.Client, media_type: str) -> None:
    plain = taught.get("/sample?n=4&seed=0").json()["features"]
    response = taught.get("/sample?n=4&seed=0", headers={"Accept": media_type})
    assert response.headers["content-type"] == media_type
    array = np.load(io.BytesIO(response.content), allow_pickle=False)
    assert array.dtype == np.float32
    np.testing.assert_array_equal(array, np.array(plain, np.float32))


def test_safetensors_holds_everything(taught: httpx2.Client) -> None:
    plain = taught.get("/sample?n=4&seed=0").json()
    response = taught.get("/sample?n=4&seed=0", headers={"Accept": SAFETENSORS})
    arrays, metadata = unpack(response.content)
    vocabulary = json.loads(metadata["vocabulary"])
    assert [vocabulary[code] for code in arrays["labels"]] == plain["labels"]
    np.testing.assert_array_equal(arrays["features"], np.array(plain["features"], np.float32))
    assert arrays["log_likelihoods"].shape == (4,)
    np.testing.assert_array_equal(
        arrays["probabilities"], np.array(plain["probabilities"], np.float32)
    )
    assert arrays["short"].tolist() == plain["short"] == [False] * 4
    assert metadata["model_version"] == str(plain["model_version"])
    assert metadata["seed"] == str(plain["seed"]) == "0"


def test_square_samples_are_drawn(taught: httpx2.Client) -> None:
    accept = "image/avif,image/webp,image/png,image/*;q=0.8,*/*;q=0.5"  # of a browser's <img>
    response = taught.get("/sample?n=9", headers={"Accept": accept})
    assert response.headers["content-type"] == "image/png"
    picture = Image.open(io.BytesIO(response.content))
    assert picture.width == picture.height


def test_classes_are_drawn_in_rows_of_their_own(taught: httpx2.Client) -> None:
    url = "/sample?n=12&classes=cat,3"
    response = taught.get(url, headers={"Accept": "image/png"})
    pixels = np.asarray(Image.open(io.BytesIO(response.content)).convert("L"))
    # In the order asked for: `cat` is the bright blob, 3 the dark one.
    upper, lower = np.split(pixels[:, 40:90], [pixels.shape[0] // 2])
    assert upper.mean() > 150 > 80 > lower.mean()


def test_the_shape_of_a_picture_can_be_named(taught: httpx2.Client) -> None:
    png = {"Accept": "image/png"}
    wide = taught.get("/sample?n=1&shape=2,8", headers=png)
    picture = Image.open(io.BytesIO(wide.content))
    assert picture.width > 3 * picture.height
    document = problem(taught.get("/sample?shape=3,5", headers=png), 422, "invalid-shape")
    assert document["features"] == N_FEATURES
    problem(taught.get("/sample?shape=four", headers=png), 422, "invalid-shape")


def test_what_nobody_offers_is_not_acceptable(taught: httpx2.Client) -> None:
    document = problem(
        taught.get("/sample", headers={"Accept": "video/mp4"}), 406, "not-acceptable"
    )
    assert "image/png" in document["offered"]


def test_nothing_learned_is_a_conflict(blank: httpx2.Client) -> None:
    problem(blank.get("/sample"), 409, "model-not-ready")


def test_a_class_of_an_earlier_release_without_a_name_is_drawn(
    settings: Callable[..., Settings],
) -> None:
    """It can come by a checkpoint alone: as a label the empty string is refused."""
    made = settings()
    config = made.engine_config()
    engine = Engine(config)
    named = Batch.of(torch.from_numpy(samples(200)), ["", "b"] * 100)
    state, _ = engine.step(engine.start(), named)
    headers = {"Content-Type": SAFETENSORS}
    with training(made), serving(made) as client:
        content = dump(state, config, {})
        client.put("/model/checkpoint", content=content, headers=headers).raise_for_status()
        learned(client)
        for query, wanted in (("classes=", {""}), ("classes=&classes=b", {"", "b"})):
            answer = client.get(f"/sample?n=20&{query}").raise_for_status()
            assert set(answer.json()["labels"]) == wanted

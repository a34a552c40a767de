"""Tests for service.api.montage: samples drawn as one picture."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
from PIL import Image

from service.api.errors import InvalidShape, NotAcceptable
from service.api.montage import BACKGROUND, GAP, TILE, Shape, draw, image_shape, parse_shape


def pixels(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(png)))


def test_a_square_number_of_features_needs_no_shape() -> None:
    assert image_shape(784, None) == (28, 28)


@pytest.mark.parametrize("n_features", [2, 785, 3072])
def test_nothing_else_is_guessed(n_features: int) -> None:
    with pytest.raises(NotAcceptable, match="shape=height,width"):
        image_shape(n_features, None)


def test_a_wanted_shape_must_hold_every_feature() -> None:
    assert image_shape(3072, (32, 32, 3)) == (32, 32, 3)
    with pytest.raises(InvalidShape, match="784"):
        image_shape(784, (28, 27))


def test_a_known_shape_serves_unless_it_cannot_be_drawn() -> None:
    assert image_shape(3072, None, (32, 32, 3)) == (32, 32, 3)
    assert image_shape(784, None, (28, 28, 1)) == (28, 28)
    assert image_shape(784, (14, 56), (28, 28)) == (14, 56)
    assert image_shape(784, None, (1, 28, 28)) == (28, 28)
    assert image_shape(84, None, (1, 28, 3)) == (1, 28, 3)
    with pytest.raises(NotAcceptable, match=r"\(16, 16, 4\)"):
        image_shape(1024, None, (16, 16, 4))


@pytest.mark.parametrize("shape", [(3, 8, 8), (3, 32, 32)])
def test_channels_first_are_not_drawn_and_the_error_names_the_cause(shape: Shape) -> None:
    with pytest.raises(NotAcceptable, match="channels first") as caught:
        image_shape(math.prod(shape), None, shape)
    assert str(shape) in str(caught.value)
    assert "(H, W), (H, W, 1) or (H, W, 3)" in str(caught.value)
    assert "Send channels last" in str(caught.value)
    assert caught.value.context["shape"] == [*shape]


@pytest.mark.parametrize("text", ["", "28", "28,", "28,28,1", "28,28,3,1", "0,5", "-1,-1", "a,b"])
def test_a_text_that_is_no_shape_is_refused(text: str) -> None:
    with pytest.raises(InvalidShape):
        parse_shape(text)


def test_tiles_lie_in_reading_order_on_a_square() -> None:
    levels = np.linspace(0.1, 1.0, 4, dtype=np.float32)
    picture = pixels(draw(np.repeat(levels[:, None], 4, axis=1), (2, 2)))
    assert picture.shape == (2 * (TILE + GAP) + GAP, 2 * (TILE + GAP) + GAP, 3)
    centres = [GAP + TILE // 2, GAP + TILE // 2 + TILE + GAP]
    drawn = [int(picture[y, x, 0]) for y in centres for x in centres]
    assert drawn == [26, 102, 178, 255]


def test_a_sample_keeps_its_rows_and_columns() -> None:
    picture = pixels(draw(np.array([[0, 1, 0, 0]], np.float32), (2, 2)))
    middle = GAP + TILE // 4
    assert picture[middle, middle + TILE // 2].tolist() == [255, 255, 255]
    assert picture[middle + TILE // 2, middle].tolist() == [0, 0, 0]


def test_colours_are_kept() -> None:
    picture = pixels(draw(np.array([[1, 0, 0]], np.float32), (1, 1, 3)))
    assert picture[GAP + 5, GAP + 5].tolist() == [255, 0, 0]


def test_other_scales_are_stretched() -> None:
    picture = pixels(draw(np.array([[-300, 500, 500, 500]], np.float32), (2, 2)))
    tile = picture[GAP : GAP + TILE, GAP : GAP + TILE]
    assert (tile.min(), tile.max()) == (0, 255)


def test_constant_samples_can_be_drawn() -> None:
    assert pixels(draw(np.full((1, 4), 700, np.float32), (2, 2))).max() <= 255


def test_classes_share_a_row_behind_their_label() -> None:
    features = np.ones((3, 4), np.float32)
    picture = pixels(draw(features, (2, 2), ["a", "b", "b"]))
    assert picture.shape[0] == 2 * (TILE + GAP) + GAP
    # The second place of the first row stays empty.
    assert picture[GAP + 5, -GAP - 5].tolist() == list(BACKGROUND)
    assert picture[-GAP - 5, -GAP - 5].tolist() == [255, 255, 255]

"""Tests for core.density.deep.layout: which foldings an image gets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.density.deep.layout import image_of, layout
from core.errors import InvalidBatch


def test_an_image_of_28_pixels_gets_the_papers_layers() -> None:
    patches, everything = layout((28, 28, 1), 81)
    assert (patches.filter_height, patches.filter_width, patches.stride) == (8, 8, 2)
    assert (everything.filter_height, everything.stride) == (11, 1)
    # Its table has 7,744 = 121 * 64 here, which does not go with K = 81.
    assert (patches.patch_size, everything.patch_size) == (64, 9801)


@given(
    height=st.integers(1, 128),
    width=st.integers(1, 128),
    channels=st.integers(1, 4),
)
def test_every_layout_reaches_every_pixel_and_ends_in_one_position(
    height: int, width: int, channels: int
) -> None:
    patches, everything = layout((height, width, channels), 9)
    assert patches.map_size == height * width * channels
    assert (patches.height - patches.filter_height) % patches.stride == 0
    assert (patches.width - patches.filter_width) % patches.stride == 0
    assert everything.map_size == patches.positions * 9
    assert everything.positions == 1
    if max(height, width) <= 2 * min(height, width):
        assert patches.positions <= 17 * 38


@given(side=st.integers(1, 200))
def test_the_number_of_positions_does_not_grow_with_a_square_image(side: int) -> None:
    assert layout((side, side, 1), 4)[0].positions <= 17 * 17


def test_a_square_needs_no_setting() -> None:
    assert image_of(64, None) == (8, 8, 1)


def test_the_setting_decides_where_there_is_one() -> None:
    assert image_of(64, (4, 16, 1)) == (4, 16, 1)
    assert image_of(3072, (32, 32, 3)) == (32, 32, 3)


def test_features_that_are_no_square_are_refused_with_the_setting_that_helps() -> None:
    with pytest.raises(InvalidBatch, match=r"20 features, which is no square.*Set image to"):
        image_of(20, None)


def test_features_that_do_not_fill_the_image_are_refused() -> None:
    with pytest.raises(InvalidBatch, match=r"20 features, but the setting image is 4,4,1.* 16"):
        image_of(20, (4, 4, 1))

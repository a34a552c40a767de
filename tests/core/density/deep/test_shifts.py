"""Tests for core.density.deep.shifts: images a few pixels away."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import pad

from core.density.deep.shifts import DIRECTIONS, NO_SHIFTS, Shifts
from core.errors import ShapeMismatch

sides = st.integers(min_value=1, max_value=6)


def by_hand(images: Tensor, down: int, right: int) -> Tensor:
    """Images (N, C, H, W) as a person would shift them: widened by their edges, then cut."""
    height, width = images.shape[-2:]
    room = max(abs(down), abs(right))
    wide = pad(images, (room, room, room, room), mode="replicate")
    return wide[..., room - down :, room - right :][..., :height, :width]


@given(height=sides, width=sides, channels=st.integers(1, 3), pixels=st.integers(1, 4))
def test_every_pixel_moves_by_the_same_and_edges_go_on(
    height: int, width: int, channels: int, pixels: int
) -> None:
    generator = torch.Generator().manual_seed(height * width)
    images = torch.rand(2, height, width, channels, generator=generator)
    shifts = Shifts(pixels, (height, width, channels))
    moved = list(shifts.of_samples(images.reshape(2, -1)))
    steps = [(by * down, by * right) for by in range(1, pixels + 1) for down, right in DIRECTIONS]
    assert len(moved) == len(shifts) == len(steps)
    for got, (down, right) in zip(moved, steps, strict=True):
        expected = by_hand(images.permute(0, 3, 1, 2), down, right).permute(0, 2, 3, 1)
        assert torch.equal(got, expected.reshape(2, -1))


def test_an_image_without_a_shape_is_a_square() -> None:
    x = torch.arange(9.0)[None]
    assert torch.equal(*(next(Shifts(1, image).of_samples(x)) for image in (None, (3, 3, 1))))


def test_without_shifts_samples_may_be_anything() -> None:
    assert not NO_SHIFTS
    assert list(NO_SHIFTS.of_samples(torch.zeros(2, 15))) == []
    NO_SHIFTS.check(15)


@pytest.mark.parametrize(("image", "said"), [(None, "no square"), ((3, 4, 1), "which has 12")])
def test_samples_that_are_no_such_images_are_refused(
    image: tuple[int, int, int] | None, said: str
) -> None:
    shifts = Shifts(1, image)
    with pytest.raises(ShapeMismatch, match=said):
        shifts.check(15)
    with pytest.raises(ShapeMismatch, match=said):
        next(shifts.of_samples(torch.zeros(2, 15)))

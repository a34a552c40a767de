"""Tests for clients.commands.screen and clients.commands.pixels: what the demo draws, at every
size."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from clients.commands import pixels
from clients.commands.screen import Found, LiveScreen, PlainScreen, Story, frame

SUB_TASKS = ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))


def a_story(share: float = 1.0) -> Story:
    """The demo's story when this share of it has been told."""
    story = Story(
        title="five sub-tasks of digits, unannounced",
        sub_tasks=SUB_TASKS,
        passes=11,
        starts=(0, 31, 62, 93, 124),
        batches=155,
        url="http://127.0.0.1:8000/",
    )
    story.sent_batches = round(155 * share)
    story.sent_samples = 100 * story.sent_batches
    story.sub_task = min(4, story.sent_batches // 31)
    for batch in range(1, story.sent_batches):
        story.rates[batch] = 0.9 if batch % 31 else 0.05
        if batch % 31 == 0:
            story.found.append(Found(batch, 0.9, 0.05, 1))
            story.say(f"boundary {batch // 31}: sub-task {batch // 31} begins")
    for index in range(story.sub_task):
        story.accuracies.append(0.99 - 0.01 * index)
        for label in SUB_TASKS[index]:
            story.drawn[label] = np.eye(pixels.SIDE).tolist()
    return story


def lines_of(story: Story, width: int, height: int) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=width, height=height, color_system=None)
    console.print(frame(story, width, height))
    return out.getvalue().rstrip("\n").split("\n")


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
@pytest.mark.parametrize(("width", "height"), [(80, 23), (100, 30), (120, 50), (200, 60)])
def test_the_picture_fits_the_terminal(share, width, height):
    lines = lines_of(a_story(share), width, height)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width


@given(st.floats(0, 1), st.integers(60, 200))
def test_no_line_is_wider_than_the_terminal(share, width):
    assert max(map(len, lines_of(a_story(share), width, 40))) <= width


def test_everything_that_matters_is_on_a_small_terminal():
    text = "\n".join(lines_of(a_story(0.9), 80, 23))
    for expected in (
        "▲4",
        "98.0 %",
        "inlier rate 0.90 → 0.05, after 1 batch",
        "http://127",
        "90 %",
    ):
        assert expected in text


def test_a_false_alarm_is_called_one():
    story = a_story(0.3)
    story.found.append(Found(40, 0.9, 0.7, None))
    assert "false alarm" in "\n".join(lines_of(story, 100, 30))


def test_a_drop_of_one_batch_stays_visible_when_batches_share_a_column():
    story = a_story(0.0)
    story.batches = 1000
    story.rates = dict.fromkeys(range(1000), 1.0) | {500: 0.0}
    bottom = next(line for line in lines_of(story, 80, 23) if line.startswith("0.0"))
    assert bottom.count("█") == 73
    assert bottom[6:].count(" ") == 1


def test_plain_lines_are_whole_lines_with_the_time():
    out = io.StringIO()
    console = Console(file=out, width=300, color_system=None)
    with PlainScreen(console, a_story(0.0)) as screen:
        screen.say("boundary 1: sub-task 1 begins", "bold yellow")
    assert out.getvalue().endswith(" s  boundary 1: sub-task 1 begins\n")


def test_the_last_picture_stays_when_the_story_is_over():
    out = io.StringIO()
    console = Console(file=out, width=80, height=24, force_terminal=True, color_system=None)
    with LiveScreen(console, a_story(1.0)) as screen:
        screen.say("all is said")
    assert "all is said" in out.getvalue().split("gmr-stream demo")[-1]


# Pixels


def test_half_blocks_hold_two_pixels_each():
    (line,) = pixels.draw([[1, 1, 0, 0], [1, 0, 1, 0]], colour=False)
    assert line.plain == "█▀▄ "


def test_grey_levels_become_colours_of_both_halves():
    (line,) = pixels.draw([[0.0], [1.0]])
    style = line.spans[0].style
    assert style.color.triplet < style.bgcolor.triplet


@pytest.mark.parametrize("shape", [(8, 8), (28, 28), (32, 32), (16, 24)])
def test_a_thumbnail_keeps_the_mean_of_a_flat_image(shape):
    small = pixels.thumbnail(np.full(math.prod(shape), 0.3), shape)
    assert small.shape == (pixels.SIDE, pixels.SIDE)
    assert small == pytest.approx(0.3)


def test_a_thumbnail_keeps_what_is_where():
    image = np.zeros((28, 28))
    image[:14] = 1.0
    small = pixels.thumbnail(image.ravel(), (28, 28))
    assert small[0].min() == 1.0
    assert small[-1].max() == 0.0

"""Images come once each, together where they came together, in the order of their writing."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

import pytest
from PIL import Image

from clients.data.arrivals import Arrival, arrivals
from clients.data.folder import LOOK_EVERY_S, SETTLED_S, will_hold_images
from clients.http.errors import InputError


class Clock:
    """Time that passes where it is waited for; something may happen at each pause."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.time = folder, 1000.0
        self.happens: list[object] = []

    def now(self) -> float:
        return self.time

    def pause(self, seconds: float) -> None:
        self.time += seconds
        happen = self.happens.pop(0) if self.happens else None
        if callable(happen):
            happen()

    def write(self, name: str, level: int = 0) -> None:
        """An image that is written just now."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (2, 2 + level)).save(path)
        os.utime(path, (self.time, self.time))


@pytest.fixture
def clock(tmp_path: Path) -> Clock:
    return Clock(tmp_path)


def come(
    clock: Clock,
    n: int,
    before: list[Arrival] | None = None,
    most: int = 10,
    changed: list[Path] | None = None,
    unusable: tuple[str, ...] = (),
) -> list[list[Arrival]]:
    """The first n groups."""
    told = [] if changed is None else changed
    found = arrivals(
        clock.folder,
        before or [],
        most=most,
        unusable=unusable,
        changed=told.append,
        pause=clock.pause,
        now=clock.now,
    )
    return list(islice(found, n))


def names(groups: list[list[Arrival]]) -> list[list[str]]:
    return [[one.file for one in group] for group in groups]


def test_images_of_one_look_come_together_in_the_order_of_their_writing(clock: Clock) -> None:
    clock.write("cat/2.png")
    clock.time += 1
    clock.write("1.png")
    (clock.folder / "notes.txt").write_text("no image", "utf-8")
    clock.time += 1
    clock.write("cat/10.png")
    clock.write("cat/9.png")
    clock.time += 60
    assert names(come(clock, 1)) == [["cat/2.png", "1.png", "cat/9.png", "cat/10.png"]]
    assert names(come(clock, 2, most=3)) == [["cat/2.png", "1.png", "cat/9.png"], ["cat/10.png"]]


def test_an_image_that_is_still_written_is_waited_for(clock: Clock) -> None:
    clock.write("a.png")
    clock.time += 60
    clock.write("b.png")
    clock.happens = [lambda: clock.write("b.png", 1)]
    began = clock.time
    assert names(come(clock, 2)) == [["a.png"], ["b.png"]]
    assert clock.time >= began + LOOK_EVERY_S + SETTLED_S


def test_what_was_given_before_is_not_given_again_and_told_where_it_changed(clock: Clock) -> None:
    for name in ("a.png", "b.png"):
        clock.write(name)
    clock.time += 60
    (before,) = come(clock, 1)
    clock.write("b.png", 1)
    clock.write("c.png")
    clock.time += 60
    changed: list[Path] = []
    assert names(come(clock, 1, before, changed=changed)) == [["c.png"]]
    assert changed == [clock.folder / "b.png"]


def test_what_could_not_be_used_is_given_again_once_it_has_changed(clock: Clock) -> None:
    """Whoever wrote it was slow."""
    clock.write("slow.png")
    clock.time += 60
    clock.happens = [None, lambda: clock.write("slow.png", 1)]
    changed: list[Path] = []
    assert names(come(clock, 2, changed=changed, unusable=("slow.png",))) == [["slow.png"]] * 2
    assert changed == []


def test_the_first_files_say_whether_a_folder_is_one_of_images(clock: Clock) -> None:
    clock.happens = [None, lambda: clock.write("cat/1.png")]
    assert will_hold_images(clock.folder, pause=clock.pause)
    (clock.folder / "a.csv").write_text("1,2\n", "utf-8")
    with pytest.raises(InputError, match="holds images"):
        will_hold_images(clock.folder, pause=clock.pause)
    (clock.folder / "cat" / "1.png").unlink()
    assert not will_hold_images(clock.folder, pause=clock.pause)


def test_an_image_of_a_camera_whose_clock_is_ahead_comes_once_it_has_settled(clock: Clock) -> None:
    clock.write("1.png")
    os.utime(clock.folder / "1.png", (9000, 9000))
    assert names(come(clock, 1)) == [["1.png"]]
    assert 1000 + SETTLED_S <= clock.time < 1010

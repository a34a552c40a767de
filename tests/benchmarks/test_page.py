"""Tests for the benchmarks.page module: what it reads in a browser is what it says."""

from __future__ import annotations

import shutil

import pytest

from benchmarks import page


def test_the_page_is_weighed_and_its_frames_are_counted() -> None:
    if not any(map(shutil.which, page.PROGRAMS)):
        pytest.skip("no Chromium on the PATH (Debian, as root: make system)")
    said: list[str] = []
    found = page.measure(quick=True, say=said.append)
    visit, frames = found.values["visit"], found.values["frames"]
    assert set(visit["kb"]) == {"page", "styles", "script", "answers"}
    assert all(size > 0 for size in visit["kb"].values())
    assert visit["own_kb"] == pytest.approx(sum(visit["kb"].values()) - visit["kb"]["answers"])
    assert visit["painted_s"] > 0
    assert set(frames) == {"left alone", "scrolled"}
    for one in frames.values():
        assert one["p50_ms"] <= one["p99_ms"] <= one["slowest_ms"]
        assert one["per_second"] > 0
    # Bytes do not depend on the machine, so that their aim holds here too.
    assert found.floors[0].met
    assert said[0] == "2,000 batches of history"

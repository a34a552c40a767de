"""Tests for clients.commands.explain: what a person reads of a boundary."""

from __future__ import annotations

from typing import Any

import pytest

from clients.commands import explain as module
from clients.http.answers import Boundary, Explanation, FeatureChange


class OneBoundary:
    """A client of a service that has found this."""

    def __init__(self, found: Boundary) -> None:
        self._found = found

    def __enter__(self) -> OneBoundary:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def boundaries(self) -> list[Boundary]:
        return [self._found]

    def boundary(self, id: str) -> Boundary:
        assert id == self._found.id
        return self._found


def said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], explanation: Explanation
) -> str:
    numbers: dict[str, Any] = {"time": 0.0, "entry_id": "1-0", "batch_index": 1}
    numbers |= {"estimated_start_batch": 1, "estimated_start_sample": 2000, "sample_index": 2100}
    numbers |= {"evidence": {}, "version_before": 1, "version_after": 2, "sub_task": 1}
    found = Boundary(
        id="1-0", boundary=1, detector="sequential", explanation=explanation, **numbers
    )
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(module, "GMRClient", lambda _: OneBoundary(found))
    module.explain_command()
    return capsys.readouterr().out


def test_that_no_feature_has_changed_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = "No single feature has changed beyond its sampling error."
    assert line in said(monkeypatch, capsys, Explanation(samples=40, examined=40))
    # Where there are no new samples nobody has looked.
    assert line not in said(monkeypatch, capsys, Explanation())
    changed = FeatureChange(feature=3, share=1.0, mean=2.0, expected=1.0)
    assert line not in said(
        monkeypatch, capsys, Explanation(samples=40, examined=40, features=(changed,))
    )


def test_numbers_that_differ_are_read_apart(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = FeatureChange(0, 1.0, 1764003712.0, 1764000128.0, "clock", before=1764000128.0)
    why = Explanation(samples=40, examined=40, features=(clock,))
    text = said(monkeypatch, capsys, why)
    assert "1764003712" in text
    assert "1764000128" in text
    assert "unknown" in text  # an earlier release has told no deviations


def test_that_a_sensor_sticks_is_read_off_its_deviation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stuck = FeatureChange(0, 1.0, 61.37, 61.44, "temperature", 62.5, 1.5, 0.0)
    text = said(monkeypatch, capsys, Explanation(samples=40, examined=40, features=(stuck,)))
    *_, row = (line.split() for line in text.splitlines() if "temperature" in line)
    assert row[-4:] == ["61.37", "62.5", "0", "1.5"]


def test_the_features_that_changed_most_are_told_in_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stuck = FeatureChange(4, 0.7, 61.44, 61.4, "oil_temp", 62.5, 1.5, 0.0)
    higher = FeatureChange(1, 0.2, 12.0, 9.0, None, 9.0, 2.0, 2.1)
    little = FeatureChange(0, 0.05, 12.0, 9.0, None, 9.0, 2.0, 2.1)
    why = Explanation(samples=40, examined=40, features=(stuck, higher, little))
    text = said(monkeypatch, capsys, why)
    assert "in words" in text
    assert "oil_temp (feature 4) stays at 61.44; before it varied by 1.5" in text
    assert "feature 1 is higher: 12, before 9" in text
    assert "feature 0 is higher" not in text

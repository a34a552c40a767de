"""Tests for the benchmarks.comparison.published module."""

from __future__ import annotations

import pytest

from benchmarks.comparison.curriculum import DATA
from benchmarks.comparison.published import MODELS, SLTS, Reported, model_beside, reported
from benchmarks.continual import paper_accuracy
from benchmarks.paper_preset import PUBLISHED_ACCURACY
from benchmarks.systems.registry import SYSTEMS


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("model", MODELS)
def test_the_table_is_whole_and_no_slt_beats_all_classes_at_once(model: str, data: str) -> None:
    entries = [reported(model, data, slt) for slt in SLTS]
    assert None not in entries
    accuracies = [entry.accuracy for entry in entries if entry is not None]
    assert max(accuracies) == accuracies[0] <= 99.3
    assert min(accuracies) > 20


@pytest.mark.parametrize("data", DATA)
def test_every_place_that_quotes_the_paper_quotes_the_same(data: str) -> None:
    ours = {slt: one.accuracy for slt in SLTS if (one := reported("GMR", data, slt))}
    assert ours == {slt: paper_accuracy(data, slt) for slt in SLTS}
    assert ours == PUBLISHED_ACCURACY.get(data, ours)


def test_entries_are_those_of_the_table() -> None:
    assert reported("GMR", "devanagari", "D2-2-2-2-2a") == Reported(51.6, 2.71)
    assert reported("EWC", "mnist", "D9-1a") == Reported(55.8, 0.26)
    assert reported("GR", "fashion_mnist", "D2-2-2-2-2b") == Reported(69.9, 7.3)


def test_what_the_paper_does_not_report_is_none() -> None:
    assert reported("GMR", "digits", "D10") is None
    assert reported("GMR", "mnist", "0,1/2") is None
    assert reported(model_beside("lda"), "mnist", "D10") is None


def test_every_preset_and_every_baseline_of_the_paper_has_its_column() -> None:
    without = {name for name in SYSTEMS if model_beside(name) is None}
    assert without == {"lda", "fine-tuning"}

"""Tests for the clients.evaluation.run module: its parts. test_evaluate.py runs the whole."""

from __future__ import annotations

import numpy as np

from clients.evaluation.run import entry_position, hide_labels, probabilities_of
from clients.http.answers import Classification


def test_a_share_of_the_labels_is_hidden():
    labels = np.arange(1000)
    shown = hide_labels(labels, 0.3, [0, 1])
    kept = [label for label in shown if label is not None]
    assert 230 < len(kept) < 370
    assert all(shown[label] == label for label in kept)


def test_entries_are_ordered_by_number_not_by_text():
    assert entry_position("99-9") < entry_position("99-10") < entry_position("100-0")


def answered(classes: tuple[object, ...], probabilities: list[list[float]]) -> Classification:
    codes = np.argmax(probabilities, axis=1)
    return Classification(
        model_version=1,
        labels=np.array(classes, dtype=object)[codes],
        codes=codes,
        probabilities=np.array(probabilities),
        classes=classes,  # type: ignore[arg-type]
        log_likelihoods=np.zeros(len(codes)),
        inliers=np.ones(len(codes), dtype=bool),
        p_values=np.ones(len(codes)),
        unknown=np.zeros(len(codes), dtype=bool),
    )


def test_the_probability_of_a_label_that_is_no_class_yet_is_zero():
    answer = answered((1, "b"), [[0.25, 0.75], [1.0, 0.0], [0.5, 0.5]])
    labels = np.array(["b", 1, "new"], dtype=object)
    assert probabilities_of(labels, answer).tolist() == [0.75, 1.0, 0.0]

"""Shares of classes among the newest samples, against the sub-task before them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from core.memory.class_shares import BLOCK, BLOCKS, MOST_CLASSES, ClassShares

LABELS = ["a", "b", 7]


def fed(
    shares: ClassShares,
    weights: Sequence[float],
    batches: int,
    *,
    seed: int,
    likelier: Sequence[float] = (0.0, 0.0, 0.0),
    labelled: bool = False,
) -> ClassShares:
    """Batches of 100 samples of three classes, by these weights."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(batches):
        codes = torch.multinomial(torch.tensor(weights), 100, True, generator=generator)
        noise = torch.randn(100, generator=generator)
        truths = codes if labelled else torch.full_like(codes, -1)
        shares = shares.observed(codes, truths, torch.tensor(likelier)[codes] + noise)
    return shares


def rows_of(shares: ClassShares, most: int = 9) -> dict[object, dict[str, object]]:
    return {row["label"]: row for row in shares.told(LABELS, most)["classes"]}


def test_a_stream_that_stays_has_no_class_that_drifts() -> None:
    for seed in range(20):
        shares = fed(ClassShares(), [0.6, 0.3, 0.1], 40, seed=seed)
        told = shares.told(LABELS, 9)
        assert told["drifting"] == []
    assert told["samples"] + told["reference_samples"] == 4000
    assert BLOCK * BLOCKS <= told["samples"] <= BLOCK * (BLOCKS + 1)
    assert rows_of(shares)["a"]["share"] == pytest.approx(0.6, abs=0.06)
    assert rows_of(shares)["a"]["labelled_share"] is None


def test_a_class_that_comes_more_often_drifts_and_its_rival_too() -> None:
    shares = fed(ClassShares(), [0.5, 0.3, 0.2], 30, seed=1)
    shares = fed(shares, [0.7, 0.1, 0.2], 10, seed=2, labelled=True)
    told = shares.told(LABELS, 9)
    assert set(told["drifting"]) == {"a", "b"}
    rows = rows_of(shares)
    assert rows["a"]["share_change"] > 5
    assert rows["b"]["share_change"] < -5
    assert abs(rows[7]["share_change"]) < 3
    assert rows["a"]["labelled_share"] == pytest.approx(0.7, abs=0.06)


def test_a_class_whose_samples_became_unlikely_drifts() -> None:
    shares = fed(ClassShares(), [0.4, 0.3, 0.3], 30, seed=3)
    shares = fed(shares, [0.4, 0.3, 0.3], 10, seed=4, likelier=[0.0, -1.0, 0.0])
    assert "b" in shares.told(LABELS, 9)["drifting"]
    assert rows_of(shares)["b"]["likelihood_change"] < -5


def test_what_learning_does_to_all_classes_is_no_drift_of_one() -> None:
    shares = fed(ClassShares(), [0.4, 0.3, 0.3], 30, seed=5)
    shares = fed(shares, [0.4, 0.3, 0.3], 10, seed=6, likelier=[2.0, 2.0, 2.0])
    assert shares.told(LABELS, 9)["drifting"] == []


def test_the_classes_beyond_the_cap_are_one_and_still_looked_at() -> None:
    shares = fed(ClassShares(), [0.6, 0.35, 0.05], 30, seed=7)
    shares = fed(shares, [0.6, 0.25, 0.15], 10, seed=8)
    told = shares.told(LABELS, 1)
    assert [row["label"] for row in told["classes"]] == ["a"]
    assert told["other"]["classes"] == 2
    assert told["other"]["share"] == pytest.approx(0.4, abs=0.06)
    assert 7 in told["drifting"]
    assert shares.told(LABELS, 3)["other"] is None
    assert len(shares.told(LABELS, 0)["classes"]) == 0


def test_nothing_is_compared_before_there_is_a_reference() -> None:
    shares = fed(ClassShares(), [0.6, 0.3, 0.1], 5, seed=9)
    assert rows_of(shares)["a"]["share_change"] is None
    assert rows_of(shares)["a"]["reference_share"] is None
    assert ClassShares().told([], 9) == {
        "samples": 0,
        "reference_samples": 0,
        "classes": [],
        "other": None,
        "drifting": [],
    }


def test_what_is_kept_is_bounded_in_samples_and_in_classes() -> None:
    shares = ClassShares()
    for start in range(0, 3000, 100):
        codes = torch.arange(start, start + 100)
        shares = shares.observed(codes, codes, torch.zeros(100))
    assert len(shares.blocks) <= BLOCKS + 1
    assert len(shares.reference) <= MOST_CLASSES + 1
    told = shares.told(list(range(3000)), 5)
    assert told["other"]["classes"] == 2995
    assert told["other"]["share"] == pytest.approx(1.0)


def test_a_class_that_others_overtake_in_learning_does_not_drift() -> None:
    shares = fed(ClassShares(), [0.4, 0.3, 0.3], 30, seed=10)
    shares = fed(shares, [0.4, 0.3, 0.3], 10, seed=11, likelier=[2.0, 0.2, 2.0])
    told = shares.told(LABELS, 9)
    assert told["drifting"] == []
    row = rows_of(shares)["b"]
    assert row["likelihood_change"] < -5
    assert row["likelihood_p_value"] == 1.0


def test_what_came_before_a_model_knew_its_classes_is_not_compared_with() -> None:
    shares, batch = ClassShares(), torch.zeros(100, dtype=torch.long)
    for number in range(40):
        shares = shares.observed(batch, batch, torch.zeros(100), is_settled=number >= 25)
    assert shares.told(LABELS, 9)["reference_samples"] == 1500

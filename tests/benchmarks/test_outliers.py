"""Tests for the benchmark of outlier scores."""

from __future__ import annotations

import pytest

from clients.commands.bench import names

METHODS = {"gmr", "likelihood", "IForest", "LOF", "ECOD", "KNN"}


def test_the_quick_size_ranks_every_method_on_every_kind_of_set() -> None:
    pytest.importorskip("pyod", reason="pyod, of the extra bench, is not installed")
    from benchmarks.outliers import MISSING, measure

    assert "outliers" in names()
    said: list[str] = []
    found = measure(True, said.append)
    results = found.values["results"]
    kinds = {"semi-supervised", "unsupervised", "images", MISSING}
    assert {result["kind"] for result in results} == kinds
    for result in results:
        assert set(result["methods"]) == METHODS
        for runs in result["methods"].values():
            assert all(0 <= run["auroc"] <= 1 and 0 < run["average_precision"] <= 1 for run in runs)
        assert result["methods"]["gmr"][0]["auroc"] > 0.9
    assert len(said) == len(results) == 4
    areas = found.tables[0]
    assert areas.rows[-1][0] == "mean of all"
    assert all(len(row) == len(areas.columns) for row in areas.rows)

"""Tests for the clients.data.outlier_sets module: samples unlike the data."""

from __future__ import annotations

from clients.data.outlier_sets import outlier_sets
from clients.data.tasks import SLT
from tests.clients.data.test_datasets import a_dataset


def test_outlier_sets_have_the_shape_and_range_of_the_data():
    dataset, slt = a_dataset(), SLT.parse("0/1,2")
    sets = outlier_sets(dataset, slt, seed=0)
    assert {"uniform noise", "features shuffled"} == set(sets)
    for samples in sets.values():
        assert samples.shape == (9, 4)
        assert samples.dtype == dataset.train_x.dtype
        assert samples.min() >= -5
        assert samples.max() <= 5

"""Tests for the benchmarks.systems.lda module."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from benchmarks.systems.lda import StreamingLDA
from clients.data.datasets import load_dataset

N_CLASSES = 10


def digits() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Training samples and codes, and test samples."""
    data = load_dataset("digits")
    as_pixels = (torch.from_numpy(part).float() / 255 for part in (data.train_x, data.test_x))
    x, test = as_pixels
    return x, torch.from_numpy(data.train_y), test


def learned(x, y, shrinkage=0.01) -> StreamingLDA:
    lda = StreamingLDA(x.shape[1], N_CLASSES, shrinkage=shrinkage)
    lda.learn(x, y, lambda n: None)
    return lda


@pytest.mark.parametrize("shrinkage", [1e-4, 0.01, 0.5])
def test_it_is_the_lda_of_scikit_learn(shrinkage: float):
    x, y, test = digits()
    reference = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage)
    reference.fit(x.double().numpy(), y.numpy())
    lda = learned(x, y, shrinkage)
    weight, bias = lda.classifier()
    np.testing.assert_allclose(weight.numpy(), reference.coef_, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(bias.numpy(), reference.intercept_, rtol=1e-6, atol=1e-6)
    expected = reference.predict(test.double().numpy())
    assert lda.predict(test).tolist() == expected.tolist()


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**31), cuts=st.lists(st.integers(0, 1437), max_size=4))
def test_neither_order_nor_sub_tasks_matter(seed: int, cuts: list[int]):
    x, y, _ = digits()
    whole = learned(x, y)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    parts = StreamingLDA(x.shape[1], N_CLASSES)
    for rows in order.tensor_split(sorted(cuts)):
        parts.learn(x[rows], y[rows], lambda n: None)
    for one, other in zip(whole.classifier(), parts.classifier(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-8, atol=1e-8)


def test_a_class_never_seen_is_never_named():
    x, y, test = digits()
    lda = learned(x[y < 4], y[y < 4])
    assert set(lda.predict(test).tolist()) == {0, 1, 2, 3}


def test_it_keeps_sums_and_no_sample():
    x, y, _ = digits()
    d = x.shape[1]
    lda = learned(x, y)
    assert lda.parameters == N_CLASSES + N_CLASSES * d + d * d
    assert lda.bytes == 8 * lda.parameters

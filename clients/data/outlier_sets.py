"""Samples that are unlike a data set: what outlier scores are tried on."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from clients.data.datasets import Dataset, data_folders, load_dataset
from clients.data.tasks import SLT

OUTLIER_SAMPLES = 500
"""Samples of each set."""

_RELATED = {"mnist": "fashion_mnist", "fashion_mnist": "mnist"}

Array = NDArray[Any]


def outlier_sets(dataset: Dataset, slt: SLT, seed: int) -> dict[str, Array]:
    """Samples unlike the data, with the same number of features: name -> (n, D).

    Noise and shuffled features are the least that any density should tell apart;
    another data set of the same shape, where one is at hand, is the fair test.
    """
    rng = np.random.default_rng([seed, 2])
    rows = slt.rows(dataset.test_y)
    real = dataset.test_x[rng.permutation(rows)[:OUTLIER_SAMPLES]]
    low, high = dataset.train_x.min(axis=0), dataset.train_x.max(axis=0)
    noise = rng.uniform(low, high, size=real.shape).astype(dataset.train_x.dtype)
    sets = {"uniform noise": noise, "features shuffled": real[:, rng.permutation(real.shape[1])]}
    if dataset.train_x.dtype == np.uint8:
        sets["images inverted"] = 255 - real
    other = _RELATED.get(dataset.name, "")
    if any((folder / f"{other}.npz").is_file() for folder in data_folders()):
        sets[other] = load_dataset(other).test_x[:OUTLIER_SAMPLES]
    return sets

"""Does /outliers tell outliers apart better than the detectors that people use?

Every method learns from the same samples and ranks the same others; what counts is the area
under the ROC curve and the average precision. Three kinds of sets:

* semi-supervised tables: trained on inliers alone, tested on the rest (30 %, stratified);
* unsupervised tables: the same split, outliers left in among what is learned, unlabelled;
* images: a model of one set, and what is none of it (half of the test samples each).

And, in a table of its own, *missing values*: the semi-supervised tables once more, where one in 500
numbers of what is learned is -999.

gmr is the engine with its default settings, one pass in batches of 100, unlabelled, ranking by
typicality; "likelihood" is the same model ranking by its plain log-likelihood. The others
have their libraries' defaults and standardised features, because some of them need that. On
images KNN and LOF have no more than 5,000 of the 20,000 training samples.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.ensemble import IsolationForest
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.neighbors import LocalOutlierFactor
from sklearn.preprocessing import StandardScaler

from clients.commands.bench import Measurement, Say, Table
from clients.data.datasets import data_folders
from core.batch import Batch
from core.config import EngineConfig
from core.engine.engine import Engine

Array = NDArray[np.float32]
Scores = NDArray[Any]

SEEDS = (0, 1, 2)
BATCH = 100
TABLES = ("pendigits", "satellite", "shuttle")
IMAGES = (
    ("mnist", "fashion_mnist"),
    ("mnist", "devanagari"),
    ("mnist", "constants"),
    ("mnist", "noise"),
    ("fashion_mnist", "mnist"),
    ("fashion_mnist", "constants"),
    ("fashion_mnist", "noise"),
)
MOST_IMAGES = 20_000
MOST_NEIGHBOURS = 5_000
TESTED_IMAGES = 2_000
RATES = (0.01, 0.05)
MISSING = "missing values"
MISSING_VALUE = -999
MISSING_SHARE = 0.002


@dataclass(frozen=True)
class Task:
    """What is learned and what is asked.

    Arguments:
        kind: "semi-supervised", "unsupervised", "images" or `MISSING`.
        name: Of the set.
        train: With shape (N, D), in the order of the stream.
        test: With shape (M, D).
        outlier: Which of these are, with shape (M,), bool.
    """

    kind: str
    name: str
    train: Array
    test: Array
    outlier: NDArray[np.bool_]


def measure(quick: bool, say: Say) -> Measurement:
    """Quick: made-up rows and the digits that ship with scikit-learn, one seed."""
    seeds = SEEDS[:1] if quick else SEEDS
    found: dict[tuple[str, str], dict[str, list[dict[str, float]]]] = {}
    rates: dict[tuple[str, str], list[list[float]]] = {}
    for seed in seeds:
        for task in _small(seed) if quick else _at_hand(seed, say):
            key = task.kind, task.name
            scores, achieved = _ranked(task, seed)
            rates.setdefault(key, []).append(achieved)
            for method, ranked in scores.items():
                found.setdefault(key, {}).setdefault(method, []).append(
                    {
                        "auroc": float(roc_auc_score(task.outlier, ranked)),
                        "average_precision": float(average_precision_score(task.outlier, ranked)),
                    }
                )
            areas = {method: runs[-1]["auroc"] for method, runs in found[key].items()}
            say(
                f"{task.kind} {task.name}, seed {seed}: "
                + ", ".join(f"{method} {area:.3f}" for method, area in areas.items())
            )
    values = {
        "seeds": list(seeds),
        "results": [
            {"kind": kind, "set": name, "methods": methods, "false_positives": rates[kind, name]}
            for (kind, name), methods in found.items()
        ],
    }
    whole = {key: methods for key, methods in found.items() if key[0] != MISSING}
    missing = {key: methods for key, methods in found.items() if key[0] == MISSING}
    tables = tuple(
        _table(some, quantity, title)
        for some, quantity, title in (
            (whole, "auroc", "Area under the ROC curve"),
            (whole, "average_precision", "Average precision"),
            (missing, "auroc", f"Area under the ROC curve, {MISSING}"),
        )
    )
    return Measurement((*tables, _rates_table(rates)), values)


def peers(n_images: int | None = None) -> dict[str, Callable[[Array, Array, int], Scores]]:
    """Name -> a function of training samples, test samples and seed; larger is stranger.

    Arguments:
        n_images: Most training samples for those that look for neighbours; None: all.
    """
    # Imported here: it takes seconds, and is an extra.
    from pyod.models.ecod import ECOD
    from pyod.models.knn import KNN

    def forest(train: Array, test: Array, seed: int) -> Scores:
        model = IsolationForest(random_state=seed).fit(train)
        return np.asarray(-model.score_samples(test))

    def factor(train: Array, test: Array, seed: int) -> Scores:
        model = LocalOutlierFactor(novelty=True).fit(train[:n_images])
        return np.asarray(-model.score_samples(test))

    def ecod(train: Array, test: Array, seed: int) -> Scores:
        return np.asarray(ECOD().fit(train).decision_function(test))

    def knn(train: Array, test: Array, seed: int) -> Scores:
        return np.asarray(KNN().fit(train[:n_images]).decision_function(test))

    return {"IForest": forest, "LOF": factor, "ECOD": ecod, "KNN": knn}


def _ranked(task: Task, seed: int) -> tuple[dict[str, Scores], list[float]]:
    """Strangeness per method, and gmr's share of inliers called outliers at each of `RATES`."""
    engine = Engine(EngineConfig(seed=seed))
    state = engine.start()
    for begin in range(0, len(task.train), BATCH):
        rows = torch.from_numpy(task.train[begin : begin + BATCH])
        state, _ = engine.step(state, Batch(rows, images=task.kind == "images"))
    state, _ = engine.settle(state)
    answer = engine.snapshot(state).outliers(torch.from_numpy(task.test))
    if answer.typicality is None or answer.p_values is None:
        raise ValueError(f"{len(task.train)} samples are too few to calibrate {task.name}")
    scores = {
        "gmr": -answer.typicality.numpy(),
        "likelihood": -answer.log_likelihoods.numpy(),
    }
    usual = answer.p_values.numpy()[~task.outlier]
    scaler = StandardScaler().fit(task.train)
    train, test = scaler.transform(task.train), scaler.transform(task.test)
    with warnings.catch_warnings():
        # Equal rows make LOF warn; its scores stand as they are.
        warnings.simplefilter("ignore")
        for name, ranked in peers(MOST_NEIGHBOURS if task.kind == "images" else None).items():
            scores[name] = ranked(train, test, seed)
    return scores, [float((usual <= rate).mean()) for rate in RATES]


def _at_hand(seed: int, say: Say) -> Iterator[Task]:
    """Every set that is in a data folder."""
    for name in TABLES:
        path = _archive(f"ad_{name}")
        if path is None:
            say(f"ad_{name}.npz is not at hand: left out")
            continue
        with np.load(path) as data:
            yield from _tables(name, data["all_x"].astype(np.float32), data["all_y"] == 1, seed)
    for inside, outside in IMAGES:
        made_up = outside in ("constants", "noise")
        paths = [_archive(name) for name in ([inside] if made_up else [inside, outside])]
        if None in paths:
            say(f"{inside} and {outside} are not both at hand: left out")
            continue
        yield _images(inside, outside, seed)


def _tables(name: str, x: Array, outlier: NDArray[np.bool_], seed: int) -> Iterator[Task]:
    train, test, train_outlier, test_outlier = train_test_split(
        x, outlier, test_size=0.3, stratify=outlier, random_state=seed
    )
    inliers = train[~train_outlier]
    yield Task("semi-supervised", name, inliers, test, test_outlier)
    yield Task("unsupervised", name, train, test, test_outlier)
    missing = np.random.default_rng(seed).random(inliers.shape) < MISSING_SHARE
    holed = np.where(missing, np.float32(MISSING_VALUE), inliers)
    yield Task(MISSING, name, holed, test, test_outlier)


def _images(inside: str, outside: str, seed: int) -> Task:
    rng = np.random.default_rng(seed)
    train, usual = _pictures(inside, "train"), _pictures(inside, "test")
    side = usual.shape[1]
    if outside == "constants":
        grey = np.linspace(0, 1, TESTED_IMAGES // 2, dtype=np.float32)
        strange = np.broadcast_to(grey[:, None, None], (len(grey), side, side))
    elif outside == "noise":
        strange = rng.random((TESTED_IMAGES // 2, side, side), dtype=np.float32)
    else:
        strange = _pictures(outside, "test")
        border = (strange.shape[1] - side) // 2
        strange = strange[:, border : border + side, border : border + side]
    chosen = rng.permutation(len(usual))[: TESTED_IMAGES // 2]
    others = rng.permutation(len(strange))[: TESTED_IMAGES // 2]
    test = np.concatenate([usual[chosen], strange[others]])
    outlier = np.arange(len(test)) >= len(chosen)
    order = rng.permutation(len(train))[:MOST_IMAGES]
    name = f"{inside} / {outside}"
    return Task("images", name, _flat(train[order]), _flat(test), outlier)


def _small(seed: int) -> Iterator[Task]:
    rng = np.random.default_rng(seed)
    usual = rng.normal(size=(900, 4)) @ rng.normal(size=(4, 4))
    strange = rng.normal(size=(40, 4)) * 8
    x = np.concatenate([usual, strange]).astype(np.float32)
    yield from _tables("made up", x, np.arange(len(x)) >= len(usual), seed)
    images, labels = load_digits(return_X_y=True)
    images = (images / 16).astype(np.float32)
    few = labels < 5
    train, test = images[few][:800], np.concatenate([images[few][800:], images[~few][:100]])
    outlier = np.arange(len(test)) >= few.sum() - 800
    yield Task("images", "digits", train, test, outlier)


def _archive(name: str) -> Path | None:
    found = (folder / f"{name}.npz" for folder in data_folders())
    return next((path for path in found if path.is_file()), None)


def _pictures(name: str, part: str) -> Array:
    path = _archive(name)
    assert path is not None
    with np.load(path) as data:
        pictures: Array = (data[f"{part}_x"] / np.float32(255)).astype(np.float32)
        return pictures


def _flat(images: NDArray[Any]) -> Array:
    return np.ascontiguousarray(images.reshape(len(images), -1), dtype=np.float32)


def _table(
    found: dict[tuple[str, str], dict[str, list[dict[str, float]]]], quantity: str, title: str
) -> Table:
    """Mean and standard deviation over seeds, then means over the sets of a kind and over all."""
    methods = list(next(iter(found.values())))
    rows = []
    means = np.array(
        [[np.mean([r[quantity] for r in s[m]]) for m in methods] for s in found.values()]
    )
    for (kind, name), per_method in found.items():
        cells = []
        for method in methods:
            values = [run[quantity] for run in per_method[method]]
            spread = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
            cells.append(f"{np.mean(values):.3f}{spread}")
        rows.append((f"{name}, {kind}", *cells))
    kinds = np.array([kind for kind, _ in found])
    averaged = {f"mean, {kind}": kinds == kind for kind in dict.fromkeys(kinds.tolist())}
    averaged["mean of all"] = np.ones(len(kinds), dtype=bool)
    rows += [
        (name, *(f"{value:.3f}" for value in means[chosen].mean(0)))
        for name, chosen in averaged.items()
    ]
    return Table(title, ("set", *methods), tuple(rows))


def _rates_table(rates: dict[tuple[str, str], list[list[float]]]) -> Table:
    rows = tuple(
        (f"{name}, {kind}", *(f"{100 * value:.2f}" for value in np.mean(achieved, axis=0)))
        for (kind, name), achieved in rates.items()
    )
    columns = ("set", *(f"asked {100 * rate:g} %" for rate in RATES))
    return Table("Inliers called outliers by gmr, %", columns, rows)

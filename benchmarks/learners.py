"""How fast do incremental learners take images in, and what do they still know at the end?

MNIST in five sub-tasks of two classes, one after the other, one pass, labelled, in batches of 100;
one thread, processor time of learning alone. Accuracy is on test images of all ten classes after
the last sub-task, and on those of the first sub-task alone. The engine learns as it is served, the
detector included, and boundaries are not told. Learners that are slower than a limit are given
fewer images a class, and the table says how many. All take turns, round by round; a ratio is the
engine's samples a second with the default preset over theirs, within a round.

What the others do not do: none finds boundaries, says how typical a sample is or draws samples,
but for the mixtures that are fitted anew, which keep raw data.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from statistics import median
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks._arithmetic import as_in_the_trainer
from benchmarks.classification.engine import Ours
from benchmarks.classification.incremental import PartialFit, RefittedMixtures
from benchmarks.classification.opponent import Opponent
from benchmarks.classification.rivers import MODELS, Rivers
from benchmarks.classification.sgd import SGD
from clients.commands.bench import Measurement, Say, Table
from clients.data.datasets import load_dataset
from core.config import EngineConfig

DEFAULT: Final = EngineConfig().preset
BATCH: Final = 100
SUB_TASKS: Final = ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))
CLASSES: Final = tuple(range(10))


@dataclass(frozen=True)
class Learner:
    """Somebody who takes part.

    Arguments:
        name: As the table says it.
        make: Seed -> one that knows nothing.
        keeps: What it keeps of raw data beyond a batch.
        slow: Whether it is given fewer images.
        needs: A package, where it is not installed with the project.
    """

    name: str
    make: Callable[[int], Opponent]
    keeps: str
    slow: bool = False
    needs: str | None = None


def _perceptron(seed: int) -> Opponent:
    from sklearn.neural_network import MLPClassifier

    return PartialFit(MLPClassifier((200,), random_state=seed), CLASSES)


def _naive_bayes(seed: int) -> Opponent:
    from sklearn.naive_bayes import GaussianNB

    return PartialFit(GaussianNB(var_smoothing=1e-2), CLASSES)


def _passive_aggressive(seed: int) -> Opponent:
    from sklearn.linear_model import SGDClassifier

    # The passive-aggressive rule (PA-I) as scikit-learn has it within SGDClassifier.
    model = SGDClassifier(
        loss="hinge", penalty=None, learning_rate="pa1", eta0=1.0, random_state=seed
    )
    return PartialFit(model, CLASSES)


LEARNERS: Final = (
    Learner(
        f"gmr-stream, {DEFAULT}",
        lambda seed: Ours(images=True, preset=DEFAULT, seed=seed),
        "the window",
    ),
    Learner(
        "gmr-stream, flat", lambda seed: Ours(images=True, preset="flat", seed=seed), "the window"
    ),
    Learner("GaussianNB", _naive_bayes, "nothing"),
    Learner("SGDClassifier, logistic", lambda seed: SGD(CLASSES, seed), "nothing"),
    Learner("SGDClassifier, PA-I", _passive_aggressive, "nothing"),
    Learner("MLPClassifier, 200 units", _perceptron, "nothing"),
    Learner(
        "BayesianGaussianMixture, fitted anew", RefittedMixtures, "2,000 of each class", slow=True
    ),
    Learner(
        "River, GaussianNB",
        lambda seed: Rivers(MODELS["naive-bayes"](seed)),
        "nothing",
        True,
        "river",
    ),
    Learner(
        "River, HoeffdingTree",
        lambda seed: Rivers(MODELS["hoeffding"](seed)),
        "nothing",
        True,
        "river",
    ),
)


@dataclass(frozen=True)
class Size:
    """How much is measured.

    Arguments:
        data: Name of the data set.
        per_class: Training images of a class.
        slow: The same for those that are slow.
        test: Test images of a class.
        rounds: Turns, each with a seed of its own.
    """

    data: str = "mnist"
    per_class: int = 3000
    slow: int = 500
    test: int = 200
    rounds: int = 3


QUICK: Final = Size("digits", 60, 20, 10, 1)


@dataclass(frozen=True)
class Course:
    """One learner's one round."""

    samples: int
    seconds: float
    accuracy: float
    first: float

    @property
    def per_second(self) -> float:
        """Samples learned."""
        return self.samples / self.seconds


@as_in_the_trainer()
def measure(quick: bool, say: Say) -> Measurement:
    """Quick: a few of the digits that ship with scikit-learn."""
    size = QUICK if quick else Size()
    data = load_dataset(size.data)
    train, test = (data.train_x, data.train_y), (data.test_x, data.test_y)
    found: dict[str, list[Course]] = {}
    for turn in range(size.rounds):
        for learner in LEARNERS:
            if learner.needs is not None and find_spec(learner.needs) is None:
                say(f"{learner.name}: left out, since {learner.needs} is not installed")
                continue
            images = size.slow if learner.slow else size.per_class
            course = _course(learner.make(turn), train, test, images, size.test, turn)
            found.setdefault(learner.name, []).append(course)
            say(f"{learner.name}: {course.per_second:,.0f} samples/s, {course.accuracy:.1%}")
    rows = tuple(_row(one, found, size) for one in LEARNERS if one.name in found)
    columns = (
        "learner",
        "images a class",
        "samples/s",
        f"{DEFAULT} over it",
        "accuracy at the end, %",
        "of the first sub-task, %",
        "raw data kept",
    )
    title = f"{size.data} in five sub-tasks, batches of {BATCH}, {size.rounds} rounds"
    values = {name: [asdict(one) for one in courses] for name, courses in found.items()}
    return Measurement((Table(title, columns, rows),), {"size": asdict(size), "courses": values})


def _course(
    learner: Opponent,
    train: tuple[NDArray[Any], NDArray[Any]],
    test: tuple[NDArray[Any], NDArray[Any]],
    images: int,
    asked: int,
    seed: int,
) -> Course:
    rng = np.random.default_rng(seed)
    seconds, samples = 0.0, 0
    for classes in SUB_TASKS:
        x, y = _some(train, classes, images, rng)
        for first in range(0, len(x), BATCH):
            part = slice(first, first + BATCH)
            begun = time.process_time()
            learner.learn(x[part], y[part])
            seconds += time.process_time() - begun
        samples += len(x)
    right = {}
    for classes in SUB_TASKS:
        x, y = _some(test, classes, asked, rng)
        right[classes] = float((learner.predict(x) == y).mean())
    return Course(samples, seconds, float(np.mean(list(right.values()))), right[SUB_TASKS[0]])


def _some(
    data: tuple[NDArray[Any], NDArray[Any]],
    classes: tuple[int, ...],
    n: int,
    rng: np.random.Generator,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """`n` images of each of these classes, in [0, 1], in any order; with labels."""
    x, y = np.asarray(data[0]).reshape(len(data[0]), -1), np.asarray(data[1])
    rows = np.concatenate([np.flatnonzero(y == label)[:n] for label in classes])
    rng.shuffle(rows)
    scaled = x[rows].astype(np.float32)
    return scaled / np.float32(x.max()), y[rows].astype(np.int64)


def _row(learner: Learner, found: dict[str, list[Course]], size: Size) -> tuple[str, ...]:
    courses, ours = found[learner.name], found[LEARNERS[0].name]
    ratios = [a.per_second / b.per_second for a, b in zip(ours, courses, strict=True)]
    return (
        learner.name,
        f"{size.slow if learner.slow else size.per_class:,}",
        f"{median(one.per_second for one in courses):,.0f}",
        f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
        _spread([one.accuracy for one in courses]),
        _spread([one.first for one in courses]),
        learner.keeps,
    )


def _spread(shares: list[float]) -> str:
    """Mean, least and greatest, in per cent."""
    low, middle, high = (100 * one for one in (min(shares), float(np.mean(shares)), max(shares)))
    return f"{middle:.1f} ({low:.1f} to {high:.1f})"

"""How good are samples that a model draws, and are its components samples it has seen?

Three measures of one model:

* purity: the share of samples of a requested class that a judge, trained on real data,
  reads as that class;
* realism: the accuracy, on real test data, of a network trained on drawn samples only;
* nearness: the smallest distance between the mean of a component and a training image.
  A component that sits on one is a stored sample, whatever it is called.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cattrs
import torch
from torch import Tensor

from benchmarks.comparison import judge as judges
from benchmarks.comparison.cell import pixels
from benchmarks.comparison.judge import Judge
from benchmarks.comparison.lesson import Lesson
from clients.data.datasets import Dataset
from core.snapshot import Snapshot

GREY_LEVEL = 1 / 255
"""Root mean square difference per pixel below which two images are the same to the eye, and
to a scanner."""

REALISM_EPOCHS = 12


@dataclass(frozen=True)
class Size:
    """How many samples are drawn: per class to be judged, and in all to be learned."""

    judged: int
    learned: int


FULL = Size(judged=200, learned=10_000)
QUICK = Size(judged=20, learned=500)


@dataclass(frozen=True)
class Draws:
    """Measures of samples, drawn in one way. Shares are 0 to 1."""

    purity: float
    purity_of_worst_class: float
    realism: float


@dataclass(frozen=True)
class Nearness:
    """Means of components against training images.

    Attributes:
        components: How many have a mean that is an image.
        smallest: Euclidean distance to the nearest training image, over all of them.
        tolerance: The distance at which two images are the same.
        stored: Components below that.
    """

    components: int
    smallest: float
    tolerance: float
    stored: int


@dataclass(frozen=True)
class Quality:
    """All measures of one model.

    Attributes:
        with_noise: Of samples as they are drawn when nothing is asked for.
        without_noise: Of samples without the noise of single pixels.
        nearness: None where components are not images.
        judge_accuracy: Of the judge on real test data: what it cannot read itself bounds it.
    """

    with_noise: Draws
    without_noise: Draws
    nearness: Nearness | None
    judge_accuracy: float

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values."""
        values: dict[str, Any] = cattrs.unstructure(self)
        return values

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Quality:
        """The inverse of `to_dict`."""
        return cattrs.structure(values, cls)


def measure(lesson: Lesson, judge: Judge, dataset: Dataset, size: Size) -> Quality:
    """Every measure of a lesson's model.

    Arguments:
        judge: Of the same classes.
        dataset: What the model was taught from.
    """
    snapshot, seed = lesson.snapshot, lesson.recipe.seed
    return Quality(
        with_noise=_draws(snapshot, judge, dataset, size, seed, noise=True),
        without_noise=_draws(snapshot, judge, dataset, size, seed, noise=False),
        nearness=nearness(snapshot, pixels(dataset.train_x)),
        judge_accuracy=judge.accuracy,
    )


def purity(snapshot: Snapshot, judge: Judge, n: int, seed: int, *, noise: bool) -> list[float]:
    """Per class, the share of `n` samples that the judge reads as the class asked for."""
    shares = []
    for place, label in enumerate(judge.classes):
        drawn = snapshot.sample(n, [label], _seed(seed, place), noise=noise)
        shares.append(float((judge.labels(drawn.features) == label).double().mean()))
    return shares


def realism(
    snapshot: Snapshot, judge: Judge, dataset: Dataset, n: int, seed: int, *, noise: bool
) -> float:
    """Accuracy on real test data of a network that learned `n` drawn samples and nothing else."""
    each = n // len(judge.classes)
    drawn = [
        snapshot.sample(each, [label], _seed(seed, place), noise=noise)
        for place, label in enumerate(judge.classes)
    ]
    x = torch.cat([one.features for one in drawn])
    y = torch.arange(len(drawn)).repeat_interleave(each)
    network = judges.train(x, y, judge.image, len(drawn), epochs=REALISM_EPOCHS, seed=seed)
    return judges.accuracy_on_real(network, dataset, judge.classes)


def nearness(snapshot: Snapshot, images: Tensor) -> Nearness | None:
    """How near components come to training images.

    Arguments:
        images: In the units in which the model was taught, with shape (N, D).
    """
    means = snapshot.model.density.tensors().get("means")
    if means is None or means.shape[-1] != images.shape[1]:
        return None
    means = snapshot.standardiser.invert(means.reshape(-1, images.shape[1]))
    nearest = torch.stack([_nearest(means, rows) for rows in torch.split(images, 5000)]).amin(0)
    tolerance = GREY_LEVEL * images.shape[1] ** 0.5
    stored = int((nearest < tolerance).sum())
    return Nearness(len(means), float(nearest.min()), tolerance, stored)


def _nearest(means: Tensor, images: Tensor) -> Tensor:
    """Distance of each mean to the nearest image, with shape (K,)."""
    # The matrix product would lose what is small beside the norms, and small is what counts.
    mode = "donot_use_mm_for_euclid_dist"
    return torch.cdist(means, images, compute_mode=mode).amin(-1)


def _seed(seed: int, place: int) -> int:
    """Of the draw of one class, so that classes do not share their random numbers."""
    return 10_000 * seed + place


def _draws(
    snapshot: Snapshot, judge: Judge, dataset: Dataset, size: Size, seed: int, *, noise: bool
) -> Draws:
    shares = purity(snapshot, judge, size.judged, seed, noise=noise)
    return Draws(
        purity=sum(shares) / len(shares),
        purity_of_worst_class=min(shares),
        realism=realism(snapshot, judge, dataset, size.learned, seed, noise=noise),
    )

"""An independent classifier: a small convolutional network, trained on what it is given.

Trained on real samples it judges drawn ones; trained on drawn ones it is judged by real
ones. It shares nothing with the models that are judged. On MNIST it names 99 % of the
test images right after four epochs, half a minute of one thread.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.comparison.cell import pixels
from benchmarks.comparison.provenance import checksum, digest, source_digest, versions
from benchmarks.comparison.store import write_whole
from clients.data.datasets import Dataset
from core.errors import InvalidCheckpoint
from core.tensors import pack, unpack

FORMAT = "gmr-judge-1"

EPOCHS = 4
MINIBATCH = 128
LARGEST_RATE = 3e-3
WEIGHT_DECAY = 1e-2


@dataclass(frozen=True, eq=False)
class Judge:
    """A trained network.

    Attributes:
        network: Images (N, 1, H, W) -> scores (N, C), in evaluation mode.
        image: (H, W).
        classes: Label of each score.
        accuracy: On the real test samples of these classes, 0 to 1.
        name: Stands for all that determines it.
    """

    network: nn.Module
    image: tuple[int, int]
    classes: tuple[int, ...]
    accuracy: float
    name: str

    def labels(self, x: Tensor) -> Tensor:
        """The label of each image, with shape (N,), int64.

        Arguments:
            x: With shape (N, H * W); what lies outside [0, 1] is cut off, as on paper.
        """
        with torch.no_grad():
            parts = [
                self.network(_images(rows, self.image)).argmax(-1) for rows in torch.split(x, 1000)
            ]
        return torch.tensor(self.classes)[torch.cat(parts)]


def judge_of(dataset: Dataset, classes: tuple[int, ...], folder: Path, quick: bool) -> Judge:
    """The judge of some classes of a data set: from its file, or trained now and kept."""
    assert dataset.image_shape is not None
    name = digest(
        {
            "data": checksum(dataset),
            "classes": list(classes),
            "quick": quick,
            "versions": versions(),
            "source": source_digest((), ("benchmarks.comparison.judge",)),
        }
    )
    path = folder / f"{dataset.name}-{len(classes)}-{name}.safetensors"
    network = network_of(dataset.image_shape, len(classes), seed=0)
    try:
        tensors, text = unpack(FORMAT, path.read_bytes())
        network.load_state_dict(tensors)
    except (OSError, InvalidCheckpoint):
        network, accuracy = trained_on_real(dataset, classes, quick)
        tensors = network.state_dict()
        write_whole(path, pack(FORMAT, tensors, {"accuracy": str(accuracy)}))
    else:
        network.eval()
        accuracy = float(text["accuracy"])
    return Judge(network, dataset.image_shape, classes, accuracy, name)


def trained_on_real(
    dataset: Dataset, classes: tuple[int, ...], quick: bool
) -> tuple[nn.Module, float]:
    """A network that learned the training samples, and its accuracy on the test samples."""
    x, y = _part(dataset.train_x, dataset.train_y, classes)
    # So few samples need more looks, and are done in a second all the same.
    epochs = EPOCHS if not quick else 10
    assert dataset.image_shape is not None
    network = train(x, y, dataset.image_shape, len(classes), epochs=epochs, seed=0)
    return network, accuracy_on_real(network, dataset, classes)


def accuracy_on_real(network: nn.Module, dataset: Dataset, classes: tuple[int, ...]) -> float:
    """Share of the real test samples of some classes that a network names right, 0 to 1."""
    assert dataset.image_shape is not None
    x, y = _part(dataset.test_x, dataset.test_y, classes)
    judge = Judge(network, dataset.image_shape, tuple(range(len(classes))), math.nan, "")
    return float((judge.labels(x) == y).double().mean())


def network_of(image: tuple[int, int], n_classes: int, seed: int) -> nn.Module:
    """A network that knows nothing: two strided convolutions and two dense layers."""
    height, width = (-(-side // 4) for side in image)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)  # the only way to seed a layer's first weights
        return nn.Sequential(
            nn.Conv2d(1, 16, 5, stride=2, padding=2),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.Conv2d(16, 32, 5, stride=2, padding=2),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(32 * height * width, 128),
            nn.ReLU(),
            nn.Linear(128, n_classes),
        )


def train(
    x: Tensor, y: Tensor, image: tuple[int, int], n_classes: int, *, epochs: int, seed: int
) -> nn.Module:
    """A network that has learned the given samples, in evaluation mode.

    Arguments:
        x: With shape (N, H * W), N at least `MINIBATCH`.
        y: Class codes, with shape (N,), int64.
        epochs: Passes; the learning rate rises and falls once over all of them.
        seed: Of the first weights and the order of samples.
    """
    torch.set_num_threads(1)
    network = network_of(image, n_classes, seed)
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.AdamW(network.parameters(), weight_decay=WEIGHT_DECAY)
    steps = len(x) // MINIBATCH
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, max_lr=LARGEST_RATE, total_steps=epochs * steps
    )
    network.train()
    for _ in range(epochs):
        order = torch.randperm(len(x), generator=generator)
        for step in range(steps):
            rows = order[step * MINIBATCH : (step + 1) * MINIBATCH]
            loss = nn.functional.cross_entropy(network(_images(x[rows], image)), y[rows])
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            schedule.step()
    return network.eval()


def _images(x: Tensor, image: tuple[int, int]) -> Tensor:
    return x.clamp(0, 1).view(-1, 1, *image)


def _part(features: Any, labels: Any, classes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Samples of some classes, and their codes."""
    y = torch.from_numpy(labels).long()
    wanted = torch.isin(y, torch.tensor(classes))
    codes = torch.full((int(y.max()) + 1,), -1)
    codes[torch.tensor(classes)] = torch.arange(len(classes))
    return pixels(features)[wanted], codes[y[wanted]]

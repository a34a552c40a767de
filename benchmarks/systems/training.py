"""The one way in which networks of the baselines start and are trained.

Rules of this module:

1. A kind of training is a `Step`, what to do with one minibatch; the loop knows no more.
2. Every random number comes from the generator passed in, those of layers included:
   the same seed gives the same network, bit for bit, on a CPU.
3. Weights start as in Keras, in which the paper was written: Glorot uniform, biases at 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from benchmarks.systems.system import Announce

Step = Callable[[Tensor, Tensor], None]
"""Learns from one minibatch: samples (N, D) and class codes (N,)."""


class Progress:
    """Tells of a sub-task's samples as done in proportion to the work done.

    Arguments:
        samples: N of the sub-task; what is announced adds up to it.
        work: Samples that pass through networks, counted once per epoch.
        announce: As in `System.learn`.

    Example:
        >>> said = []
        >>> progress = Progress(samples=10, work=40, announce=said.append)
        >>> for _ in range(4):
        ...     progress(10)
        >>> said
        [2, 3, 2, 3]
    """

    def __init__(self, samples: int, work: int, announce: Announce) -> None:
        self._samples, self._work, self._announce = samples, work, announce
        self._done = self._announced = 0

    def __call__(self, done: int) -> None:
        """So many more samples passed through."""
        self._done += done
        due = self._samples * self._done // self._work
        self._announce(due - self._announced)
        self._announced = due


def train(
    step: Step,
    x: Tensor,
    y: Tensor,
    *,
    epochs: int,
    batch: int,
    device: torch.device,
    generator: torch.Generator,
    progress: Callable[[int], None],
) -> None:
    """Shuffle, cut into minibatches, step; as often as there are epochs.

    Arguments:
        x: Samples, with shape (N, D), anywhere.
        y: Class codes, with shape (N,).
        batch: About how many samples to a minibatch; all are equally large, to within one.
        device: Where the network is.
        generator: On the CPU.
        progress: Called with the samples of each minibatch.
    """
    # No remainder: batch normalisation cannot do with a last minibatch of one sample.
    pieces = max(1, round(len(x) / batch))
    with seeded(generator, device):
        for _ in range(epochs):
            for rows in torch.randperm(len(x), generator=generator).tensor_split(pieces):
                step(x[rows].to(device), y[rows].to(device))
                progress(len(rows))


def glorot(network: nn.Module) -> None:
    """Set every weight and bias of dense and convolutional layers to its start."""
    for layer in network.modules():
        if isinstance(layer, (nn.Linear, nn.Conv2d, nn.ConvTranspose2d)):
            nn.init.xavier_uniform_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


@contextmanager
def seeded(generator: torch.Generator, device: torch.device) -> Iterator[None]:
    """Within, torch's own random numbers follow `generator`; afterwards they go on as before.

    Layers draw their start and their dropout from nowhere else.
    """
    seed = int(torch.randint(2**62, (), generator=generator))
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        torch.manual_seed(seed)
        yield


def numbers_of(network: nn.Module) -> Iterator[Tensor]:
    """Weights, biases and running statistics; a layer's counter of steps is none of these."""
    return (tensor for tensor in network.state_dict().values() if tensor.is_floating_point())

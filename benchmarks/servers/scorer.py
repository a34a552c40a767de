"""The model that every server serves: a snapshot of ours, scored by our own function.

So what differs between two servers is the way in and out, and nothing else.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from core.snapshot import Snapshot

SNAPSHOT: Final = "GMR_PEER_SNAPSHOT"
"""Environment variable: the file of the snapshot."""

THREADS: Final = "GMR_PEER_THREADS"
"""Environment variable: threads of torch."""


class Scorer:
    """Answers what `POST /classify` answers, as arrays.

    Arguments:
        snapshot: A snapshot that knows classes.

    Example:
        >>> hasattr(Scorer, "from_environment")
        True
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot

    @classmethod
    def from_environment(cls) -> Scorer:
        """The one that the process which started this server names."""
        torch.set_num_threads(int(os.environ[THREADS]))
        snapshot, _ = Snapshot.from_bytes(Path(os.environ[SNAPSHOT]).read_bytes())
        return cls(snapshot)

    def answer(self, x: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Labels, probabilities, log-likelihoods and verdicts.

        Arguments:
            x: Samples, with shape (N, D), of any type that torch reads.

        Returns:
            labels: (N,) int64, positions among the classes.
            probabilities: (N, C) float32.
            log_likelihoods: (N,) float32.
            inliers: (N,) bool.
        """
        found = self.snapshot.classify(torch.from_numpy(np.ascontiguousarray(x)))
        return {
            "labels": found.codes.numpy(),
            "probabilities": found.probabilities.to(torch.float32).numpy(),
            "log_likelihoods": found.log_likelihoods.to(torch.float32).numpy(),
            "inliers": found.inliers.numpy(),
        }

    def lists(self, x: NDArray[Any]) -> dict[str, Any]:
        """The same, as JSON can say it."""
        return {name: values.tolist() for name, values in self.answer(x).items()}

"""Streaming linear discriminant analysis on raw pixels (Hayes and Kanan 2020).

One Gaussian per class, all with the same covariance: sums of samples and of their products
are all it takes, so one pass is enough and the order of the samples is of no account.

Written out, because no library served: scikit-learn's has no `partial_fit`, and that of
avalanche-lib 0.6.0 goes through single samples in float32, depends on their order, and
brings in some seventy packages.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from benchmarks.systems.baseline import Baseline
from benchmarks.systems.system import Announce

SHRINKAGE = 1e-2
"""Our choice, one for everything: with all of MNIST, anything from 1e-4 to 0.1 is as good to
within half a point, and with few samples more is better."""

ROWS = 10_000
"""Samples at once."""


class StreamingLDA(Baseline):
    """Running sums, from which the classifier is solved for when it is asked.

    Arguments:
        n_features: D.
        n_classes: C.
        shrinkage: Share of the covariance that is replaced by a multiple of the identity with
            the same trace, 0 to 1, as in scikit-learn.
    """

    name = "lda"
    epochs = "1 pass"

    def __init__(
        self,
        n_features: int,
        n_classes: int,
        *,
        shrinkage: float = SHRINKAGE,
        device: torch.device | str = "cpu",
    ) -> None:
        self._shrinkage = shrinkage
        # Products of pixels are added up before means are subtracted: float64 has room for it.
        self.counts = torch.zeros(n_classes, dtype=torch.float64, device=device)
        self.sums = self.counts.new_zeros(n_classes, n_features)
        self.products = self.counts.new_zeros(n_features, n_features)

    def learn(self, x: Tensor, y: Tensor, announce: Announce) -> None:
        """As `System.learn`."""
        for rows, codes in zip(torch.split(x, ROWS), torch.split(y, ROWS), strict=True):
            values, classes = rows.to(self.sums), codes.to(self.sums.device)
            self.counts.index_add_(0, classes, torch.ones_like(classes, dtype=torch.float64))
            self.sums.index_add_(0, classes, values)
            self.products += values.T @ values
            announce(len(rows))

    def predict(self, x: Tensor) -> Tensor:
        """As `System.predict`; among the classes seen so far."""
        weight, bias = self.classifier()
        parts = [rows.to(weight) @ weight.T + bias for rows in torch.split(x, ROWS)]
        return torch.cat(parts).argmax(-1).cpu()

    def classifier(self) -> tuple[Tensor, Tensor]:
        """Weights (C, D) and biases (C,) of the log posterior, up to a constant per sample.

        Classes never seen have a bias of minus infinity.
        """
        means = self.sums / self.counts.clamp_min(1)[:, None]
        total = self.counts.sum()
        # Within classes: products less what the class means explain.
        covariance = (self.products - means.T @ self.sums) / total
        level = covariance.diagonal().mean()
        covariance *= 1 - self._shrinkage
        covariance.diagonal().add_(self._shrinkage * level)
        weight = torch.linalg.solve(covariance, means.T).T
        return weight, (self.counts / total).log() - (means * weight).sum(-1) / 2

    def kept(self) -> Iterator[Tensor]:
        """The sums."""
        yield from (self.counts, self.sums, self.products)

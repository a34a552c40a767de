"""The model that is served: a density with a read-out, immutable.

Features here are standardised; `core.snapshot` speaks the sender's units.
Throughout: N samples, D features, K components, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from core.density.deep.shifts import NO_SHIFTS, Shifts
from core.density.density import Density
from core.model.readout import PosteriorReadout, Readout

CHUNK = 512
"""Rows that are heard under all shifts at a time: each takes K numbers for every shift."""


@dataclass(frozen=True)
class Model:
    """A trained mixture with its read-out.

    Arguments:
        density: Scores and draws.
        readout: Components to classes.
        shifts: Under which a sample is heard as well when its class is asked for.
    """

    density: Density
    readout: Readout
    shifts: Shifts = NO_SHIFTS

    @property
    def n_components(self) -> int:
        """K."""
        return self.density.n_components

    @property
    def n_classes(self) -> int:
        """C."""
        return self.readout.n_classes

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Every tensor that the model is made of."""
        return (*self.density.tensors().values(), *self.readout.tensors().values())

    def log_likelihood(self, x: Tensor) -> Tensor:
        """Log density in nats of each sample, with shape (N,)."""
        return self.density.score(x).log_likelihood

    def class_probabilities(self, x: Tensor, joint: Tensor) -> Tensor:
        """Class probabilities (N, C) of samples (N, D); rows sum to one.

        With shifts, by Bayes' rule over components and shifts, all of these alike: a sample
        speaks for a class where some shift of it falls on one of its components.

        Arguments:
            joint: What `density.score` said of them, with shape (N, K).
        """
        shares = self.readout.component_classes
        if not len(self.shifts) or shares is None:
            return self.readout.class_probabilities(joint)
        shares = shares.repeat(1 + len(self.shifts), 1)
        readout = PosteriorReadout(shares, self.readout.temperature)
        parts = []
        for begin in range(0, len(x), CHUNK):
            rows = slice(begin, begin + CHUNK)
            shifted = (self.density.score(moved).joint for moved in self.shifts.of_samples(x[rows]))
            parts.append(readout.class_probabilities(torch.cat([joint[rows], *shifted], 1)))
        return torch.cat(parts)

    def sample_components(self, codes: Tensor | None, n: int, generator: torch.Generator) -> Tensor:
        """Draw the component of each sample, with shape (n,), int64.

        Arguments:
            codes: Wanted class per sample, with shape (n,); None draws by the weights alone.
        """
        if codes is None:
            weights = self.density.log_weights.exp().cpu()
            return torch.multinomial(weights, n, replacement=True, generator=generator)
        signal = self.readout.control_signal(self.density.log_weights).cpu()
        return torch.multinomial(signal[codes], 1, generator=generator)[:, 0]

    def sample(self, components: Tensor, generator: torch.Generator, noise: float = 1.0) -> Tensor:
        """Draw one sample from each component, with shape (n, D); see `Density.sample`."""
        return self.density.sample(components, generator, noise)

"""What is served: a density with a read-out, immutable.

Features here are standardised; `core.snapshot` speaks the sender's units.
Throughout: N samples, D features, K components, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from core.density.density import Density
from core.readout import LinearReadout, PosteriorReadout


@dataclass(frozen=True)
class Model:
    """A trained mixture with its read-out.

    Arguments:
        density: Scores and draws.
        readout: Components to classes.
    """

    density: Density
    readout: PosteriorReadout | LinearReadout

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
        parameters = tuple(self.density.tensors().values())
        if isinstance(self.readout, LinearReadout):
            return (*parameters, self.readout.weight, self.readout.bias)
        return (*parameters, self.readout.component_classes)

    def log_likelihood(self, x: Tensor) -> Tensor:
        """Log density in nats of each sample, with shape (N,)."""
        return self.density.score(x).log_likelihood

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

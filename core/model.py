"""What is served: a density, a sampler and a read-out, immutable.

Features here are standardised; `core.snapshot` speaks the sender's units.
Throughout: N samples, D features, K components, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from core.density.diagonal import (
    Mixture,
    NaturalForm,
    log_joint,
    log_sum_exp,
    natural_form,
    sample,
)
from core.readout import LinearReadout, PosteriorReadout


@dataclass(frozen=True)
class Model:
    """A trained mixture with its read-out.

    Two variances are kept: the floored ones score, the raw ones draw. Samples drawn
    with floored variances are grey, and a model refitted on them forgets (docs/method.md).

    Arguments:
        mixture: For inference, with floored variances.
        deviations: Raw standard deviations for sampling, with shape (K, D), not negative.
        readout: Components to classes.
    """

    mixture: Mixture
    deviations: Tensor
    readout: PosteriorReadout | LinearReadout

    @property
    def n_components(self) -> int:
        """K."""
        return self.mixture.n_components

    @property
    def n_classes(self) -> int:
        """C."""
        return self.readout.n_classes

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Every tensor that the model is made of."""
        parameters: tuple[Tensor, ...] = (*self.mixture, self.deviations)
        if isinstance(self.readout, LinearReadout):
            return (*parameters, self.readout.weight, self.readout.bias)
        return (*parameters, self.readout.component_classes)

    def natural_form(self) -> NaturalForm:
        """The mixture in the form that scores fastest; keep it for repeated use."""
        return natural_form(self.mixture)

    def log_likelihood(self, x: Tensor) -> Tensor:
        """Log density in nats of each sample, with shape (N,)."""
        return log_sum_exp(log_joint(self.mixture, x))

    def sample_components(self, codes: Tensor | None, n: int, generator: torch.Generator) -> Tensor:
        """Draw the component of each sample, with shape (n,), int64.

        Arguments:
            codes: Wanted class per sample, with shape (n,); None draws by the weights alone.
        """
        if codes is None:
            weights = self.mixture.log_weights.exp().cpu()
            return torch.multinomial(weights, n, replacement=True, generator=generator)
        signal = self.readout.control_signal(self.mixture.log_weights).cpu()
        return torch.multinomial(signal[codes], 1, generator=generator)[:, 0]

    def sample(self, components: Tensor, generator: torch.Generator) -> Tensor:
        """Draw one sample from each component, with shape (n, D), with the raw variances."""
        device = self.deviations.device
        return sample(self.mixture.means, self.deviations, components.to(device), generator)

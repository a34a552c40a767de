"""A deep convolutional mixture as it is served."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self, cast

import torch
from torch import Tensor

from core.density.conformity import size
from core.density.deep.folding import Folding
from core.density.deep.layer import image_log_likelihood, score_layer, score_stack
from core.density.deep.sharpening import climb
from core.density.density import Fact, Parts, Scored
from core.density.feature_terms import FeatureTerms, diagonal_terms
from core.density.mixture import Mixture, NaturalForm, natural_form

SHARPENING_RATE = 0.002
"""Of a step of sharpening: the published 0.2 is of the mean over a batch of 100 images."""

LEAST_RESPONSIBILITY = 1e-6
"""What a drawn responsibility counts as where noise took it to zero or below."""


@dataclass(frozen=True, eq=False)
class Layer:
    """One mixture and how it looks at the map below.

    Arguments:
        folding: Cuts the map into patches of d entries.
        mixture: Of patches, for scoring, with floored variances.
        deviations: Raw standard deviations for drawing, with shape (K, d), not negative.
    """

    folding: Folding
    mixture: Mixture
    deviations: Tensor


@dataclass(frozen=True, eq=False)
class DeepDensity:
    """Mixtures on patches, each on the posteriors of the one below; the last sees everything.

    K means the last layer's components: `log_weights`, `score` and `sample` speak of these.

    Arguments:
        layers: From the image upwards.
        choices: S, of how many of the likeliest components a patch below is drawn. Few give
            clean images; all of them, what the model holds to be the distribution.
        sharpening: Steps of gradient ascent on every image that is drawn.
        volume: Nats to take from a log-likelihood, so that a change of units moves it as it
            moves a density of D features.
    """

    kind: ClassVar[str] = "dcgmm"

    layers: tuple[Layer, ...]
    choices: int
    sharpening: int = 0
    volume: float = 0.0

    @property
    def log_weights(self) -> Tensor:
        return self.layers[-1].mixture.log_weights

    @property
    def n_components(self) -> int:
        return self.layers[-1].mixture.n_components

    @property
    def n_features(self) -> int:
        return self.layers[0].folding.map_size

    @property
    def device(self) -> torch.device:
        return self.log_weights.device

    @cached_property
    def stack(self) -> tuple[tuple[Folding, NaturalForm], ...]:
        """The layers in the form that scores fastest."""
        return tuple((layer.folding, natural_form(layer.mixture)) for layer in self.layers)

    @property
    def apart(self) -> Self:
        """The same mixture of images whose patches lie side by side, none overlapping another."""
        first, *others = self.layers
        return replace(self, layers=(replace(first, folding=first.folding.apart), *others))

    def gathered(self) -> DeepDensity:
        return self

    def score(self, x: Tensor, parts: Parts | None = None) -> Scored:
        joint, log_likelihood = score_stack(self.stack, x)
        return Scored(joint, log_likelihood - self.volume)

    def feature_terms(self, x: Tensor) -> FeatureTerms:
        """Pixels have terms in the first layer: the mean over positions of their patches' terms.

        What the layers above say of the whole is part of the rest.
        """
        (folding, form), *above = self.stack
        first = self.layers[0]
        scored = score_layer(folding, form, x)
        largest, winners = scored.joint.max(-1)  # (N * P,)
        terms, expected = diagonal_terms(first.mixture, first.deviations, winners, scored.patches)
        joint, upper = score_stack(above, scored.responsibilities)
        beside = first.mixture.log_weights[winners] - largest
        rest = beside.reshape(len(x), -1).mean(-1) + image_log_likelihood([scored.log_likelihood])
        return FeatureTerms(
            joint.argmax(-1),
            folding.gather(terms) / folding.positions,
            folding.gather(expected) / folding.positions,
            folding.assemble(first.mixture.means[winners]),
            rest + upper - self.volume,
        )

    @property
    def feature_law(self) -> None:
        return None

    def conformity(self, x: Tensor, scored: Scored, *, closeness: bool = True) -> Tensor:
        # Components of the last layer are of posteriors, not of images: they have no closeness.
        return torch.stack([scored.log_likelihood, size(x)], 1)

    def sample(self, components: Tensor, generator: torch.Generator, noise: float = 1.0) -> Tensor:
        components = components.to(self.device)
        for depth in reversed(range(len(self.layers))):
            layer = self.layers[depth]
            patches = layer.mixture.means[components]
            if noise and bool(layer.deviations.any()):
                normal = torch.randn(patches.shape, generator=generator, dtype=patches.dtype)
                deviations = layer.deviations[components] * noise
                patches = torch.addcmul(patches, normal.to(self.device), deviations)
            x = layer.folding.assemble(patches)
            if depth < len(self.layers) - 1:
                x = climb(x, self.stack[depth:], self.sharpening, SHARPENING_RATE)
            if depth:
                below = self.layers[depth - 1].mixture.n_components
                components = self._pick(x.reshape(-1, below), generator)
        return x

    def _pick(self, weights: Tensor, generator: torch.Generator) -> Tensor:
        """A component per row of weights (M, K), among the likeliest few, with shape (M,)."""
        indices = None
        if self.choices < weights.shape[1]:
            weights, indices = weights.topk(self.choices, -1)
        sums = weights.clamp_min(LEAST_RESPONSIBILITY).cumsum(-1)
        # By the inverse of the distribution: one random number per row, not one per entry.
        chance = torch.rand(len(weights), 1, generator=generator, dtype=weights.dtype)
        below = sums[:, :-1] <= chance.to(self.device) * sums[:, -1:]
        drawn = below.sum(-1, keepdim=True)
        return (drawn if indices is None else indices.gather(1, drawn))[:, 0]

    def tensors(self) -> dict[str, Tensor]:
        return {
            f"layer{depth}_{name}": tensor
            for depth, layer in enumerate(self.layers)
            for name, tensor in {
                **layer.mixture._asdict(),
                "deviations": layer.deviations,
            }.items()
        }

    def facts(self) -> dict[str, Fact]:
        foldings = [layer.folding for layer in self.layers]
        first = foldings[0]
        return {
            "image": [first.height, first.width, first.channels],
            "filter_heights": [folding.filter_height for folding in foldings],
            "filter_widths": [folding.filter_width for folding in foldings],
            "strides": [folding.stride for folding in foldings],
            "choices": self.choices,
            "sharpening": self.sharpening,
            "volume": self.volume,
        }

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], facts: Mapping[str, Fact]) -> Self:
        numbers = cast("Mapping[str, list[int]]", facts)
        height, width, channels = numbers["image"]
        layers: list[Layer] = []
        for depth, (filter_height, filter_width, stride) in enumerate(
            zip(
                numbers["filter_heights"],
                numbers["filter_widths"],
                numbers["strides"],
                strict=True,
            )
        ):
            folding = Folding(height, width, channels, filter_height, filter_width, stride)
            mixture = Mixture(*(tensors[f"layer{depth}_{name}"] for name in Mixture._fields))
            layers.append(Layer(folding, mixture, tensors[f"layer{depth}_deviations"]))
            height, width, channels = folding.rows, folding.columns, mixture.n_components
        return cls(
            tuple(layers),
            cast("int", facts["choices"]),
            cast("int", facts["sharpening"]),
            cast("float", facts["volume"]),
        )

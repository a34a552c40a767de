"""Preset `dcgmm` as a learner."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from core.config import EngineConfig
from core.density.deep.density import DeepDensity
from core.density.deep.folding import Folding
from core.density.deep.layer import image_log_likelihood, score_stack
from core.density.deep.layout import image_of, layout
from core.density.density import Scored
from core.density.diagonal.annealing import grid_side
from core.density.diagonal.gradient import Parameters
from core.density.mixture import natural_form
from core.errors import InvalidSettings, ShapeMismatch
from core.learners.learner import Replay, Scores
from core.learners.sgd.base import GradientLearner
from core.learners.sgd.classifier import descend
from core.learners.sgd.dcgmm.ascent import climb_batch
from core.learners.sgd.dcgmm.settings import PUBLISHED, DcgmmSettings, LayerSettings
from core.learners.sgd.dcgmm.state import DcgmmState, DeepGenerator, LayerState
from core.model.model import Model
from core.model.readout import LinearReadout
from core.model.replay import typical_threshold
from core.running import Running

OVERSHOOT = 2.0
"""A mean moves by rate * precision * distance at most; from twice the distance on it diverges."""


class DcgmmLearner(GradientLearner[DcgmmState]):
    """Learns `DcgmmState`; holds settings only.

    Arguments:
        config: K holds for every layer. Its `variance_floor` is the reciprocal of the largest
            precision, its `outlier_c` rejects generated samples, its `seed` starts the means.
        settings: How fast it learns: `PUBLISHED`, `ONE_PASS` or numbers of one's own.

    Raises:
        InvalidSettings: K is no square, so that there is no grid of components; the variance
            floor is so small that steps would diverge; or D is known and fits no image.
    """

    state_type = DcgmmState
    anneals = True

    def __init__(self, config: EngineConfig, settings: DcgmmSettings = PUBLISHED) -> None:
        grid_side(config.budget)
        super().__init__(config)
        self.settings = settings
        if config.n_features is not None:
            try:
                image_of(config.n_features, config.image_shape)
            except ShapeMismatch as error:
                raise InvalidSettings(str(error), **error.context) from None
        step = max(
            layer.schedule.rate * layer.rates.means for layer in (settings.patches, settings.last)
        )
        if step > OVERSHOOT * config.variance_floor:
            raise InvalidSettings(
                f"variance_floor is {config.variance_floor}, but gradient steps with a learning "
                f"rate of {step} need at least {step / OVERSHOOT}, or means diverge. Raise "
                f"variance_floor; 0.05 is the published value.",
                variance_floor=config.variance_floor,
                rate=step,
            )

    # What the engine asks of every learner -----------------------------------------------

    def start(self, n_features: int, device: torch.device) -> DcgmmState:
        image = image_of(n_features, self.config.image_shape)
        n_components = self.config.budget
        generator = torch.Generator().manual_seed(self.config.seed)
        layers = tuple(
            self._first(folding, at, generator, device)
            for at, folding in enumerate(layout(image, n_components))
        )
        return DcgmmState(
            layers=layers,
            weight=torch.zeros(n_components, 0, device=device),
            bias=torch.zeros(0, device=device),
            volume=0.0,
            steps=0,
            log_likelihood=Running(),
            samples=0,
            earlier_samples=0,
            sub_task=0,
            generator=None,
        )

    def rescale(self, state: DcgmmState, factor: Tensor, offset: Tensor) -> DcgmmState:
        """Exact where all pixels change alike; else a patch's entry follows the mean of its pixels.

        The components serve all positions, so they cannot follow each pixel by itself. The
        log-likelihood moves by the change of volume, exactly, as that of a density does.
        """
        if not state.steps:
            return state  # nothing in it has units yet: the start is the same in all
        first = state.layers[0]
        index = first.folding.index(factor.device)
        stretch, shift = factor.abs()[index].mean(0), offset[index].mean(0)  # (d,)
        by_patch, by_image = float(stretch.log().sum()), float(factor.abs().log().sum())
        volume = by_image - by_patch  # what the mean over patches does not see of the change

        known = state.generator
        if known is not None:
            lowest, *others = known.density.layers
            mixture = lowest.mixture
            lowest = replace(
                lowest,
                mixture=mixture._replace(
                    means=stretch * mixture.means + shift,
                    precision_root=mixture.precision_root / stretch,
                ),
                deviations=lowest.deviations * stretch,
            )
            density = replace(
                known.density, layers=(lowest, *others), volume=known.density.volume + volume
            )
            known = replace(known, density=density, threshold=known.threshold - by_image)
        parameters = first.parameters
        first = replace(
            first,
            parameters=parameters._replace(
                means=stretch * parameters.means + shift,
                precision_root=parameters.precision_root / stretch,
            ),
            precision_limit=first.precision_limit / stretch,
            # It compares objectives across steps, so they move with the units too.
            annealing=first.annealing.moved(-by_patch),
        )
        return replace(
            state,
            layers=(first, *state.layers[1:]),
            volume=state.volume + volume,
            log_likelihood=replace(state.log_likelihood, mean=state.log_likelihood.mean - by_image),
            generator=known,
        )

    def score(self, state: DcgmmState, x: Tensor) -> Scores | None:
        if not state.steps:
            return None
        stack = [(layer.folding, natural_form(layer.parameters.mixture)) for layer in state.layers]
        joint, log_likelihood = score_stack(stack, x)
        return Scores(x, None, joint, log_likelihood - state.volume)

    def conformity(self, state: DcgmmState, scores: Scores) -> Tensor:
        return self._density(state).conformity(
            scores.x, Scored(scores.joint, scores.log_likelihood)
        )

    def log_weights(self, state: DcgmmState) -> None:
        return None

    def readout(self, state: DcgmmState) -> LinearReadout:
        return LinearReadout(state.weight, state.bias, self.settings.top)

    def learn(
        self,
        state: DcgmmState,
        x: Tensor,
        codes: Tensor,
        scores: Scores | None,
        generator: torch.Generator,
        least: float = -math.inf,
    ) -> tuple[DcgmmState, list[Replay]]:
        # The scores lack what the layers below said, so that they spare nothing.
        del scores
        n, codes = len(x), codes.to(x.device)
        state = self._refloored(replace(state, samples=state.samples + n))
        # From here on an image is its patches side by side: see `DeepGenerator`.
        folding = state.layers[0].folding
        x = folding.apart.assemble(folding.patches(x))
        x, codes, replays = self._with_replay(state, n, x, codes, generator)
        # Merged before it is cut: old and new pull on the same steps, not in turn.
        order = torch.randperm(len(x), generator=generator).to(x.device)
        return self._climb(state, x[order], codes[order]), replays

    def begin_sub_task(
        self, state: DcgmmState, generator: torch.Generator
    ) -> tuple[DcgmmState, list[Replay]]:
        if not state.steps:
            return state, []
        threshold = typical_threshold(
            state.log_likelihood.mean, state.log_likelihood.deviation, self.config.outlier_c
        )
        density = replace(self._density(state).apart, choices=len(state.weight))
        frozen = DeepGenerator(density, self.readout(state), threshold)
        begun = replace(
            state,
            layers=tuple(self._restarted(state, depth) for depth in range(len(state.layers))),
            samples=0,
            earlier_samples=state.earlier_samples + state.samples,
            sub_task=state.sub_task + 1,
            generator=frozen,
        )
        return begun, []

    def converged(self, state: DcgmmState) -> bool:
        return all(layer.annealing.hard for layer in state.layers)

    def n_components(self, state: DcgmmState) -> int:
        return len(state.weight)

    def model(self, state: DcgmmState) -> Model | None:
        if not state.steps:
            return None
        density = replace(self._density(state), sharpening=self.config.sharpening)
        return Model(density, self.readout(state))

    # How it is done ----------------------------------------------------------------------

    def _first(
        self, folding: Folding, at: int, generator: torch.Generator, device: torch.device
    ) -> LayerState:
        n_components, reach = self.config.budget, self.settings.start_range
        means = (2 * torch.rand(n_components, folding.patch_size, generator=generator) - 1) * reach
        limit = torch.full((folding.patch_size,), self.config.variance_floor**-0.5, device=device)
        parameters = Parameters(
            torch.zeros(n_components, device=device),
            means.to(device),
            limit.expand(n_components, folding.patch_size).clone(),
        )
        schedule = (self.settings.last if at else self.settings.patches).schedule
        return LayerState(folding, parameters, limit, schedule.start(n_components))

    def _settings(self, state: DcgmmState, depth: int) -> LayerSettings:
        return self.settings.last if depth == len(state.layers) - 1 else self.settings.patches

    def _restarted(self, state: DcgmmState, depth: int) -> LayerState:
        """A layer at a new sub-task."""
        layer, settings = state.layers[depth], self._settings(state, depth)
        if settings.new_radius == 0:
            return layer
        radius = settings.new_radius
        if radius is None:
            radius = settings.schedule.start(self.config.budget).radius
        return replace(layer, annealing=settings.schedule.restart(layer.annealing, radius))

    def _density(self, state: DcgmmState) -> DeepDensity:
        layers = tuple(layer.at_rest for layer in state.layers)
        return DeepDensity(layers, self.settings.choices, volume=state.volume)

    def _refloored(self, state: DcgmmState) -> DcgmmState:
        """The state with the floor where the settings want it, in the present units.

        Only the first layer's follows a change of units. The raw variances stay.
        """
        first, largest = state.layers[0], self.config.variance_floor**-0.5
        wanted = torch.full_like(first.precision_limit, largest)
        if torch.equal(first.precision_limit, wanted):
            return state
        variances = first.raw_variances + self.config.variance_floor
        parameters = first.parameters._replace(precision_root=variances.rsqrt().clamp_max(largest))
        moved = replace(first, parameters=parameters, precision_limit=wanted)
        return replace(state, layers=(moved, *state.layers[1:]))

    def _climb(self, state: DcgmmState, x: Tensor, codes: Tensor) -> DcgmmState:
        """Every layer's steps, from the image upwards, and the classifier's beside the last's."""
        layers = list(state.layers)
        weight, bias = state.weight, state.bias
        log_likelihoods = []
        for depth, layer in enumerate(layers):
            if depth and layers[depth - 1].annealing.radius > self.settings.ready_radius:
                return replace(state, layers=tuple(layers), steps=state.steps + 1)
            climbed = climb_batch(
                layer,
                layer.folding if depth else layer.folding.apart,
                x,
                self._settings(state, depth),
                self.settings.least_precision_root,
            )
            layers[depth], x = climbed.layer, climbed.responsibilities
            log_likelihoods.append(climbed.log_likelihood)

        rate = self.settings.classifier_rate
        # The last layer has one position: a row of scores per sample.
        for joint, known in zip(
            climbed.joints, codes.tensor_split(len(climbed.joints)), strict=True
        ):
            weight, bias = descend(weight, bias, joint, known, rate)

        log_likelihood = image_log_likelihood(log_likelihoods) - state.volume
        return replace(
            state,
            layers=tuple(layers),
            weight=weight,
            bias=bias,
            steps=state.steps + 1,
            log_likelihood=state.log_likelihood.updated(
                len(x), float(log_likelihood.mean()), float(log_likelihood.var(correction=0))
            ),
        )

"""Preset `paper`: Gaussian Mixture Replay as published.

A diagonal mixture of fixed size climbs its own likelihood by stochastic gradient
ascent under neighbourhood annealing; at the same time a linear classifier descends its
cross-entropy on the responsibilities. At a boundary the model is frozen as generator,
and typical samples of it are learned beside those of the new sub-task.

Rules of this module:

1. What the paper says is done as it says; where it contradicts itself or its formulas,
   docs/method-paper.md names the defect and the reading taken here.
2. The classifier's gradients never reach the mixture.
3. No raw sample is held from one minibatch to the next.

Throughout: N samples, D features, K components, C classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from core.config import EngineConfig
from core.density.conformity import diagonal_conformity
from core.density.diagonal.annealing import Annealing, Schedule, grid_side, neighbourhood
from core.density.diagonal.density import DiagonalDensity
from core.density.diagonal.gradient import Parameters, Rates, ascend, gradient, winners
from core.density.mixture import log_joint, log_sum_exp, natural_form_and_peaks
from core.errors import InvalidSettings
from core.learners.learner import Replay, Scores
from core.learners.sgd.base import GradientLearner
from core.learners.sgd.classifier import descend
from core.model.model import Model
from core.model.readout import LinearReadout
from core.model.replay import FrozenGenerator, typical_threshold
from core.running import Running


@dataclass(frozen=True)
class PaperSettings:
    """Numbers of the paper, and of the published code where the paper refers to it.

    Arguments:
        minibatch: B, samples per gradient step. What arrives at once, generated samples
            included, is shuffled and cut into steps of about this size.
        schedule: Of annealing radius and learning rate epsilon_G.
        rates: Of the mixture's parameters, relative to epsilon_G.
        classifier_rate: epsilon_C, of the bias; each row of the weights learns K times as
            fast, because it sees a share of 1/K of the inputs (docs/method-paper.md).
        start_range: Means start uniformly between minus and plus this.
        least_precision_root: Where the roots of the precisions stop falling.
        new_radius: Annealing radius at a new sub-task, unless it is larger still; None takes
            the schedule's first, 0 leaves it where it is.
        top: Components that a control signal may use.
    """

    minibatch: int = 100
    schedule: Schedule = field(default_factory=Schedule)
    rates: Rates = field(default_factory=Rates)
    classifier_rate: float = 0.01
    start_range: float = 0.1
    least_precision_root: float = 0.01
    new_radius: float | None = None
    top: int = 3


PUBLISHED = PaperSettings()
"""For data that are seen many times: annealing takes 3,000 steps of 100 samples or more."""

ONE_PASS = PaperSettings(
    minibatch=10,
    schedule=Schedule(window=20),
    rates=Rates(precision_root=0.5),
    new_radius=1.0,
)
"""For a stream, where nothing is seen twice: ten times the steps from the same samples, a
fifth of the steps to a cut, and a narrower restart, so that 6,000 samples may be enough."""


@dataclass(frozen=True, eq=False)
class PaperState:
    """Everything preset `paper` has learned.

    Arguments:
        logits: Free weights, with shape (K,).
        means: With shape (K, D).
        precision_root: 1 / standard deviation, with shape (K, D).
        precision_limit: Largest precision root, with shape (D,). Follows a change of units;
            the next step brings it back to where the settings want it.
        weight: The classifier's, with shape (K, C).
        bias: The classifier's, with shape (C,).
        annealing: Where the annealing stands.
        steps: Gradient steps taken.
        log_likelihood: Log-likelihood of what was learned, generated samples included, nats.
        samples: Real samples of the present sub-task.
        earlier_samples: Real samples of all earlier sub-tasks.
        sub_task: 0 for the first.
        generator: The model of before the last boundary, if there was one.
    """

    logits: Tensor
    means: Tensor
    precision_root: Tensor
    precision_limit: Tensor
    weight: Tensor
    bias: Tensor
    annealing: Annealing
    steps: int
    log_likelihood: Running
    samples: int
    earlier_samples: int
    sub_task: int
    generator: FrozenGenerator | None

    @property
    def parameters(self) -> Parameters:
        """The mixture's part."""
        return Parameters(self.logits, self.means, self.precision_root)


class PaperLearner(GradientLearner[PaperState]):
    """Learns `PaperState`; holds settings only.

    Arguments:
        config: Its `variance_floor` is the reciprocal of the paper's largest precision,
            its `outlier_c` rejects generated samples, its `seed` starts the means.
        settings: How fast it learns: `PUBLISHED`, `ONE_PASS` or numbers of one's own.

    Raises:
        InvalidSettings: K is no square, so that there is no grid of components; or the
            variance floor is so small that one step could carry a mean past its samples.
    """

    state_type = PaperState
    anneals = True

    def __init__(self, config: EngineConfig, settings: PaperSettings = PUBLISHED) -> None:
        grid_side(config.budget)
        super().__init__(config)
        self.settings = settings
        # A mean moves by rate * precision * distance; from 1 on it overshoots, and diverges.
        step = self.settings.schedule.rate * self.settings.rates.means
        if step > config.variance_floor:
            raise InvalidSettings(
                f"variance_floor is {config.variance_floor}, but gradient steps with a learning "
                f"rate of {step} need at least that, or means overshoot. Raise variance_floor; "
                f"0.05 is the published value.",
                variance_floor=config.variance_floor,
                rate=step,
            )
        self.largest_precision_root = config.variance_floor**-0.5

    # What the engine asks of every learner -----------------------------------------------

    def start(self, n_features: int, device: torch.device) -> PaperState:
        n_components, reach = self.config.budget, self.settings.start_range
        seeded = torch.Generator().manual_seed(self.config.seed)
        means = (2 * torch.rand(n_components, n_features, generator=seeded) - 1) * reach
        limit = torch.full((n_features,), self.largest_precision_root, device=device)
        return PaperState(
            logits=torch.zeros(n_components, device=device),
            means=means.to(device),
            precision_root=limit.expand(n_components, n_features).clone(),
            precision_limit=limit,
            weight=torch.zeros(n_components, 0, device=device),
            bias=torch.zeros(0, device=device),
            annealing=self.settings.schedule.start(n_components),
            steps=0,
            log_likelihood=Running(),
            samples=0,
            earlier_samples=0,
            sub_task=0,
            generator=None,
        )

    def rescale(self, state: PaperState, factor: Tensor, offset: Tensor) -> PaperState:
        if not state.steps:
            return state  # nothing in it has units yet: the start is the same in all
        shift = float(factor.abs().log().sum())  # densities shrink as their space is stretched
        stretch = factor.abs()
        known = state.generator
        if known is not None:
            mixture = known.mixture
            known = replace(
                known,
                mixture=mixture._replace(
                    means=factor * mixture.means + offset,
                    precision_root=mixture.precision_root / stretch,
                ),
                deviations=known.deviations * stretch,
                threshold=known.threshold - shift,
            )
        return replace(
            state,
            means=factor * state.means + offset,
            precision_root=state.precision_root / stretch,
            precision_limit=state.precision_limit / stretch,
            # It compares objectives across steps, so they move with the units too.
            annealing=state.annealing.moved(-shift),
            log_likelihood=replace(state.log_likelihood, mean=state.log_likelihood.mean - shift),
            generator=known,
        )

    def score(self, state: PaperState, x: Tensor) -> Scores | None:
        if not state.steps:
            return None
        x_squared = x.square()
        joint = log_joint(state.parameters.mixture, x, x_squared)
        return Scores(x, x_squared, joint, log_sum_exp(joint))

    def conformity(self, state: PaperState, scores: Scores) -> Tensor:
        mixture = state.parameters.mixture
        weights, (_, log_peaks) = mixture.log_weights, natural_form_and_peaks(mixture)
        return diagonal_conformity(
            weights, log_peaks, scores.x, scores.joint, scores.log_likelihood
        )

    def log_weights(self, state: PaperState) -> Tensor:
        return state.parameters.mixture.log_weights

    def readout(self, state: PaperState) -> LinearReadout:
        return LinearReadout(state.weight, state.bias, self.settings.top)

    def learn(
        self,
        state: PaperState,
        x: Tensor,
        codes: Tensor,
        scores: Scores | None,
        generator: torch.Generator,
        least: float = -math.inf,
    ) -> tuple[PaperState, list[Replay]]:
        n, codes = len(x), codes.to(x.device)
        before = replace(state, samples=state.samples + n)
        state = self._refloored(before)
        if state is not before:
            scores = None
        x, codes, replays = self._with_replay(state, n, x, codes, generator)
        if replays:
            scores = None

        pieces = max(1, round(len(x) / self.settings.minibatch))
        if pieces == 1:
            return self._step(state, x, codes, scores), replays
        # Merged before it is cut: old and new pull on the same steps, not in turn.
        order = torch.randperm(len(x), generator=generator).to(x.device)
        for rows in order.tensor_split(pieces):
            state = self._step(state, x[rows], codes[rows], None)
        return state, replays

    def begin_sub_task(
        self, state: PaperState, generator: torch.Generator
    ) -> tuple[PaperState, list[Replay]]:
        if not state.steps:
            return state, []
        threshold = typical_threshold(
            state.log_likelihood.mean, state.log_likelihood.deviation, self.config.outlier_c
        )
        frozen = FrozenGenerator(
            state.parameters.mixture,
            self._raw_variances(state).sqrt(),
            self.readout(state),
            threshold,
        )
        schedule, radius = self.settings.schedule, self.settings.new_radius
        if radius is None:
            radius = schedule.start(len(state.logits)).radius
        begun = replace(
            state,
            annealing=schedule.restart(state.annealing, radius),
            samples=0,
            earlier_samples=state.earlier_samples + state.samples,
            sub_task=state.sub_task + 1,
            generator=frozen,
        )
        return begun, []

    def converged(self, state: PaperState) -> bool:
        # The rest of the way down to the radius's floor changes no score any more, and at the
        # published pace would leave the detector off for another 2,300 steps.
        return state.annealing.hard

    def n_components(self, state: PaperState) -> int:
        return len(state.logits)

    def model(self, state: PaperState) -> Model | None:
        if not state.steps:
            return None
        density = DiagonalDensity(state.parameters.mixture, self._raw_variances(state).sqrt())
        return Model(density, self.readout(state))

    # How it is done ----------------------------------------------------------------------

    def _raw_variances(self, state: PaperState) -> Tensor:
        """Variances (K, D) without the floor, which is in every one of them and in no data."""
        floor = state.precision_limit.square().reciprocal()
        return (state.precision_root.square().reciprocal() - floor).clamp_min(0)

    def _refloored(self, state: PaperState) -> PaperState:
        """The state with the floor where the settings want it, in the present units.

        After a change of units the largest precision may be so large that a step of the
        means overshoots, or so small that it blurs. The raw variances stay.
        """
        wanted = state.precision_limit.new_full((), self.largest_precision_root)
        if bool((state.precision_limit == wanted).all()):
            return state
        variances = self._raw_variances(state) + wanted.square().reciprocal()
        return replace(
            state,
            precision_root=variances.rsqrt().clamp_max(self.largest_precision_root),
            precision_limit=wanted.expand_as(state.precision_limit).clone(),
        )

    def _step(
        self, state: PaperState, x: Tensor, codes: Tensor, scores: Scores | None
    ) -> PaperState:
        """One gradient step of mixture and classifier, both from the same responsibilities."""
        settings, parameters, annealing = self.settings, state.parameters, state.annealing
        x_squared = x.square() if scores is None else scores.x_squared
        joint = log_joint(parameters.mixture, x, x_squared) if scores is None else scores.joint
        near = None
        if not annealing.hard:
            near = neighbourhood(len(parameters.logits), annealing.radius).to(joint)

        objective, winner = winners(joint, near)
        parameters = ascend(
            parameters,
            gradient(parameters, x, winner, near, x_squared),
            settings.rates,
            annealing.rate,
            (settings.least_precision_root, state.precision_limit),
        )
        weight, bias = descend(state.weight, state.bias, joint, codes, settings.classifier_rate)

        log_likelihood = log_sum_exp(joint) if scores is None else scores.log_likelihood
        return replace(
            state,
            logits=parameters.logits,
            means=parameters.means,
            precision_root=parameters.precision_root,
            weight=weight,
            bias=bias,
            annealing=settings.schedule.update(annealing, float(objective.mean())),
            steps=state.steps + 1,
            log_likelihood=state.log_likelihood.updated(
                len(x), float(log_likelihood.mean()), float(log_likelihood.var(correction=0))
            ),
        )

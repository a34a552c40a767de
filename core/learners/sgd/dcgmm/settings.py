"""The numbers of preset `dcgmm`, and its two paces."""

from __future__ import annotations

from dataclasses import dataclass, field

from core.density.diagonal.annealing import Schedule
from core.density.diagonal.gradient import Rates


@dataclass(frozen=True)
class LayerSettings:
    """The settings by which one layer learns.

    Arguments:
        minibatch: Images per gradient step, about.
        schedule: Of annealing radius and learning rate.
        rates: Of the mixture's parameters, relative to the learning rate.
        new_radius: Annealing radius at a new sub-task, unless it is larger still; None takes
            the schedule's first, 0 leaves radius and learning rate as they are.
    """

    minibatch: int = 100
    schedule: Schedule = field(default_factory=Schedule)
    rates: Rates = field(default_factory=Rates)
    new_radius: float | None = None


@dataclass(frozen=True)
class DcgmmSettings:
    """The settings by which the stack learns.

    Arguments:
        patches: Of the layers below the last.
        last: Of the last layer.
        ready_radius: A layer learns once the one below is annealed down to this radius.
        classifier_rate: Of the bias, see `core.learners.sgd.classifier`.
        start_range: Means start uniformly between minus and plus this.
        least_precision_root: Where the roots of the precisions stop falling.
        top: Components that a control signal may use.
        choices: Of how many of the likeliest components a patch is drawn.
    """

    patches: LayerSettings = field(default_factory=lambda: LayerSettings(new_radius=0.0))
    last: LayerSettings = field(default_factory=LayerSettings)
    ready_radius: float = 2.0
    classifier_rate: float = 0.01
    start_range: float = 0.1
    least_precision_root: float = 0.01
    top: int = 3
    choices: int = 3


PUBLISHED = DcgmmSettings()
"""For data that are seen many times: annealing takes 3,000 steps of 100 samples or more."""

ONE_PASS = DcgmmSettings(
    patches=LayerSettings(
        minibatch=5, schedule=Schedule(radius=2.0, window=10, rate=0.1), new_radius=0.0
    ),
    last=LayerSettings(
        minibatch=5,
        schedule=Schedule(window=20, rate=0.1),
        rates=Rates(logits=5.0, precision_root=0.0),
        new_radius=1.0,
    ),
)
"""For a stream, where nothing is seen twice: twenty times the steps from the same samples, at
twice the rate, and a fifth of the steps to a cut, so that 7,000 samples are enough. The last
layer's weights follow quickly: components that win nothing must not be replayed. Its precisions
stay at their limit, where its inputs, nearly zeros and ones, keep them anyway."""

PACES = {"stream": ONE_PASS, "published": PUBLISHED}
"""By the setting `pace`."""

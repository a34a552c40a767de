"""Neighbourhood annealing: what lets plain SGD train a mixture from a random start.

Components sit on a square grid that wraps around (a torus). While the *annealing
radius* is large, a component's score is averaged with its neighbours' and all of
them move together, as in a self-organising map; as it shrinks, the average becomes
the component's own score and what is climbed is the plain max-component likelihood.

Rules of this module: the controller decides from objective values alone, one per
step; it knows no mixture and no data. Its state is a value.

Throughout: K components on a grid of n x n = K.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from core.errors import InvalidSettings

HARD_RADIUS = 0.2
"""Below it a neighbour weighs less than 4e-6: averaging changes nothing that can be measured."""


def grid_side(n_components: int) -> int:
    """n, the side of the grid.

    Raises:
        InvalidSettings: K is no square.

    Example:
        >>> grid_side(100)
        10
    """
    side = math.isqrt(n_components)
    if n_components < 1 or side * side != n_components:
        below, above = max(side, 1) ** 2, (side + 1) ** 2
        raise InvalidSettings(
            f"n_components is {n_components}, but this preset lays its components out on a "
            f"square grid. Choose a square number, such as {below} or {above}.",
            n_components=n_components,
            squares=[below, above],
        )
    return side


@lru_cache(maxsize=8)
def _squared_distances(side: int) -> Tensor:
    """Squared distances between all cells of an n x n torus, with shape (K, K)."""
    apart = torch.arange(side)
    apart = (apart[:, None] - apart).abs()
    apart = torch.minimum(apart, side - apart).square()  # (n, n), along one axis
    return (apart[:, None, :, None] + apart[None, :, None, :]).reshape(side**2, side**2).double()


@lru_cache(maxsize=8)  # asked for at every step, but the radius changes only with a cut
def neighbourhood(n_components: int, radius: float) -> Tensor:
    """How much every component counts in the averaged score of every other.

    Arguments:
        n_components: K, a square number.
        radius: In cells of the grid, above 0.

    Returns:
        Weights with shape (K, K), float64, on the CPU; rows sum to one. Symmetric, since
        every cell of a torus has the same surroundings.

    Example:
        >>> neighbourhood(4, 1.0)[0].round(decimals=2).tolist()
        [0.39, 0.24, 0.24, 0.14]
    """
    weights = torch.exp(_squared_distances(grid_side(n_components)) / (-2 * radius**2))
    return weights / weights.sum(-1, keepdim=True)


@dataclass(frozen=True)
class Annealing:
    """The state of the annealing.

    Arguments:
        radius: The annealing radius now, in cells.
        rate: The learning rate now.
        total: Sum of the objective over the steps of the present window.
        steps: Steps of the present window.
        first: Mean of the very first window, once it is over.
        last: Mean of the window before the present one, once there is one.
        windows: Windows that are over.
    """

    radius: float
    rate: float
    total: float = 0.0
    steps: int = 0
    first: float = 0.0
    last: float = 0.0
    windows: int = 0

    @property
    def hard(self) -> bool:
        """Whether averaging has ended in effect, so that each sample trains one component."""
        return self.radius <= HARD_RADIUS

    def moved(self, by: float) -> Annealing:
        """The same after a change of units that moves every objective, in nats."""
        return replace(
            self,
            total=self.total + self.steps * by,
            first=self.first + by,
            last=self.last + by,
        )


@dataclass(frozen=True)
class Schedule:
    """Shrinks the radius whenever the objective has stopped rising ("SingleExp").

    The objective is averaged over windows of steps, A_0, A_1, ... Once a window's gain is
    small against all that was gained since the first, -2 delta < (A_i - A_{i-1}) /
    (A_{i-1} - A_0) < delta, radius and learning rate are cut by `factor`.

    Arguments:
        radius: At the start; `None` takes 0.25 sqrt(2 K).
        radius_floor: Where it stays in the end.
        rate: Learning rate at the start.
        rate_floor: Where it stays in the end.
        factor: Of every cut, between 0 and 1.
        delta: How small a relative gain counts as none.
        window: Steps per window.

    Example:
        >>> schedule = Schedule(radius=1.0, window=1)
        >>> annealing = schedule.start(9)
        >>> for objective in [0.0, 10.0, 10.1]:
        ...     annealing = schedule.update(annealing, objective)
        ...     print(annealing.radius)
        1.0
        1.0
        0.9
    """

    radius: float | None = None
    radius_floor: float = 0.01
    rate: float = 0.05
    rate_floor: float = 0.01
    factor: float = 0.9
    delta: float = 0.05
    window: int = 100

    def start(self, n_components: int) -> Annealing:
        """The state before the first step."""
        radius = 0.25 * math.sqrt(2 * n_components) if self.radius is None else self.radius
        return Annealing(radius=max(radius, self.radius_floor), rate=self.rate)

    def update(self, annealing: Annealing, objective: float) -> Annealing:
        """The state after one more step, whose mean annealed log-likelihood was `objective`."""
        total, steps = annealing.total + objective, annealing.steps + 1
        if steps < self.window:
            return replace(annealing, total=total, steps=steps)

        mean = total / steps
        over = replace(annealing, total=0.0, steps=0, last=mean, windows=annealing.windows + 1)
        if annealing.windows == 0:
            return replace(over, first=mean)
        if annealing.windows == 1:
            return over
        gained = annealing.last - annealing.first
        # Written without the division, which fails when the first two windows are alike.
        gain = (mean - annealing.last) * math.copysign(1.0, gained)
        if not -2 * self.delta * abs(gained) < gain < self.delta * abs(gained):
            return over
        return replace(
            over,
            radius=max(self.factor * annealing.radius, self.radius_floor),
            rate=max(self.factor * annealing.rate, self.rate_floor),
        )

    def restart(self, annealing: Annealing, radius: float) -> Annealing:
        """At a new sub-task: widen to `radius` (never narrow), and measure gains afresh.

        The learning rate starts anew with it, since it falls by the same cuts.
        """
        return Annealing(radius=max(radius, annealing.radius), rate=self.rate)

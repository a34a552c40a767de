"""Signal: other components win than before.

The counts of winning components per block of 100 samples are compared with those of up
to 3,000 earlier ones by a two-sample chi-square, which is standardised by its own running
mean and deviation (a model that learns moves all the time) and summed up in a CUSUM. It
sees classes whose likelihood is as high as that of the old ones, to which the inlier rate
is blind. Large batches are cut into blocks, small ones fill a block together, so that it
hardly matters how the stream is cut. A batch that makes a block of its own starts a fresh
one: the tail of what came before must not water down the first samples of something new.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from core.drift.cusum import Cusum
from core.running import Running

BLOCK = 100
"""Samples behind one chi-square."""

LEAST_DEVIATION = 3.0
"""Of the chi-square. Where one component wins nearly always, its own is next to nothing, and
a single stray sample would be a hundred deviations."""


@dataclass(frozen=True, eq=False)
class OccupancyState:
    """What is known of who wins."""

    partition: int  # of the components that the counts are of
    reference: Tensor  # (K,) counts, float64, on the CPU
    pending: Tensor  # (K,) counts of the block being filled
    chi_square: Running
    evidence: Cusum

    @classmethod
    def empty(cls, partition: int = -1, n_components: int = 0) -> OccupancyState:
        """Nothing counted yet."""
        zeros = torch.zeros(n_components, dtype=torch.float64)
        return cls(partition, zeros, zeros, Running(), Cusum())


@dataclass(frozen=True, eq=False)
class BatchOccupancy:
    """One batch, as this signal sees it."""

    blocks: Tensor  # (blocks, K) counts of every block that this batch completes
    rest: Tensor  # (K,) counts of the block that it leaves unfinished
    tail: Tensor  # (K,) counts of an earlier block that it cuts short
    chi_squares: list[float]  # one per block; empty while there is no reference


@dataclass(frozen=True)
class Occupancy:
    """CUSUM of the standardised chi-square.

    Arguments:
        allowance: Deviations of the chi-square that are not yet evidence.
        largest_step: Most evidence one block may add.
        largest_lesson: Most deviations by which one block may move the statistics.
        reference_samples: Memory of the reference.
        least_weight: Samples behind the chi-square's own statistics before it counts.
        spread_weight: Samples that the theoretical variance of a chi-square is worth.
    """

    allowance: float = 1.5
    largest_step: float = 30.0
    largest_lesson: float = 3.0
    reference_samples: float = 3000.0
    least_weight: float = 500.0
    spread_weight: float = 2000.0

    def aligned(self, state: OccupancyState, partition: int, n_components: int) -> OccupancyState:
        """The state, emptied if the components are not those that it counted."""
        if partition == state.partition and n_components == len(state.reference):
            return state
        return OccupancyState.empty(partition, n_components)

    def read(self, state: OccupancyState, components: Tensor) -> BatchOccupancy:
        """Count the winners of a batch, with shape (N,), in blocks."""
        k = len(state.reference)
        nothing = torch.zeros_like(state.pending)
        fresh = len(components) >= BLOCK
        pending, tail = (nothing, state.pending) if fresh else (state.pending, nothing)
        held = int(pending.sum())
        block = (torch.arange(len(components)) + held) // BLOCK
        n_blocks = (held + len(components)) // BLOCK
        counts = torch.bincount(block * k + components.cpu(), minlength=(n_blocks + 1) * k)
        table = counts.reshape(n_blocks + 1, k).double()
        table[0] += pending
        chi_squares = _chi_squares(table[:-1], state.reference)
        return BatchOccupancy(table[:-1], table[-1], tail, chi_squares)

    def weigh(self, state: OccupancyState, batch: BatchOccupancy) -> OccupancyState:
        """With the evidence of a batch; nothing that it is compared with moves."""
        known = state.chi_square
        if known.weight < self.least_weight:
            return state
        deviation, evidence = self._deviation(known), state.evidence
        for value in batch.chi_squares:
            step = (value - known.mean) / deviation - self.allowance
            step = max(-self.largest_step, min(self.largest_step, step))
            evidence = evidence.added(step, BLOCK)
        return replace(state, evidence=evidence)

    def hold(self, state: OccupancyState, batch: BatchOccupancy) -> OccupancyState:
        """A suspect was weighed: its blocks must not be weighed again, nor learned."""
        return replace(state, pending=batch.rest)

    def absorb(self, state: OccupancyState, batch: BatchOccupancy) -> OccupancyState:
        """With the reference following a batch that is no suspect."""
        if len(batch.blocks) == 0:
            return replace(state, pending=batch.rest)
        reference = state.reference + batch.tail + batch.blocks.sum(0)
        reference = reference * min(1.0, self.reference_samples / float(reference.sum()))
        chi_square = state.chi_square
        if batch.chi_squares:
            values = torch.tensor(batch.chi_squares, dtype=torch.float64)
            if chi_square.weight >= self.least_weight:
                # The first block of a change is seldom enough to be a suspect; taken at its
                # word it would widen the deviation and hide the blocks that follow.
                tame = chi_square.mean + self.largest_lesson * self._deviation(chi_square)
                values = values.clamp(max=tame)
            chi_square = chi_square.updated(
                len(values) * BLOCK, float(values.mean()), float(values.var(correction=0))
            )
        return replace(state, reference=reference, pending=batch.rest, chi_square=chi_square)

    def _deviation(self, chi_square: Running) -> float:
        """Of the chi-square, as far as it is known."""
        # Of a chi-square with as many degrees of freedom as its mean, the variance is twice that.
        # A handful of blocks tells little about the spread: until many are in, that stands in.
        trust = chi_square.weight / (chi_square.weight + self.spread_weight)
        variance = trust * chi_square.variance + (1 - trust) * 2 * chi_square.mean
        return max(LEAST_DEVIATION, math.sqrt(variance))


def _chi_squares(blocks: Tensor, reference: Tensor) -> list[float]:
    """Two-sample chi-square of each block (blocks, K) against the reference (K,).

    Components too rare to be counted one by one are counted together, the rarest first, as
    many as make up one sample per block: a chi-square of many nearly empty cells drifts
    upwards while the reference fills, for no other reason.
    """
    m = float(reference.sum())
    if m < BLOCK or len(blocks) == 0:
        return []
    order = reference.argsort(stable=True)
    cell = (reference[order].cumsum(0) * (BLOCK / m)).floor().long().clamp_max(BLOCK)
    known = reference.new_zeros(BLOCK + 1).index_add(0, cell, reference[order])
    seen = blocks.new_zeros(len(blocks), BLOCK + 1).index_add(1, cell, blocks[:, order])
    ratio = math.sqrt(m / BLOCK)
    difference = ratio * seen - known / ratio
    # Cells that neither ever filled have a difference of zero, and count as zero.
    total = (seen + known).clamp_min(1e-12)
    values: list[float] = (difference.square() / total).sum(-1).tolist()
    return values

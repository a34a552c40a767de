"""How far points are from what lies in given directions, up to a length.

The set is {sum_e a_e edge_e: 0 <= a_e <= longest}. Its nearest point to another lies on one of its
faces, on which each a_e is 0, free, or `longest`. There are few edges, so the nearest points of all
faces are looked at; those with a free a_e out of bounds are left out (the problem is one of
least squares with bounds; Lawson and Hanson 1974, chapter 23, go from face to face instead).

Throughout: N points, F coordinates, E edges, B faces: 2^E without a length, 3^E with one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Cone:
    """The set, by its faces.

    Arguments:
        offsets: The fixed part of each face, with shape (B, 1, F).
        parts: (point - offset) @ these are the free a_e, and 0 for the others; (B, F, E).
        rests: (point - offset) @ these is what is left of it; (B, F, F).
        longest: Bound of every a_e, at least 0.
    """

    offsets: Tensor
    parts: Tensor
    rests: Tensor
    longest: float

    @classmethod
    def of(cls, edges: Tensor, longest: float = math.inf) -> Cone:
        """The set of edges, (E, F); of none, or of length 0, it is the origin."""
        n, size = edges.shape
        ends = (False, True) if math.isfinite(longest) else (False,)
        states = [(free, end) for end in ends for free in (False, True) if not (free and end)]
        offsets, parts, rests = [], [], []
        for face in product(states, repeat=n):
            free = [e for e, (is_free, _) in enumerate(face) if is_free]
            fixed = [longest if at_end else 0.0 for _, at_end in face]
            inverse = edges.new_zeros(size, n)
            if free:
                inverse[:, free] = torch.linalg.pinv(edges[free])
            offsets.append((edges.new_tensor(fixed) @ edges)[None])
            parts.append(inverse)
            rests.append(torch.eye(size, dtype=edges.dtype) - inverse @ edges)
        return cls(torch.stack(offsets), torch.stack(parts), torch.stack(rests), longest)

    def squared_distances(self, points: Tensor) -> Tensor:
        """From points (N, F), with shape (N,)."""
        if len(self.offsets) == 1:  # no edges
            return points.square().sum(-1)
        away = points - self.offsets  # (B, N, F)
        free = away @ self.parts
        within = ((free >= 0) & (free <= self.longest)).all(-1)
        return (away @ self.rests).square().sum(-1).where(within, math.inf).amin(0)

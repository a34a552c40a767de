"""The second stage of scoring in two stages, loop by loop."""

from __future__ import annotations

import numpy as np

from core.density.factors.refining import refine


def test_last_bits_do_not_depend_on_where_arrays_lie() -> None:
    rng = np.random.default_rng(0)
    shapes = ((3,), (3, 16), (3, 16), (3, 4, 16), (3, 4, 4), (3, 16, 4))
    parts = [rng.normal(size=shape).astype(np.float32) for shape in shapes]
    x = rng.normal(size=(40, 16)).astype(np.float32)
    order, starts = np.tile(np.arange(40), 3), np.arange(0, 121, 40)
    found, kept = set(), []
    for _ in range(300):
        kept.append(
            np.empty(rng.integers(1, 60), np.float32)
        )  # so that the next ones lie elsewhere
        exact = tuple(part.copy() for part in parts)
        joint = np.zeros((40, 3), np.float32)
        refine(joint, order, starts, 0, x.copy(), exact)
        found.add(joint.tobytes())
    assert len(found) == 1

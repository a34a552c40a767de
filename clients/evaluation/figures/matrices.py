"""Heat maps: the accuracy matrix, and the confusion matrix."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from clients.evaluation.figures.style import (
    FULL,
    INK,
    ON_HEAT,
    PAGE_INCHES,
    SOFT,
    STYLE,
    Classes,
    class_names,
    heat_map,
    hide_spines,
    new_figure,
    shortened,
)

LONGEST_NAME: Final = 20
"""Characters of a class beside a confusion matrix, whose axes would have no room beside more."""


@mpl.rc_context(STYLE)
def accuracy_matrix(matrix: ArrayLike, sub_tasks: Sequence[Classes]) -> Figure:
    """Heat map of the accuracy matrix, with shape (T, T): after sub-task i, on sub-task j.

    Sub-tasks that were still to come are greyed out: a model cannot name a class
    before its first sample.
    """
    table = np.asarray(matrix, dtype=np.float64)
    n = len(table)
    side = min(6.4, max(3.2, 0.62 * n + 1.6))
    figure, axes = new_figure(side + 0.8, side - 0.3)
    past = np.tril(np.ones((n, n), dtype=bool))
    heat_map(axes, np.where(past, table, np.nan))
    for i in range(n):
        for j in range(n):
            if not math.isnan(table[i, j]):
                colour = ON_HEAT if past[i, j] and table[i, j] > FULL else INK
                axes.text(
                    j,
                    i,
                    f"{100 * table[i, j]:.1f}" if past[i, j] else "\N{EN DASH}",
                    ha="center",
                    va="center",
                    fontsize=8.5 if n <= 8 else 6.5,
                    color=colour if past[i, j] else SOFT,
                )
    names = [class_names(classes) for classes in sub_tasks]
    if max(map(len, names)) > 9:
        axes.set_xticks(range(n), names, rotation=40, ha="right", rotation_mode="anchor")
    else:
        axes.set_xticks(range(n), names)
    axes.set_yticks(range(n), [f"{i}:  {name}" for i, name in enumerate(names)])
    axes.set_xlabel("tested on the classes of sub-task")
    axes.set_ylabel("after learning sub-task")
    axes.grid(visible=False)
    axes.tick_params(length=0)
    hide_spines(axes)
    axes.set_title("Accuracy matrix, %")
    return figure


@mpl.rc_context(STYLE)
def confusion(counts: ArrayLike, classes: Classes) -> Figure:
    """Heat map of a confusion matrix, with shape (C, C); each row is a true class, in %."""
    table = np.asarray(counts, dtype=np.float64)
    n = len(table)
    totals = table.sum(axis=1, keepdims=True)
    share = np.divide(table, totals, out=np.zeros_like(table), where=totals > 0)
    names = [shortened(str(label), LONGEST_NAME) for label in classes]
    beside = 0.08 * max(0, max(map(len, names)) - 6)
    side = min(PAGE_INCHES, max(3.4, 0.4 * n + 1.4) + beside)
    figure, axes = new_figure(side - 0.1, side)
    # The square root keeps confusions of a few per cent visible beside the diagonal.
    # What would show as 0 is left out: with 50 classes these are nearly all of 2500 cells.
    heat_map(axes, np.where(share >= 0.002, np.sqrt(share), np.nan))
    if n <= 30:
        for i in range(n):
            for j in range(n):
                if round(100 * share[i, j]) >= 1:
                    axes.text(
                        j,
                        i,
                        f"{100 * share[i, j]:.0f}",
                        ha="center",
                        va="center",
                        fontsize=8 if n <= 12 else 5,
                        color=ON_HEAT if math.sqrt(share[i, j]) > FULL else INK,
                    )
    size = 8.5 if n <= 12 else 6.5
    if max(map(len, names)) > 3:
        axes.set_xticks(
            range(n), names, rotation=60, ha="right", rotation_mode="anchor", fontsize=size
        )
    else:
        axes.set_xticks(range(n), names, fontsize=size)
    axes.set_yticks(range(n), names, fontsize=size)
    axes.set_xlabel("answer of the service")
    axes.set_ylabel("true class")
    axes.grid(visible=False)
    axes.tick_params(length=0)
    hide_spines(axes)
    # The axes of a small one are narrower than the line.
    axes.set_title(f"Confusions at the end,{' ' if side > 5 else chr(10)}% of each true class")
    return figure

"""Accuracy after every sub-task, of one evaluation and of several."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter
from numpy.typing import ArrayLike

from clients.evaluation.figures.style import (
    BLUE,
    GREEN,
    ORANGE,
    PAGE_INCHES,
    PURPLE,
    SKY,
    SOFT,
    STYLE,
    VERMILION,
    Classes,
    class_names,
    new_figure,
    place_legend,
)


@mpl.rc_context(STYLE)
def accuracy(seen: ArrayLike, joint: ArrayLike, sub_tasks: Sequence[Classes]) -> Figure:
    """Accuracy after every sub-task: on the classes seen so far, and on all of them.

    Arguments:
        seen: Accuracy on the test samples of the classes seen by then, with shape
            (S, T): a row per seed.
        joint: Accuracy on the whole joint test set, with shape (S, T).
        sub_tasks: The classes of each sub-task.
    """
    figure, axes = new_figure(PAGE_INCHES, 3.2)
    axes.set_title("Accuracy after every sub-task")
    accuracy_axes(axes, sub_tasks, seen, joint)
    return figure


def accuracy_axes(
    axes: Axes,
    sub_tasks: Sequence[Classes],
    seen: ArrayLike,
    joint: ArrayLike | None = None,
    newest_only: ArrayLike | None = None,
) -> None:
    steps = np.arange(len(sub_tasks))
    n_seeds = len(np.atleast_2d(np.asarray(seen)))
    curves: list[tuple[str, ArrayLike, str, str, int]] = [
        ("classes seen so far", seen, BLUE, "o", 7)
    ]
    if joint is not None:
        curves.append(("all classes", joint, VERMILION, "s", -13))
    if newest_only is not None:
        axes.plot(
            steps,
            np.asarray(newest_only),
            color=SOFT,
            linestyle=(0, (1, 2)),
            label="knowing the newest sub-task only",
        )
    for label, values, colour, marker, offset in curves:
        table = np.atleast_2d(np.asarray(values, dtype=np.float64))
        mean = table.mean(axis=0)
        axes.plot(steps, mean, marker=marker, markersize=5, color=colour, label=label)
        if n_seeds > 1:
            low, high = table.min(axis=0), table.max(axis=0)
            axes.fill_between(steps, low, high, color=colour, alpha=0.18, linewidth=0)
        # The two curves meet at the end: one number will do there.
        for step in steps if offset > 0 else steps[:-1]:
            axes.annotate(
                f"{100 * mean[step]:.1f}",
                (step, mean[step]),
                xytext=(0, offset),
                textcoords="offset points",
                ha="center",
                fontsize=8,
                color=colour,
            )
    axes.set_xticks(steps, [f"{i}\n{class_names(classes)}" for i, classes in enumerate(sub_tasks)])
    axes.set_xlim(-0.4, len(sub_tasks) - 0.6)
    axes.set_ylim(0, 1.09)
    axes.set_yticks(np.linspace(0, 1, 6))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_xlabel("sub-task learned last, and its classes")
    axes.set_ylabel("accuracy" if n_seeds == 1 else f"accuracy, mean and range of {n_seeds} seeds")
    axes.grid(axis="x", visible=False)
    if len(axes.lines) > 1:
        place_legend(axes)


@mpl.rc_context(STYLE)
def compared_accuracy(
    curves: Mapping[str, ArrayLike], sub_tasks: Sequence[Classes] | None = None
) -> Figure:
    """Accuracy on the classes seen so far, after every sub-task, of several evaluations.

    Arguments:
        curves: Per evaluation its name and its accuracies, with shape (S, T): a row per seed.
            They may differ in S and in T.
        sub_tasks: The classes of each sub-task, where all evaluations had the same.
    """
    figure, axes = new_figure(PAGE_INCHES, 3.4)
    longest = 0
    styles = (
        (BLUE, "o", "-"),
        (VERMILION, "s", "--"),
        (GREEN, "^", "-."),
        (PURPLE, "D", ":"),
        (ORANGE, "v", "--"),
        (SKY, "P", "-."),
    )
    lowest = 1.0
    for number, (name, values) in enumerate(curves.items()):
        table = np.atleast_2d(np.asarray(values, dtype=np.float64))
        colour, marker, line = styles[number % len(styles)]
        steps = np.arange(table.shape[1])
        longest = max(longest, len(steps))
        lowest = min(lowest, float(np.nanmin(table)))
        axes.plot(
            steps, table.mean(axis=0), line, marker=marker, markersize=5, color=colour, label=name
        )
        if len(table) > 1:
            low, high = table.min(axis=0), table.max(axis=0)
            axes.fill_between(steps, low, high, color=colour, alpha=0.15, linewidth=0)
    names = [class_names(classes) for classes in sub_tasks or ()]
    axes.set_xticks(range(longest), [f"{i}\n{n}" for i, n in enumerate(names)] or None)
    axes.set_xlim(-0.3, longest - 0.7)
    # Evaluations that are compared often differ by points: the scale begins near the lowest.
    floor = max(0.0, math.floor(10 * (lowest - 0.02)) / 10)
    axes.set_ylim(floor, 1.0 + 0.02 * (1.0 - floor))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_xlabel("sub-task learned last" + (", and its classes" if names else ""))
    axes.set_ylabel("accuracy, classes seen so far")
    axes.grid(axis="x", visible=False)
    axes.set_title(
        "Accuracy after every sub-task, compared", pad=8 + 14 * math.ceil(len(curves) / 3)
    )
    axes.legend(
        loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=3, borderaxespad=0.2, handlelength=2.6
    )
    return figure

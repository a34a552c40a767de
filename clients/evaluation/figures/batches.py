"""What became of every batch of a stream: inlier rate with boundaries, prequential accuracy."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter
from numpy.typing import ArrayLike

from clients.evaluation.figures.style import (
    BLUE,
    FAINT,
    INK,
    ORANGE,
    PAGE_INCHES,
    PAPER,
    SKY,
    SOFT,
    STYLE,
    VERMILION,
    Classes,
    class_names,
    new_figure,
    place_legend,
)
from clients.evaluation.scores import BoundaryScore, running_prequential_accuracy


@mpl.rc_context(STYLE)
def inlier_rate(
    rate: ArrayLike,
    set_aside: Sequence[bool],
    sub_task: Sequence[int],
    boundaries: BoundaryScore,
    sub_tasks: Sequence[Classes],
) -> Figure:
    """Inlier rate of every batch, with the true changes and the boundaries that were found.

    Arguments:
        rate: Share of inliers per batch, with shape (B,); NaN before anything was learned.
        set_aside: Whether each batch was kept apart as a suspected change, B values.
        sub_task: The true sub-task of each batch, B values.
        boundaries: What was found, missed and false, in batches of the same stream.
        sub_tasks: The classes of each sub-task.
    """
    figure, axes = new_figure(PAGE_INCHES, 3.0)
    inlier_rate_axes(axes, rate, set_aside, sub_task, boundaries, sub_tasks)
    axes.set_title("Inlier rate and boundaries", pad=20)
    return figure


def inlier_rate_axes(
    axes: Axes,
    rate: ArrayLike,
    set_aside: Sequence[bool],
    sub_task: Sequence[int],
    boundaries: BoundaryScore,
    sub_tasks: Sequence[Classes],
) -> None:
    """Draw what `inlier_rate` shows on axes of somebody else's figure."""
    values = np.asarray(rate, dtype=np.float64)
    apart = np.asarray(set_aside, dtype=bool)
    batches = np.arange(len(values))
    shade_sub_tasks(axes, sub_task, sub_tasks)
    dense = len(values) > 250
    axes.plot(batches, values, color=BLUE, linewidth=0.6 if dense else 1.0, alpha=0.85)
    if not dense:
        axes.plot(batches[~apart], values[~apart], ".", color=BLUE, markersize=3)
    if apart.any():
        axes.plot(
            batches[apart],
            values[apart],
            linestyle="none",
            marker="o",
            markersize=3.5,
            markerfacecolor=PAPER,
            markeredgecolor=BLUE,
            markeredgewidth=0.9,
            label="batch set aside",
        )
    changes = [match.true.batch for match in boundaries.matches]
    changes += [position.batch for position in boundaries.missed]
    for number, batch in enumerate(sorted(changes)):
        axes.axvline(
            batch - 0.5,
            color=SOFT,
            linestyle=(0, (4, 3)),
            linewidth=1.0,
            label="true change" if number == 0 else None,
        )
    # A report comes at the end of a batch: the marker stands on that batch.
    groups = (
        ("boundary found", [match.found.batch - 1 for match in boundaries.matches], VERMILION, "v"),
        ("false boundary", [position.batch - 1 for position in boundaries.false], INK, "X"),
    )
    for label, found, colour, marker in groups:
        if found:
            # Faint, with a dot at the rate itself: the line must not hide the drop it marks.
            axes.vlines(found, 0, 1.06, color=colour, linewidth=0.9, alpha=0.4, zorder=1.5)
            here = [batch for batch in found if 0 <= batch < len(values)]
            axes.plot(here, values[here], "o", color=colour, markersize=3.5, clip_on=False)
            axes.plot(
                found,
                [1.06] * len(found),
                linestyle="none",
                marker=marker,
                markersize=7,
                color=colour,
                clip_on=False,
                label=label,
            )
    axes.set_xlim(-0.5, max(len(values) - 0.5, 0.5))
    axes.set_ylim(0, 1.06)
    axes.set_yticks(np.linspace(0, 1, 6))
    axes.set_xlabel("batch of the stream")
    axes.set_ylabel("inlier rate")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(axis="x", visible=False)
    place_legend(axes, points_above=16)


@mpl.rc_context(STYLE)
def prequential(
    accuracies: ArrayLike,
    labelled: ArrayLike,
    sub_task: Sequence[int],
    sub_tasks: Sequence[Classes],
    window: int = 10,
    estimates: ArrayLike = (),
) -> Figure:
    """Prequential accuracy per batch and over a sliding window of batches, and its estimate."""
    values = np.asarray(accuracies, dtype=np.float64)
    batches = np.arange(len(values))
    figure, axes = new_figure(PAGE_INCHES, 2.8)
    shade_sub_tasks(axes, sub_task, sub_tasks)
    axes.plot(
        batches, values, ".", markersize=2.5, color=SKY, alpha=0.8, label="single batch", zorder=2
    )
    axes.plot(
        batches,
        running_prequential_accuracy(values, labelled, window),
        color=BLUE,
        label=f"last {window} batches",
    )
    expected = np.asarray(estimates, dtype=np.float64)
    if len(expected) == len(values) and not np.isnan(expected).all():
        axes.plot(batches, expected, color=ORANGE, linestyle="--", label="expected without labels")
    axes.set_xlim(-0.5, max(len(values) - 0.5, 0.5))
    axes.set_ylim(0, 1.03)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("batch of the stream")
    axes.set_ylabel("prequential accuracy")
    axes.grid(axis="x", visible=False)
    axes.set_title("Prequential accuracy", pad=20)
    place_legend(axes, points_above=16)
    return figure


def shade_sub_tasks(axes: Axes, sub_task: Sequence[int], sub_tasks: Sequence[Classes]) -> None:
    """Shade every other sub-task, and name the classes of each above the axes."""
    tasks = np.asarray(sub_task)
    starts = [0, *(np.flatnonzero(np.diff(tasks)) + 1).tolist()] if len(tasks) else []
    ends = [*starts[1:], len(tasks)]
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        if number % 2:
            axes.axvspan(start - 0.5, end - 0.5, color=FAINT, linewidth=0, zorder=0)
        axes.annotate(
            class_names(sub_tasks[tasks[start]]),
            ((start + end - 1) / 2, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 9),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=8.5,
            color=INK,
        )

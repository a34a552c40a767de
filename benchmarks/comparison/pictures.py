"""The paper's figures, from models of ours.

Rules: those of `clients.evaluation.figures`, whose style and axes these are: plain values in, a
`Figure` out, no pyplot; nothing drawn that the values do not say. Images are drawn on the
grey scale of the data, 0 white to 1 black, and what lies outside is cut off.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from benchmarks.comparison.lesson import BATCH, Trace
from clients.data.tasks import SLT
from clients.evaluation.figures import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PAGE_INCHES,
    SOFT,
    STYLE,
    VERMILION,
    inlier_rate_axes,
    place_legend,
    shade_sub_tasks,
)
from clients.evaluation.scores import Position, match_boundaries, running_prequential_accuracy

TOLERANCE_BATCHES = 20
"""A boundary reported later than this after the change is false."""

CEILING = 100.0
"""Where the axis of the detector's statistics ends, in thresholds; the axis is logarithmic."""

WINDOW = 10
"""Batches over which the training log-likelihood is averaged."""


@mpl.rc_context(STYLE)
def boundaries(trace: Trace, slt: SLT, title: str) -> Figure:
    """Inlier rate and detector over a stream, with true changes and boundaries found."""
    figure = _figure(PAGE_INCHES, 4.6)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[1.1, 1])
    tasks = np.asarray(trace.sub_task)
    changes = (np.flatnonzero(np.diff(tasks)) + 1).tolist()
    score = match_boundaries(
        [Position(batch, batch * BATCH) for batch in trace.boundaries],
        [Position(batch, batch * BATCH) for batch in changes],
        TOLERANCE_BATCHES * BATCH,
    )
    rate = np.array([np.nan if one is None else one for one in trace.inlier_rate])
    inlier_rate_axes(above, rate, trace.set_aside, trace.sub_task, score, slt.sub_tasks)
    above.set_title(title, pad=20)
    above.set_xlabel("")

    shade_sub_tasks(below, trace.sub_task, slt.sub_tasks)
    for text in list(below.texts):
        text.remove()  # the panel above names the classes already
    for (name, values), (colour, line) in zip(
        trace.ratios.items(), ((BLUE, "-"), (GREEN, "--"), (ORANGE, ":")), strict=False
    ):
        # The axis begins at a hundredth of the threshold: what is below is no evidence at all.
        shown = np.clip(values, 1 / CEILING, CEILING)
        below.plot(shown, color=colour, linestyle=line, linewidth=1.0, label=name)
    below.axhline(1, color=VERMILION, linewidth=1.0, linestyle=(0, (4, 3)), label="threshold")
    found = [batch - 1 for batch in trace.boundaries]
    below.vlines(found, 1 / CEILING, CEILING, color=VERMILION, linewidth=0.9, alpha=0.4)
    below.set_yscale("log")
    below.set_ylim(1 / CEILING, CEILING)
    below.set_ylabel("statistic, in thresholds")
    below.set_xlabel(f"batch of the stream, {BATCH} samples each, {slt.name}")
    below.xaxis.set_major_locator(MaxNLocator(integer=True))
    below.grid(axis="x", visible=False)
    place_legend(below)
    return figure


@mpl.rc_context(STYLE)
def log_likelihoods(traces: Mapping[str, Mapping[str, Trace]]) -> Figure:
    """Log-likelihood of training data and of drawn samples while a model learns.

    Arguments:
        traces: Data set -> preset -> what happened. Every data set has the same presets.
    """
    presets = list(next(iter(traces.values())))
    figure = _figure(PAGE_INCHES, 0.5 + 2.0 * len(traces))
    grid = figure.subplots(len(traces), len(presets), squeeze=False)
    for row, (data, by_preset) in enumerate(traces.items()):
        for column, preset in enumerate(presets):
            axes: Axes = grid[row][column]
            _likelihood_axes(axes, by_preset[preset])
            axes.set_title(f"{data}, {preset}", pad=14)
    figure.supxlabel(f"batches of {BATCH} learned", fontsize=9, color=INK)
    figure.supylabel("mean log-likelihood, nats", fontsize=9, color=INK)
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper right", ncols=3, frameon=False)
    return figure


def _likelihood_axes(axes: Axes, trace: Trace) -> None:
    values = np.array([np.nan if one is None else one for one in trace.log_likelihood])
    mean = running_prequential_accuracy(values, np.ones(len(values)), WINDOW)
    batches = np.arange(1, len(values) + 1)
    axes.plot(batches, mean, color=BLUE, linewidth=1.0, label="training data, not yet learned")
    drawn = [
        ("samples drawn then", trace.sampled, VERMILION, "o"),
        ("the same with the floor of variances", trace.sampled_floored, GREEN, "s"),
    ]
    values_drawn: list[float] = []
    for label, points, colour, marker in drawn:
        if points:
            places, means = zip(*points, strict=True)
            axes.plot(places, means, color=colour, marker=marker, markersize=2.5, label=label)
            values_drawn += means
    # The first batches of a model that knows nothing would squeeze all others into a line.
    shown = np.concatenate([mean[len(mean) // 20 :], np.array(values_drawn)])
    low, high = np.nanquantile(shown, [0.02, 1.0]).tolist()
    margin = 0.06 * max(high - low, 1e-9)
    axes.set_ylim(low - margin, high + margin)
    axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    at_last = np.nanmean(values[-max(1, len(values) // 20) :])
    ends = [f"{points[-1][1]:,.0f}" for _, points, _, _ in drawn if points]
    last = f"at last {at_last:,.0f}, drawn {', '.join(ends)}"
    axes.annotate(
        last,
        (1.0, 1.0),
        xycoords="axes fraction",
        xytext=(0, 4),
        textcoords="offset points",
        ha="right",
        fontsize=8,
        color=SOFT,
    )


@mpl.rc_context(STYLE)
def sheets(
    drawn: Mapping[str, Mapping[str, tuple[NDArray[Any], tuple[int, int]]]], title: str
) -> Figure:
    """Squares of samples: a row per data set, a column per way of drawing.

    Arguments:
        drawn: Row -> column -> samples with shape (n, H * W), n a square number, and (H, W).
            A row may lack columns.
        title: Of the whole.
    """
    columns = list(dict.fromkeys(name for row in drawn.values() for name in row))
    side = min(1.75, PAGE_INCHES / max(len(columns), 4))
    figure = _figure(side * len(columns) + 0.3, (side + 0.05) * len(drawn) + 0.65)
    grid = figure.subplots(len(drawn), len(columns), squeeze=False)
    figure.suptitle(title, x=0.01, ha="left", fontsize=10, fontweight="bold")
    for row, (data, by_column) in enumerate(drawn.items()):
        for column, name in enumerate(columns):
            axes: Axes = grid[row][column]
            axes.set_xticks([])
            axes.set_yticks([])
            for spine in axes.spines.values():
                spine.set_visible(False)
            axes.grid(visible=False)
            if row == 0:
                axes.set_title(name, fontsize=8.5, fontweight="normal", loc="center", pad=4)
            if column == 0:
                axes.set_ylabel(data, color=INK)
            if name in by_column:
                images, shape = by_column[name]
                axes.imshow(_tiled(images, shape), cmap="Greys", vmin=0.0, vmax=1.0)
    return figure


def _tiled(images: ArrayLike, shape: tuple[int, int]) -> NDArray[np.float64]:
    """Images side by side in a square, with white between them."""
    stack = np.asarray(images, dtype=np.float64).reshape(-1, *shape)
    side = round(len(stack) ** 0.5)
    height, width = shape
    gap = max(1, round(0.07 * width))
    canvas = np.full((side * (height + gap) - gap, side * (width + gap) - gap), np.nan)
    for place, image in enumerate(stack[: side * side]):
        top, left = (place // side) * (height + gap), (place % side) * (width + gap)
        canvas[top : top + height, left : left + width] = np.clip(image, 0.0, 1.0)
    return canvas


def _figure(width: float, height: float) -> Figure:
    """An empty figure in our style; sizes in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure

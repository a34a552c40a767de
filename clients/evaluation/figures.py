"""Figures of an evaluation, in one sober style.

Rules: a function takes plain values and returns a `Figure`, and draws nothing
that the values do not say; no pyplot, so no global state and no window; colours
are those of Okabe and Ito, told apart by colour-blind readers too, and no two
things differ by colour alone. Sizes are made for a page 7 inches wide.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, PercentFormatter
from matplotlib.transforms import ScaledTranslation
from numpy.typing import ArrayLike, NDArray

from clients.evaluation.scores import BoundaryScore, FloatArray, running_prequential_accuracy

BLUE, VERMILION, GREEN, ORANGE, SKY, PURPLE = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#E69F00",
    "#56B4E9",
    "#CC79A7",
)
INK, SOFT, FAINT, GRID, PAPER = "#222222", "#767676", "#EDF1F4", "#DDE2E6", "#FFFFFF"
HEAT, ON_HEAT = "#00558A", "#FEFEFE"
"""Cells of heat maps, and what is written on the full ones, on paper of any colour."""
HEATS = LinearSegmentedColormap.from_list("heat", [(*to_rgb(HEAT), 0.0), (*to_rgb(HEAT), 1.0)])
_FULL = 0.7  # where writing on a cell changes its colour
DPI = 150
PAGE_INCHES = 7.0

STYLE: dict[Any, Any] = {
    "figure.facecolor": PAPER,
    "figure.dpi": DPI,
    "savefig.dpi": DPI,
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "text.parse_math": False,  # a class may be called $
    "text.color": INK,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.labelsize": 9,
    "axes.linewidth": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "xtick.major.size": 3,
    "ytick.major.size": 3,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.5,
    "lines.solid_capstyle": "round",
}

Classes = Sequence[object]


def save(figure: Figure, path: Path) -> Path:
    """Write a figure as PNG and give the path back."""
    with mpl.rc_context(STYLE):
        figure.savefig(path)
    return path


def to_svg(figure: Figure) -> str:
    """A figure as SVG text: the same figure gives the same text, and letters stay letters.

    Where things stand is settled by it: what is saved of the figure afterwards is laid out alike.
    """
    with mpl.rc_context({**STYLE, "svg.fonttype": "none", "svg.hashsalt": "gmr"}):
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    figure.set_layout_engine("none")
    return text.getvalue()


@mpl.rc_context(STYLE)
def accuracy(seen: ArrayLike, joint: ArrayLike, sub_tasks: Sequence[Classes]) -> Figure:
    """Accuracy after every sub-task: on the classes seen so far, and on all of them.

    Arguments:
        seen: Accuracy on the test samples of the classes seen by then, with shape
            (S, T): a row per seed.
        joint: Accuracy on the whole joint test set, with shape (S, T).
        sub_tasks: The classes of each sub-task.
    """
    figure, axes = _figure(PAGE_INCHES, 3.2)
    axes.set_title("Accuracy after every sub-task")
    _accuracy_axes(axes, sub_tasks, seen, joint)
    return figure


def _accuracy_axes(
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
    axes.set_xticks(steps, [f"{i}\n{_names(classes)}" for i, classes in enumerate(sub_tasks)])
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
    figure, axes = _figure(PAGE_INCHES, 3.4)
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
    names = [_names(classes) for classes in sub_tasks or ()]
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


@mpl.rc_context(STYLE)
def accuracy_matrix(matrix: ArrayLike, sub_tasks: Sequence[Classes]) -> Figure:
    """Heat map of the accuracy matrix, with shape (T, T): after sub-task i, on sub-task j.

    Sub-tasks that were still to come are greyed out: a model cannot name a class
    before its first sample.
    """
    table = np.asarray(matrix, dtype=np.float64)
    n = len(table)
    side = min(6.4, max(3.2, 0.62 * n + 1.6))
    figure, axes = _figure(side + 0.8, side - 0.3)
    past = np.tril(np.ones((n, n), dtype=bool))
    _heat(axes, np.where(past, table, np.nan))
    for i in range(n):
        for j in range(n):
            if not math.isnan(table[i, j]):
                colour = ON_HEAT if past[i, j] and table[i, j] > _FULL else INK
                axes.text(
                    j,
                    i,
                    f"{100 * table[i, j]:.1f}" if past[i, j] else "\N{EN DASH}",
                    ha="center",
                    va="center",
                    fontsize=8.5 if n <= 8 else 6.5,
                    color=colour if past[i, j] else SOFT,
                )
    names = [_names(classes) for classes in sub_tasks]
    if max(map(len, names)) > 9:
        axes.set_xticks(range(n), names, rotation=40, ha="right", rotation_mode="anchor")
    else:
        axes.set_xticks(range(n), names)
    axes.set_yticks(range(n), [f"{i}:  {name}" for i, name in enumerate(names)])
    axes.set_xlabel("tested on the classes of sub-task")
    axes.set_ylabel("after learning sub-task")
    axes.grid(visible=False)
    axes.tick_params(length=0)
    _no_spines(axes)
    axes.set_title("Accuracy matrix, %")
    return figure


@mpl.rc_context(STYLE)
def confusion(counts: ArrayLike, classes: Classes) -> Figure:
    """Heat map of a confusion matrix, with shape (C, C); each row is a true class, in %."""
    table = np.asarray(counts, dtype=np.float64)
    n = len(table)
    totals = table.sum(axis=1, keepdims=True)
    share = np.divide(table, totals, out=np.zeros_like(table), where=totals > 0)
    side = min(PAGE_INCHES, max(3.4, 0.4 * n + 1.4))
    figure, axes = _figure(side - 0.1, side)
    # The square root keeps confusions of a few per cent visible beside the diagonal.
    # What would show as 0 is left out: with 50 classes these are nearly all of 2500 cells.
    _heat(axes, np.where(share >= 0.002, np.sqrt(share), np.nan))
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
                        color=ON_HEAT if math.sqrt(share[i, j]) > _FULL else INK,
                    )
    names = [str(label) for label in classes]
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
    _no_spines(axes)
    axes.set_title("Confusions at the end, % of each true class")
    return figure


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
    figure, axes = _figure(PAGE_INCHES, 3.0)
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
    figure, axes = _figure(PAGE_INCHES, 2.8)
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


@mpl.rc_context(STYLE)
def samples(drawn: Mapping[object, ArrayLike], image_shape: tuple[int, int]) -> Figure:
    """A montage: a column of drawn samples per class.

    Arguments:
        drawn: Per class, samples with shape (n, D).
        image_shape: (height, width), whose product is D.
    """
    columns = min(len(drawn), 12)
    blocks = math.ceil(len(drawn) / columns)
    n = max(len(np.asarray(images)) for images in drawn.values())
    cell = PAGE_INCHES / max(columns, 8)
    figure, axes = _figure(max(columns, 4) * cell, blocks * (n * cell + 0.25) + 0.25)
    _montage_axes(axes, drawn, image_shape)
    axes.set_title("Samples drawn from the model, per class", pad=20)
    return figure


def _montage_axes(
    axes: Axes, drawn: Mapping[object, ArrayLike], image_shape: tuple[int, int], columns: int = 12
) -> None:
    height, width = image_shape
    groups = [(str(label), np.asarray(images)) for label, images in drawn.items()]
    columns = min(len(groups), columns)
    n = max(len(images) for _, images in groups)
    gap = max(1, round(0.07 * width))
    head = max(3, round(0.55 * height))  # room for the class names above each block
    blocks = math.ceil(len(groups) / columns)
    step_y, step_x = height + gap, width + gap
    block_height = n * step_y + head
    canvas = np.full((blocks * block_height - head, columns * step_x - gap), np.nan)
    low, high = _grey_range([images for _, images in groups])
    for place, (name, images) in enumerate(groups):
        top, left = (place // columns) * block_height, (place % columns) * step_x
        for row, image in enumerate(images):
            y = top + row * step_y
            grey = (image.reshape(height, width) - low) / (high - low)
            canvas[y : y + height, left : left + width] = np.clip(grey, 0.0, 1.0)
        axes.text(
            left + width / 2 - 0.5, top - 0.12 * height, name, ha="center", va="bottom", fontsize=9
        )
    # Ink on paper: large features are dark, and the gaps (NaN) stay white.
    axes.imshow(canvas, cmap="Greys", vmin=0.0, vmax=1.0, interpolation="none")
    axes.set_axis_off()


@mpl.rc_context(STYLE)
def speed(
    ingest_seconds: ArrayLike, classify_seconds: ArrayLike, batch_size: int, classify_batch: int
) -> Figure:
    """How long requests took: the cumulative distribution of both routes."""
    figure, axes = _figure(PAGE_INCHES, 2.8)
    curves = (
        ("/ingest", ingest_seconds, BLUE, "-"),
        ("/classify", classify_seconds, VERMILION, "--"),
    )
    for label, seconds, colour, line in curves:
        values = np.sort(np.asarray(seconds, dtype=np.float64)) * 1000
        if not len(values):
            continue
        share = np.arange(1, len(values) + 1) / len(values)
        median = float(np.median(values))
        axes.step(
            values,
            share,
            where="post",
            color=colour,
            linestyle=line,
            label=f"{label}, median {median:.1f} ms",
        )
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(
        f"milliseconds per request, log scale "
        f"(ingest: {batch_size:,} samples each, classify: {classify_batch:,})"
    )
    axes.set_ylabel("share of requests")
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_title("Time per request")
    place_legend(axes)
    return figure


@mpl.rc_context(STYLE)
def overview(
    rate: ArrayLike,
    set_aside: Sequence[bool],
    sub_task: Sequence[int],
    boundaries: BoundaryScore,
    sub_tasks: Sequence[Classes],
    seen: ArrayLike,
    newest_only: ArrayLike,
    drawn: Mapping[object, ArrayLike],
    image_shape: tuple[int, int],
) -> Figure:
    """One picture of a whole stream: inlier rate with boundaries, accuracy, drawn samples.

    Arguments as for `inlier_rate`, `accuracy` and `samples`, and
        newest_only: The most that a model which knows nothing but the newest sub-task
            could reach on the classes seen so far, with shape (T,).
    """
    figure = Figure(figsize=(9.6, 5.5), layout="constrained")
    FigureCanvasAgg(figure)
    figure.set_layout_engine("constrained", hspace=0.1, wspace=0.06, w_pad=0.08, h_pad=0.06)
    grid = figure.add_gridspec(2, 2, height_ratios=[1.0, 1.15], width_ratios=[1.0, 1.2])
    top, left, right = (figure.add_subplot(at) for at in (grid[0, :], grid[1, 0], grid[1, 1]))
    top.set_title("Inlier rate of each batch; sub-tasks arrive unannounced", pad=20)
    inlier_rate_axes(top, rate, set_aside, sub_task, boundaries, sub_tasks)
    left.set_title("Accuracy over all classes seen so far")
    _accuracy_axes(left, sub_tasks, seen, newest_only=newest_only)
    legend = left.get_legend()
    if legend is not None:
        legend.remove()
    left.annotate(
        "knowing the newest\nsub-task only",
        (len(sub_tasks) / 2, float(np.asarray(newest_only)[len(sub_tasks) // 2])),
        xytext=(0, 6),
        textcoords="offset points",
        fontsize=8,
        color=SOFT,
    )
    right.set_title("Samples drawn from the model, per class", pad=20)
    _montage_axes(right, drawn, image_shape, columns=10 if len(drawn) <= 10 else 12)
    right.set_anchor("NW")
    return figure


def _figure(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure with one pair of axes, in our style; sizes in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def place_legend(axes: Axes, points_above: float = 2.0) -> None:
    """Put the legend on the title's line, at its right end, where it can hide no data."""
    handles, labels = axes.get_legend_handles_labels()
    lift = ScaledTranslation(0, points_above / 72, axes.figure.dpi_scale_trans)
    axes.legend(
        handles,
        labels,
        loc="lower right",
        bbox_to_anchor=(1.0, 1.0),
        bbox_transform=axes.transAxes + lift,
        ncols=len(handles),
        borderaxespad=0.2,
        borderpad=0.1,
        handletextpad=0.5,
        handlelength=1.8,
        columnspacing=1.3,
    )


def shade_sub_tasks(axes: Axes, sub_task: Sequence[int], sub_tasks: Sequence[Classes]) -> None:
    """Shade every other sub-task, and name the classes of each above the axes."""
    tasks = np.asarray(sub_task)
    starts = [0, *(np.flatnonzero(np.diff(tasks)) + 1).tolist()] if len(tasks) else []
    ends = [*starts[1:], len(tasks)]
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        if number % 2:
            axes.axvspan(start - 0.5, end - 0.5, color=FAINT, linewidth=0, zorder=0)
        axes.annotate(
            _names(sub_tasks[tasks[start]]),
            ((start + end - 1) / 2, 1.0),
            xycoords=("data", "axes fraction"),
            xytext=(0, 9),
            textcoords="offset points",
            ha="center",
            va="center",
            fontsize=8.5,
            color=INK,
        )


def _names(classes: Classes, limit: int = 14) -> str:
    """The classes of a sub-task in a few characters: "0 1", or "0 1 ... 8"."""
    names = [str(label) for label in classes]
    joined = " ".join(names)
    if len(joined) <= limit or len(names) <= 2:
        return joined
    return f"{names[0]} {names[1]} … {names[-1]}"


def _grey_range(groups: Sequence[NDArray[Any]]) -> tuple[float, float]:
    """What is drawn as white and as black: robust, since samples of a density have tails."""
    values = np.concatenate([np.asarray(images, dtype=np.float64).ravel() for images in groups])
    low, high = np.quantile(values, [0.15, 0.995]).tolist()
    return (low, high) if high > low else (low, low + 1.0)


def _heat(axes: Axes, values: FloatArray) -> None:
    """Draw a heat map, a cell a vector square; NaN leaves the paper bare.

    Cells are more or less opaque, not more or less white, so that they read on dark paper too.
    """
    rows, columns = values.shape
    axes.pcolormesh(
        np.arange(columns + 1) - 0.5,
        np.arange(rows + 1) - 0.5,
        np.ma.masked_invalid(values),
        cmap=HEATS,
        vmin=0.0,
        vmax=1.0,
        linewidth=0,
    )
    axes.set_xlim(-0.5, columns - 0.5)
    axes.set_ylim(rows - 0.5, -0.5)
    axes.set_aspect("equal")


def _no_spines(axes: Axes) -> None:
    for spine in axes.spines.values():
        spine.set_visible(False)


__all__ = [
    "STYLE",
    "FloatArray",
    "accuracy",
    "accuracy_matrix",
    "compared_accuracy",
    "confusion",
    "inlier_rate",
    "inlier_rate_axes",
    "overview",
    "place_legend",
    "prequential",
    "samples",
    "save",
    "shade_sub_tasks",
    "speed",
]

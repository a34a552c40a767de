"""The style of all figures: colours, type, legends, heat maps, and how a figure is saved."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap, to_rgb
from matplotlib.figure import Figure
from matplotlib.transforms import ScaledTranslation

from clients.evaluation.scores import FloatArray

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
FULL = 0.7  # where writing on a cell changes its colour
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


def new_figure(width: float, height: float) -> tuple[Figure, Axes]:
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


def class_names(classes: Classes, limit: int = 14) -> str:
    """The classes of a sub-task in a few characters: "0 1", or "0 1 … 8".

    A figure has room for no more: axes beside longer names would have none.

    Example:
        >>> class_names(range(10)), class_names(["parcel is late", "refund", "praise"])
        ('0 1 … 9', 'par…e … pra…e')
    """
    names = [str(label) for label in classes]
    joined = " ".join(names)
    if len(joined) <= limit:
        return joined
    if len(names) == 1:
        return shortened(joined, limit)
    if len(names) > 2 and len(told := f"{names[0]} {names[1]} … {names[-1]}") <= limit:
        return told
    between = " " if len(names) == 2 else " … "
    room = (limit - len(between)) // 2
    return between.join(shortened(name, room) for name in (names[0], names[-1]))


def shortened(name: str, limit: int) -> str:
    """A name of at most so many characters, without its middle: names often differ at the end.

    Example:
        >>> shortened("bearing worn at 3000 rpm", 12), shortened("worn", 12)
        ('bearing…rpm', 'worn')
    """
    if len(name) <= limit:
        return name
    return f"{name[: limit - limit // 3 - 1].rstrip()}…{name[-(limit // 3) :].lstrip()}"


def heat_map(axes: Axes, values: FloatArray) -> None:
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


def hide_spines(axes: Axes) -> None:
    for spine in axes.spines.values():
        spine.set_visible(False)

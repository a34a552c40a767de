"""Delay against false alarms, a panel per group of streams: down and to the left is better.

Rules: those of `clients.evaluation.figures`. A detector that found nothing has no delay and stands
at the panel's top, so that it is not forgotten.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from benchmarks.detection.table import Row, grouped, title
from clients.evaluation.figures import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PAGE_INCHES,
    PURPLE,
    SKY,
    SOFT,
    STYLE,
    VERMILION,
)

MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")
COLOURS = (BLUE, VERMILION, GREEN, ORANGE, PURPLE, SKY, INK, SOFT)
COLUMNS = 2
PANEL_INCHES = 2.3


@mpl.rc_context(STYLE)
def delays(rows: Sequence[Row]) -> Figure | None:
    """Median delay in batches against false alarms per 1,000 batches.

    Arguments:
        rows: Of any groups; those without changes have no panel.

    Returns:
        The figure; None where no group has changes.
    """
    panels = {
        group: own
        for group, own in grouped([row for row in rows if row.judged]).items()
        if any(row.score.changes for row in own)
    }
    if not panels:
        return None
    names = list(dict.fromkeys(row.detector for own in panels.values() for row in own))
    lines = -(-len(panels) // COLUMNS)
    figure = Figure((PAGE_INCHES, 0.6 + PANEL_INCHES * lines), layout="constrained")
    FigureCanvasAgg(figure)
    for place, (group, own) in enumerate(panels.items(), 1):
        axes = figure.add_subplot(lines, COLUMNS, place)
        axes.set_title(title(group), fontsize=8.5)
        _panel(axes, own, names)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    for axes in figure.axes[1:]:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            if label not in labels:
                handles.append(handle)
                labels.append(label)
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 6))
    return figure


def _panel(axes: Axes, rows: Sequence[Row], names: Sequence[str]) -> None:
    known = [row.score.delay(0.5) for row in rows if row.score.found]
    top = 2 * max(known, default=1.0)
    for row in rows:
        score, place = row.score, names.index(row.detector)
        delay = score.delay(0.5)
        axes.plot(
            score.false_per_1000,
            top if math.isnan(delay) else delay,
            linestyle="none",
            marker=MARKS[place % len(MARKS)],
            color=COLOURS[place % len(COLOURS)],
            label=row.detector,
            clip_on=False,
        )
        axes.annotate(
            f"{score.found}/{score.changes}",
            (score.false_per_1000, top if math.isnan(delay) else delay),
            xytext=(4, 4),
            textcoords="offset points",
            fontsize=7,
            color=SOFT,
        )
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xlim(left=-0.1)
    axes.set_yscale("log")
    axes.set_ylim(0.8, top * 1.4)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_locator(NullLocator())
    axes.set_xlabel("false alarms per 1,000 batches")
    axes.set_ylabel("median delay, batches")

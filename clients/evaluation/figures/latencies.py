"""How long requests took."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator, PercentFormatter
from numpy.typing import ArrayLike

from clients.evaluation.figures.style import (
    BLUE,
    PAGE_INCHES,
    STYLE,
    VERMILION,
    new_figure,
    place_legend,
)


@mpl.rc_context(STYLE)
def speed(
    ingest_seconds: ArrayLike, classify_seconds: ArrayLike, batch_size: int, classify_batch: int
) -> Figure:
    """How long requests took: the cumulative distribution of both routes."""
    figure, axes = new_figure(PAGE_INCHES, 2.8)
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

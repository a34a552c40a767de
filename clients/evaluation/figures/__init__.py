"""Figures of an evaluation, in one sober style.

Rules: a function takes plain values and returns a `Figure`, and draws nothing
that the values do not say; no pyplot, so no global state and no window; colours
are those of Okabe and Ito, told apart by colour-blind readers too, and no two
things differ by colour alone. Sizes are made for a page 7 inches wide.
"""

from clients.evaluation.figures.accuracies import accuracy, compared_accuracy
from clients.evaluation.figures.batches import (
    inlier_rate,
    inlier_rate_axes,
    prequential,
    shade_sub_tasks,
)
from clients.evaluation.figures.latencies import speed
from clients.evaluation.figures.matrices import accuracy_matrix, confusion
from clients.evaluation.figures.montage import samples
from clients.evaluation.figures.overviews import overview
from clients.evaluation.figures.style import (
    BLUE,
    FAINT,
    GREEN,
    GRID,
    HEAT,
    INK,
    ORANGE,
    PAGE_INCHES,
    PAPER,
    PURPLE,
    SKY,
    SOFT,
    STYLE,
    VERMILION,
    place_legend,
    save,
    to_svg,
)

__all__ = [
    "BLUE",
    "FAINT",
    "GREEN",
    "GRID",
    "HEAT",
    "INK",
    "ORANGE",
    "PAGE_INCHES",
    "PAPER",
    "PURPLE",
    "SKY",
    "SOFT",
    "STYLE",
    "VERMILION",
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
    "to_svg",
]

"""One picture of a whole stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from clients.evaluation.figures.accuracies import accuracy_axes
from clients.evaluation.figures.batches import inlier_rate_axes
from clients.evaluation.figures.montage import montage_axes
from clients.evaluation.figures.style import SOFT, STYLE, Classes
from clients.evaluation.scores import BoundaryScore


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
    accuracy_axes(left, sub_tasks, seen, newest_only=newest_only)
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
    montage_axes(right, drawn, image_shape, columns=10 if len(drawn) <= 10 else 12)
    right.set_anchor("NW")
    return figure

"""Tests for the benchmarks.comparison.pictures and gallery modules."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

from benchmarks.comparison import pictures
from benchmarks.comparison.gallery import gallery
from benchmarks.comparison.lesson import Trace
from clients.data.tasks import SLT

TWO = SLT.parse("0,1/2,3")


def a_trace(boundaries: list[int]) -> Trace:
    """Forty batches, the second sub-task from batch 20, where the inlier rate drops."""
    rng = np.random.default_rng(0)
    rate: list[float | None] = [None, *rng.uniform(0.8, 0.9, size=39).tolist()]
    rate[20] = 0.1
    ratio = [0.0] * 40
    ratio[20] = 3.0
    return Trace(
        sub_task=[0] * 20 + [1] * 20,
        inlier_rate=rate,
        set_aside=[False] * 40,
        log_likelihood=[None, *np.linspace(-50, 10, 39).tolist()],
        ratios={"inliers": ratio, "occupancy": [0.0] * 40},
        boundaries=boundaries,
        sampled=[(10, 5.0), (20, 11.0), (40, 12.0)],
    )


def labels(figure: Figure, axes: int) -> list[str]:
    return figure.axes[axes].get_legend_handles_labels()[1]


def test_true_and_found_boundaries_are_both_drawn() -> None:
    figure = pictures.boundaries(a_trace([21]), TWO, "title")
    assert labels(figure, 0) == ["true change", "boundary found"]
    assert labels(figure, 1) == ["inliers", "occupancy", "threshold"]


def test_a_boundary_where_nothing_changed_is_drawn_as_false() -> None:
    figure = pictures.boundaries(a_trace([5, 21]), TWO, "title")
    assert "false boundary" in labels(figure, 0)


def test_a_detector_without_signals_and_a_stream_without_changes_can_be_drawn() -> None:
    bare = Trace([0, 0], [None, 0.5], [False, True], [None, 1.0])
    figure = pictures.boundaries(bare, SLT.parse("0,1"), "title")
    assert labels(figure, 1) == ["threshold"]


def test_likelihoods_have_a_panel_per_data_set_and_preset() -> None:
    traces = {data: {name: a_trace([]) for name in ("paper", "mfa")} for data in ("a", "b", "c")}
    figure = pictures.log_likelihoods(traces)
    assert len(figure.axes) == 6
    drawn = figure.axes[0].lines[1]
    assert drawn.get_xydata().tolist() == [[10, 5], [20, 11], [40, 12]]
    assert len(figure.axes[0].lines) == 2  # no floored samples in these traces
    training = figure.axes[0].lines[0].get_ydata()
    assert np.nanmax(training) <= 10
    assert figure.axes[0].texts[0].get_text() == "at last 9, drawn 12"


def test_samples_are_tiled_row_by_row_on_the_grey_scale_of_the_data() -> None:
    images = np.arange(4)[:, None] * np.ones((4, 6)) - 0.5  # -0.5, 0.5, 1.5, 2.5
    figure = pictures.sheets({"data": {"way": (images, (2, 3))}}, "title")
    (image,) = figure.axes[0].images
    canvas = np.asarray(image.get_array().filled(np.nan))
    assert canvas.shape == (5, 7)
    assert canvas[0, 0] == 0
    assert canvas[0, 4] == 0.5
    assert canvas[3, 0] == canvas[3, 4] == 1
    assert np.isnan(canvas[2]).all()
    assert np.isnan(canvas[:, 3]).all()


def test_a_row_may_lack_a_column() -> None:
    images = np.zeros((4, 4))
    rows = {"a": {"x": (images, (2, 2)), "y": (images, (2, 2))}, "b": {"y": (images, (2, 2))}}
    figure = pictures.sheets(rows, "title")
    assert [len(axes.images) for axes in figure.axes] == [1, 1, 0, 1]


@pytest.mark.parametrize(
    ("presets", "expected"),
    [
        (
            ("mfa", "paper", "dcgmm"),
            {
                "boundaries-mnist-mfa",
                "boundaries-mnist-paper",
                "boundaries-mnist-dcgmm",
                "likelihoods",
                "conditional-samples",
                "dcgmm-samples",
            },
        ),
        (("dcgmm",), {"boundaries-mnist-dcgmm", "likelihoods", "dcgmm-samples"}),
        ((), set()),
    ],
)
def test_there_is_a_picture_for_everything_that_was_asked_for(
    presets: tuple[str, ...], expected: set[str]
) -> None:
    def never(asked: object) -> None:
        raise AssertionError("nothing is learned before a picture is drawn")

    found = gallery(["mnist"], presets, 0, True, never, never)  # type: ignore[arg-type]
    assert {name for name, _ in found} == expected

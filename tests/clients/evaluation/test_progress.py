"""Tests for the clients.evaluation.progress module."""

from __future__ import annotations

import io
import re
from dataclasses import replace

import numpy as np
from rich.console import Console

from clients.data.tasks import SubTask
from clients.evaluation.progress import Bars, print_results
from clients.evaluation.results import Milestone
from tests.clients.evaluation.test_report import a_run, an_evaluation


def told(console: Console) -> None:
    """A run of one sub-task, as an evaluation tells it."""
    with Bars(console, n_seeds=2) as bars:
        bars.starting(3)
        bars.began(3, SubTask(0, ("[cat]", "dog"), np.zeros((300, 2)), np.zeros(300)))
        bars.sent(100)
        bars.saw(0.87, 1)
        bars.sent(200)
        bars.measured(Milestone(0, ("[cat]", "dog"), 300, 4, 0.975, 0.39, (0.975, 0.0)))


def test_without_a_terminal_there_is_one_line_per_sub_task():
    out = io.StringIO()
    told(Console(file=out, width=200))
    assert out.getvalue() == (
        "seed 3, sub-task 0 ([cat] dog): 300 samples, accuracy 97.5 % on classes seen, "
        "39.0 % on all\n"
    )


def test_on_a_terminal_there_is_one_bar_per_sub_task():
    out = io.StringIO()
    told(Console(file=out, width=160, force_terminal=True, color_system=None))
    last = out.getvalue().split("\n")[-2]
    assert "seed 3, sub-task 0 ([cat] dog)" in last
    assert "100 %" in last
    assert "accuracy 97.5 % on classes seen, 39.0 % on all" in last


def test_what_is_still_held_is_printed_and_fits_a_narrow_terminal():
    out = io.StringIO()
    print_results(an_evaluation(a_run()), None, Console(file=out, width=80))
    text = out.getvalue()
    assert re.search("0, 1 +100.0 → 99.0 +97.0 → 94.0 +98.0 → 94.0 +95.0 → 90.0\n", text)
    alone = io.StringIO()
    print_results(an_evaluation(replace(a_run(), held=())), None, Console(file=alone, width=80))
    assert "still held" not in alone.getvalue()

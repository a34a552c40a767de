"""What the service says that it still holds, beside test data that it has never seen.

A service keeps no data of a sub-task that is over: how well it is held is told by samples that
the model drew when it ended (`held` of GET /model). Here that stands beside real ones.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple

import numpy as np

from clients.data.tasks import SLT
from clients.evaluation.results import Certainty, Milestone, StillHeld
from clients.http.answers import SubTaskHeld


def still_held(
    held: Sequence[SubTaskHeld], milestones: Sequence[Milestone], slt: SLT
) -> tuple[StillHeld, ...]:
    """What the service says of past sub-tasks, beside the test data of the same classes.

    Arguments:
        held: From GET /model, at the end.
        milestones: One per true sub-task, in order.
        slt: Which classes those were.
    """
    met = {label: index for index, classes in enumerate(slt.sub_tasks) for label in classes}
    rows = []
    for one in held:
        labels = tuple(known.label for known in one.classes)
        # Of classes from before this run there are no test data.
        own = [slt.classes.index(label) for label in labels if label in met]
        then = now = Certainty(math.nan, math.nan, math.nan)
        if own and len(own) == len(labels):
            learned = milestones[max(met[label] for label in labels)]
            then, now = (_over_classes(point, own) for point in (learned, milestones[-1]))
        rows.append(
            StillHeld(
                sub_task=one.sub_task,
                classes=labels,
                samples=one.samples,
                model_version=one.model_version,
                own_then=_certainty(
                    one.accuracy_then, one.probability_then, one.log_likelihood_then
                ),
                own_now=_certainty(one.accuracy_now, one.probability_now, one.log_likelihood_now),
                test_then=then,
                test_now=now,
            )
        )
    return tuple(rows)


def _over_classes(milestone: Milestone, classes: Sequence[int]) -> Certainty:
    """The mean over some classes, by their place in `Data.classes`."""
    each = [milestone.per_class[index] for index in classes]
    return Certainty(*np.mean([astuple(one) for one in each], axis=0).tolist())


def _certainty(*values: float | None) -> Certainty:
    return Certainty(*(math.nan if value is None else value for value in values))

"""Two classes that become one: a typing error, or a distinction that nobody makes any more.

From then on it is as if the samples of both had always had one label, as far as sums tell it:
components, experts and counts of the one are the other's. Two things begin anew. Components of the
current sub-task end as at a boundary, without one, since those of two classes have windows of their
own. Detectors know nothing yet, since what they compare labels with has changed.
"""

from __future__ import annotations

from typing import Any

import torch

from core.batch import Label, distinct
from core.class_merge import ClassMerge
from core.engine.renaming import with_waiting_renamed
from core.engine.state import EngineState
from core.learners.learner import Learner


def with_classes_merged(
    state: EngineState, learner: Learner[Any], label: Label, into: Label
) -> EngineState:
    """The same state, in which samples of one class are another's; its version stays.

    Arguments:
        learner: The model's way of learning.
        label: Of the class that is no more.
        into: Of the other class.
    """

    def one(other: Label) -> Label:
        return into if distinct(other) == distinct(label) else other

    classes, panel = state.model.classes, state.model.panel
    if panel is not None:
        state = state.with_model(panel=panel.with_merged_classes(label, into))
    places = {distinct(name): code for code, name in enumerate(classes)}
    if distinct(label) in places and distinct(into) in places:
        state = _recoded(
            state, learner, ClassMerge(places[distinct(label)], places[distinct(into)])
        )
    else:  # the model has yet to learn one of them
        state = state.with_model(classes=tuple(map(one, classes)))
    return with_waiting_renamed(state, one)


def _recoded(state: EngineState, learner: Learner[Any], merge: ClassMerge) -> EngineState:
    """With every code as it is from now on."""
    model, generator = state.model, torch.Generator()
    generator.set_state(model.random)
    counts = merge.added(torch.tensor(model.class_counts, dtype=torch.int64), 0)
    sub_task = state.sub_task
    return (
        state.with_model(
            classes=(*model.classes[: merge.gone], *model.classes[merge.gone + 1 :]),
            class_counts=tuple(counts.tolist()),
            learner=learner.with_merged_classes(model.learner, merge, generator),
            random=generator.get_state(),
        )
        .with_stream(reliability=state.stream.reliability.with_merged_classes(merge))
        .with_sub_task(
            fingerprints=sub_task.fingerprints.with_merged_classes(merge),
            class_shares=sub_task.class_shares.with_merged_classes(merge),
        )
        .with_past(retention=state.past.retention.with_merged_classes(merge))
    )

"""A class that is called otherwise from now on.

All that was learned counts classes by their codes, so that a class goes by another name where
labels themselves are kept: by the model, by the experts, and by samples and labels that wait. Two
classes that become one are another matter: `core.engine.merging`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from core.batch import Batch, Label, distinct
from core.engine.state import EngineState
from core.memory.awaiting_samples import AwaitingSamples
from core.memory.proposals import Proposal


def with_class_renamed(state: EngineState, label: Label, to: Label) -> EngineState:
    """The same state, in which a class goes by another name; its version stays.

    Arguments:
        label: Of the class.
        to: A name that no class has. Labels of this name that wait for their samples are of the
            class from now on.
    """

    def one(other: Label) -> Label:
        return to if distinct(other) == distinct(label) else other

    def all_of(labels: Iterable[Label]) -> tuple[Label, ...]:
        return tuple(map(one, labels))

    panel = state.model.panel
    state = state.with_model(
        classes=all_of(state.model.classes),
        panel=None if panel is None else replace(panel, labels=all_of(panel.labels)),
    )
    return with_waiting_renamed(state, one)


def with_waiting_renamed(state: EngineState, one: Callable[[Label], Label]) -> EngineState:
    """The same state, in which samples and labels that wait go by other names.

    Arguments:
        one: From each name to the one that it has from now on.
    """
    pending, proposals = state.pending, state.pending.proposals
    return replace(
        state,
        pending=replace(
            pending,
            set_aside=_batches(pending.set_aside, one),
            quarantined=_batches(pending.quarantined, one),
            awaiting=_awaiting(pending.awaiting, one),
            proposals=replace(
                proposals,
                open=_proposals(proposals.open, one),
                dismissed=_proposals(proposals.dismissed, one),
            ),
        ),
        rest=replace(
            state.rest,
            labels=tuple(held._replace(label=one(held.label)) for held in state.rest.labels),
        ),
    )


def _batches(batches: Iterable[Batch], one: Callable[[Label], Label]) -> tuple[Batch, ...]:
    return tuple(_batch(batch, tuple(map(one, batch.vocabulary)), one) for batch in batches)


def _batch(batch: Batch, vocabulary: tuple[Label, ...], one: Callable[[Label], Label]) -> Batch:
    if len(set(map(distinct, vocabulary))) == len(vocabulary):
        return replace(batch, vocabulary=vocabulary)
    # Samples of either name have come.
    return batch.labelled(None if label is None else one(label) for label in batch.plain_labels)


def _awaiting(awaiting: AwaitingSamples, one: Callable[[Label], Label]) -> AwaitingSamples:
    return replace(
        awaiting,
        due=_batches(awaiting.due, one),
        early=tuple(early._replace(label=one(early.label)) for early in awaiting.early),
    )


def _proposals(
    proposals: Iterable[Proposal], one: Callable[[Label], Label]
) -> tuple[Proposal, ...]:
    return tuple(
        replace(proposal, classes=tuple({distinct(name): name for name in named}.values()))
        for proposal in proposals
        for named in [tuple(map(one, proposal.classes))]
    )

"""What can be known before an entry is accepted: would the trainer be able to use it?

The trainer decides when the entry's turn comes. What the served model and the trainer's report
say by now is refused here, before the 202; the rest becomes a dead letter.

Rules of this module:

1. Refused is what cannot be used, not what may not be: where entries that wait may still change
   the answer, the entry is accepted. (Exceptions: a rollback that waits may bring the number
   of classes down, settings that wait may allow more, an upload that waits may bring images,
   or others, and of a class that is to be renamed, or to become part of another, the first sample
   may wait, or another such request. The sender is told, and can send again.)
2. The trainer's report is read after the count of what was accepted, so that a report that
   holds as many entries holds all that the sender knows to be accepted.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Any

import numpy as np

from core.batch import check_image_shape, distinct
from core.errors import (
    ClassExists,
    EmptySubTask,
    InvalidLabels,
    ModelAtRest,
    ShapeMismatch,
    UnknownClass,
    UnknownProposal,
)
from service.api.montage import known_shape
from service.api.parts import Parts
from service.api.settings_in_force import settings_in_force
from service.broker.connection import StreamUnavailable, not_checked
from service.wire import Control, Label, RawBatch, RawLabels, RawName


async def check(parts: Parts, asked: RawBatch | RawLabels | RawName | Control) -> None:
    """Raise what the trainer would, where that is known.

    Raises:
        ShapeMismatch: Its images have another shape than the model's, or the model is a table.
        InvalidLabels: There would be more classes than there may be.
        UnknownProposal: No such proposal is open.
        ModelAtRest: It is frozen, or only detects, and this would change it.
        EmptySubTask: A boundary is declared, and no sample has come since the last.
        UnknownClass: A class is to be renamed, or become part of another, that no answer names.
        ClassExists: Another class has the name that it is to have.
        StreamUnavailable: Redis does not tell; nothing was accepted.
    """
    if isinstance(asked, RawBatch):
        check_shape(parts, asked)
        await check_classes(parts, asked.vocabulary)
    elif isinstance(asked, RawLabels):
        await check_classes(parts, asked.labels)
    elif isinstance(asked, RawName):
        if asked.label is not None:
            await check_classes(parts, (asked.label,))
        await check_proposal(parts, asked.proposal)
    elif asked.kind == "boundary":
        await check_boundary(parts)
    elif asked.kind == "rename" and asked.labels is not None:
        check_renaming(parts, *asked.labels)
    elif asked.kind == "merge" and asked.labels is not None:
        await check_merging(parts, *asked.labels)


def check_shape(parts: Parts, batch: RawBatch) -> None:
    """Raise `ShapeMismatch` where samples are images of another shape than those of the model
    served, or bytes and the model a table.
    """
    served = parts.follower.current
    if served is not None and served.snapshot is not None:
        if batch.features.dtype == np.uint8 and served.snapshot.is_table:
            raise ShapeMismatch.bytes_for_a_table()
        known = known_shape(served.snapshot.info, parts.settings.image)
        check_image_shape(batch.features.shape[1:] if batch.features.ndim > 2 else (), known or ())


async def check_classes(parts: Parts, labels: Collection[Label]) -> None:
    """Raise `InvalidLabels` where these labels would bring too many classes."""
    served = parts.follower.current
    snapshot = None if served is None else served.snapshot
    known = frozenset[tuple[type, Label]]() if snapshot is None else snapshot.known_labels
    new = set(map(distinct, labels)) - known
    if not new:
        return
    status = None
    with suppress(StreamUnavailable):  # whoever appends the batch meets that, and says more of it
        status = await parts.stream.reports.status()
    told = settings_in_force(parts.settings, status)["max_classes"]
    limit = told["value"] if told["asked"] else parts.settings.max_classes
    if len(known) + len(new) > limit:
        raise InvalidLabels.too_many_classes(len(known) + len(new), limit)


async def check_proposal(parts: Parts, number: int) -> None:
    """Raise `UnknownProposal` where this proposal is not open, and cannot come to be."""
    status, is_newest = await _report(parts)
    if status is None:
        return
    _check_learns(status, is_newest, "a proposed class cannot be decided about")
    # Read after the report: what was made by then and is not open any more is decided about.
    try:
        known = [row["proposal"] for row in await parts.stream.reports.proposals()]
    except StreamUnavailable as error:
        raise not_checked(error) from error
    if number not in known and (is_newest or number <= status.get("proposals_made", 0)):
        raise UnknownProposal.among(number, known)


async def check_boundary(parts: Parts) -> None:
    """Raise `EmptySubTask` where the current sub-task has had no sample, or `ModelAtRest`."""
    status, is_newest = await _report(parts)
    _check_learns(status, is_newest, "no boundary is crossed")
    if status is not None and is_newest and not status.get("begun", True):
        raise EmptySubTask.of(status["sub_task"])


def check_renaming(parts: Parts, label: Label, to: Label) -> None:
    """Raise `UnknownClass` or `ClassExists` by the classes that the model served can answer."""
    known = _answered(parts)
    names = set(map(distinct, known))
    if distinct(label) not in names:
        raise UnknownClass.among([label], known)
    if distinct(to) in names:
        raise ClassExists.of(to)


async def check_merging(parts: Parts, label: Label, into: Label) -> None:
    """Raise `UnknownClass` by the classes that the model served can answer, `InvalidLabels` where
    the two are one, or `ModelAtRest`.
    """
    known = _answered(parts)
    names = set(map(distinct, known))
    missing = [one for one in (label, into) if distinct(one) not in names]
    if missing:
        raise UnknownClass.among(missing, known)
    if distinct(label) == distinct(into):
        raise InvalidLabels.merged_into_itself(label)
    _check_learns(*await _report(parts), "classes cannot become one")


def _answered(parts: Parts) -> list[Label]:
    """The classes that the model served can answer."""
    served = parts.follower.current
    snapshot = None if served is None else served.snapshot
    return [] if snapshot is None else list(snapshot.answers)


def _check_learns(status: dict[str, Any] | None, is_newest: bool, what: str) -> None:
    mode = "learn" if status is None else status.get("mode", "learn")
    if is_newest and mode != "learn":
        raise ModelAtRest.of(mode, what)


async def _report(parts: Parts) -> tuple[dict[str, Any] | None, bool]:
    """What the trainer last reported, and whether that holds all that is accepted."""
    try:
        accepted = await parts.stream.accepted()
        status = await parts.stream.reports.status()
    except StreamUnavailable as error:
        raise not_checked(error) from error
    return status, status is not None and status["entries_applied"] >= accepted

"""A file of labels -> requests -> a running service.

Rules of this module:

1. A request's id follows from the file's content, the options and its place, so a file that
   is sent again after an interruption is matched once. Nothing is kept on disk for that.
2. A request holds no more than the service takes: one that is too large is sent in smaller
   parts, and so is what follows.
3. What became of the labels is read from the events of the service, now and then, so that
   however long the file is, few answers are held and few events have to be kept for us.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from clients.data.formats.ids import sent_ids
from clients.data.label_file import LabelFile, LabelRows
from clients.data.live import LiveInput
from clients.data.live_labels import LiveLabels
from clients.http import calls
from clients.http.answers import Labelled
from clients.http.calls import Call
from clients.http.connection import Sender
from clients.http.errors import InputError, RequestRefused
from clients.sending.label_outcome import Outcome
from clients.sending.resume import fingerprint
from clients.sending.samples import ProgressListener, Totals
from core.errors import InvalidBatch

# Far fewer than the events that a service keeps by default.
_FOLLOW_AFTER = 500


@dataclass(frozen=True)
class LabelJob:
    """What is sent, and how.

    Attributes:
        file: Ids and labels.
        name: Part of every request's id: the same file, sent the same way, has the same name.
        batch_size: Labels per request, at most.
        text_ids: Send ids as text, those that are numbers, too.
    """

    file: LabelFile | LiveLabels
    name: str
    batch_size: int
    text_ids: bool = False

    @classmethod
    def of(
        cls,
        path: Path,
        *,
        batch_size: int,
        id_column: str | None = None,
        label_column: str | None = None,
        text_ids: bool = False,
        run: str = "0",
        live: LiveInput | None = None,
    ) -> LabelJob:
        """The job of sending a file.

        Arguments:
            run: Part of every request's id; another one sends the same file again.
            live: Where labels come from of which the file holds the first: they come but once, and
                the job's name is its own.

        Raises:
            InputError: the file cannot be used.
        """
        if live is not None:
            coming = LiveLabels(live, id_column, label_column)
            return cls(coming, f"labels-{secrets.token_hex(8)}", batch_size, text_ids)
        file = LabelFile(path, id_column, label_column)
        name = fingerprint([path], "labels", batch_size, id_column, label_column, text_ids)
        return cls(file, f"{name}-{run}", batch_size, text_ids)


@dataclass(frozen=True)
class LabelTotals(Totals):
    """What one run sent; here a sample is a label, and a batch a request."""

    left_out: int = 0  # rows without a label


class Follower(Protocol):
    """Reads what became of the labels sent so far, until everything was told."""

    def __call__(self, outcome: Outcome) -> None: ...


def send_labels(
    sender: Sender,
    job: LabelJob,
    outcome: Outcome,
    *,
    follower: Follower | None = None,
    listener: ProgressListener | None = None,
) -> LabelTotals:
    """Send all labels of a file.

    Arguments:
        sender: Connected to the service.
        job: What to send.
        outcome: Is told what to expect, where there is a follower.
        follower: Is called now and then, and at the end.
        listener: Is told after every request.

    Raises:
        InputError: the file turns out to be wrong somewhere, or no row has a label.
        ClientError: the service refused a request, or was away for too long.
    """
    totals = LabelTotals()
    size = job.batch_size
    began = time.monotonic()
    for rows in job.file.read(job.batch_size):
        totals = replace(totals, left_out=totals.left_out + rows.rows - len(rows.ids))
        place = 0
        while place < len(rows.ids):
            try:
                answer = sender.send(_call(job, rows, place, size))
            except RequestRefused as error:
                size = _smaller(error, min(size, len(rows.ids) - place))
                continue
            place += answer.labels
            if follower is not None:
                outcome.expect(answer)
                if outcome.n_pending >= _FOLLOW_AFTER:
                    follower(outcome)
            totals = replace(
                totals,
                samples=totals.samples + answer.labels,
                batches=totals.batches + 1,
                duplicate_samples=totals.duplicate_samples + answer.labels * answer.duplicate,
                backlog=answer.backlog,
                seconds=time.monotonic() - began,
            )
            if listener is not None:
                listener.sent(totals)
    if not totals.samples:
        raise InputError(
            f"{job.file.path} holds no label: all {totals.left_out} rows are without one. Expected "
            f"a label in some. Check --label-column."
        )
    if follower is not None:
        follower(outcome)
    return totals


def _call(job: LabelJob, rows: LabelRows, place: int, size: int) -> Call[Labelled]:
    part = slice(place, place + size)
    ids, labels = sent_ids(rows.ids[part], job.text_ids), rows.labels[part]
    try:
        return calls.label(ids, labels, f"{job.name}-{rows.start}-{place}-{len(ids)}")
    except InvalidBatch as error:
        raise InputError(
            f"{job.file.path}, rows {rows.start} to {rows.start + rows.rows - 1}: {error}"
        ) from error


def _smaller(error: RequestRefused, size: int) -> int:
    """How many labels to send instead of `size`; raises the error where fewer would not help."""
    limit = error.context.get("max_samples")
    if isinstance(limit, int) and 0 < limit < size:
        return limit
    if error.status == 413 and size > 1:
        return size // 2
    raise error

"""A file -> batches -> a running service, in order and each batch once.

Rules of this module:

1. Order is kept. A batch is sent when the one before it is durable; while it is
   under way the next ones are read and encoded. (Several requests in flight could
   be accepted in another order as soon as one of them is refused or lost.)
2. A batch's id follows from what is sent up to its end, so whatever is sent twice is
   learned once, and a file that was corrected or has grown is known up to there.
3. How far it got is on disk, so an interrupted run goes on where it was.
"""

from __future__ import annotations

import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Protocol

from clients.http.client import GMRClient
from clients.http.connection import Sender
from clients.sending.job import Job, Prepared
from clients.sending.new_model import state_for_sender
from clients.sending.resume import Progress, ResumeFile

_READ_AHEAD = 8
"""Batches that are read and encoded while one is under way."""

_MOST_COMPARED = 16
"""Files that begin with the same sample and are compared with one, at most."""


@dataclass(frozen=True)
class Totals:
    """What one run sent."""

    samples: int = 0
    batches: int = 0
    duplicate_samples: int = 0  # of these, samples that the service had before
    backlog: int = 0  # after the last batch
    skipped: int = 0  # rows of the file that were left out
    seconds: float = 0.0

    @property
    def samples_per_second(self) -> float:
        """Rate, waiting included."""
        return self.samples / self.seconds if self.seconds else 0.0


class ProgressListener(Protocol):
    """Is told how it goes on."""

    def sent(self, totals: Totals) -> None:
        """A batch was acknowledged."""


def send(
    sender: Sender,
    job: Job,
    resume: ResumeFile,
    progress: Progress,
    *,
    rate: float | None = None,
    listener: ProgressListener | None = None,
) -> Totals:
    """Send what is left of a job.

    Arguments:
        sender: Connected to the service.
        job: What to send.
        resume: Is kept up to date, also when this ends by an exception.
        progress: What is acknowledged already.
        rate: Samples per second at most.
        listener: Is told after every batch.

    Returns:
        What this run sent.

    Raises:
        InputError: the file turns out to be wrong somewhere.
        ClientError: the service refused a batch, or was away for too long.
    """
    totals = Totals()
    progress = replace(progress, finished=False, name=progress.name or job.name)
    began = time.monotonic()
    try:
        stop = (lambda: None) if job.live is None else job.live.close
        with _read_ahead(lambda: job.batches(progress), stop) as batches:
            for batch in batches:
                if rate is not None:
                    _sleep_until(began + totals.samples / rate)
                answer = sender.send(batch.call)
                totals = Totals(
                    samples=totals.samples + batch.samples,
                    batches=totals.batches + 1,
                    duplicate_samples=totals.duplicate_samples + batch.samples * answer.duplicate,
                    backlog=answer.backlog,
                    skipped=totals.skipped + batch.skipped,
                    seconds=time.monotonic() - began,
                )
                progress = replace(
                    progress,
                    epoch=batch.epoch,
                    row=batch.row + batch.samples + batch.skipped,
                    samples=progress.samples + batch.samples,
                    last_entry_id=answer.entry_id,
                    digest=batch.digest,
                )
                resume.save(progress)
                if listener is not None:
                    listener.sent(totals)
        progress = replace(progress, finished=True)
    finally:
        resume.save(progress, now=True)
    return totals


def starting_point(client: GMRClient, progress: Progress, *, again: bool) -> Progress:
    """Where to begin.

    Where it was left, unless the service does not hold what was sent: its data were removed
    since, or a rollback has dropped a part. Then the file is sent from its start, under the
    same ids, by which the service knows what it holds.

    Arguments:
        client: Connected to the service.
        progress: What was sent before.
        again: Send it from its start, under other ids.
    """
    model = state_for_sender(client)
    restored = model.restored_entry_id or ""
    if again:
        return Progress(run=secrets.token_hex(4), restored=restored)
    if not progress.samples:
        return replace(progress, restored=restored)
    forgotten = model.backlog == 0 and position(model.last_entry_id) < position(
        progress.last_entry_id
    )
    if forgotten or restored != progress.restored:
        return Progress(run=progress.run, restored=restored, name=progress.name, cuts=progress.cuts)
    return progress


def sent_part(job: Job, earlier: Sequence[Progress]) -> Progress | None:
    """What of a file was sent when it was another: shorter, or with a mistake behind that.

    Arguments:
        job: What is to be sent.
        earlier: What was sent of files that begin with the same sample, the newest first.

    Returns:
        The progress to go on from, which ends a batch where the other file ended; None where
        the file begins with none of them, or is sent more than once.
    """
    if job.epochs > 1:
        return None
    for sent in earlier[:_MOST_COMPARED]:
        if sent.epoch or not sent.samples or not job.begins_with(sent):
            continue
        aligned = (sent.row - max(sent.cuts, default=0)) % job.batch_size == 0
        cuts = sent.cuts if aligned else (*sent.cuts, sent.row)
        return replace(sent, cuts=cuts, finished=False)
    return None


@contextmanager
def _read_ahead(
    make: Callable[[], Iterator[Prepared]], close: Callable[[], None]
) -> Iterator[Iterator[Prepared]]:
    """The items of an iterator that a thread of its own advances, a few ahead.

    Arguments:
        make: Makes the iterator.
        close: Lets it come to its end, when no more of it are wanted.
    """
    ready: queue.Queue[Prepared | BaseException | None] = queue.Queue(_READ_AHEAD)
    stop = threading.Event()

    def put(item: Prepared | BaseException | None) -> bool:
        while not stop.is_set():
            try:
                ready.put(item, timeout=0.1)
            except queue.Full:
                continue
            return True
        return False

    def read() -> None:
        try:
            for item in make():
                if not put(item):
                    return
            put(None)
        except BaseException as error:  # handed to the thread that reads
            put(error)

    def items() -> Iterator[Prepared]:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item

    thread = threading.Thread(target=read, name="read-ahead", daemon=True)
    thread.start()
    try:
        yield items()
    finally:
        stop.set()
        close()
        thread.join()


def _sleep_until(moment: float) -> None:
    pause = moment - time.monotonic()
    if pause > 0:
        time.sleep(pause)


def position(entry_id: str | None) -> tuple[int, int]:
    """An id of the stream as numbers, which compare as its entries are ordered.

    Example:
        >>> position("1700-9") < position("1700-10")
        True
    """
    milliseconds, _, sequence = (entry_id or "0-0").partition("-")
    return int(milliseconds), int(sequence or 0)

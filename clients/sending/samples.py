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

import hashlib
import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import numpy as np

from clients.data.encoding import TableEncoding
from clients.data.files import Labels, Rows, Source
from clients.data.formats.ids import check_unique, sent_ids
from clients.data.formats.image import AS_THEY_ARE, ImageForm, ImageSource
from clients.data.live import LiveInput, open_samples
from clients.http import calls
from clients.http.answers import Ingested
from clients.http.calls import Call
from clients.http.client import GMRClient
from clients.http.connection import Sender
from clients.http.errors import InputError
from clients.sending.resume import Progress, ResumeFile, fingerprint
from core.errors import InvalidBatch
from service.wire import SampleId

_READ_AHEAD = 8
_DIGEST_BYTES = 10
_MOST_COMPARED = 16


@dataclass(frozen=True)
class Job:
    """What is sent, and how.

    Attributes:
        source: The open file.
        content: Names the file's content and how it is read: an edited file is another.
        start: Names the first sample and the batch size: a file that has grown has the same.
        name: What ids of batches begin with. It follows from the first batch.
        batch_size: Samples per batch; the last of a pass may have fewer.
        epochs: Passes over the file.
        with_labels: Send the labels that the file has.
        text_ids: Send ids as text, those that are numbers, too.
        live: Where samples come from as they come; None for a file.
    """

    source: Source
    content: str
    start: str
    name: str
    batch_size: int = 100
    epochs: int = 1
    with_labels: bool = True
    text_ids: bool = False
    live: LiveInput | None = None

    @classmethod
    def of(
        cls,
        path: Path,
        *,
        batch_size: int = 100,
        epochs: int = 1,
        label_column: str | None = None,
        labels: Path | None = None,
        with_labels: bool = True,
        id_column: str | None = None,
        text_ids: bool = False,
        columns: Sequence[str] | None = None,
        drop: Sequence[str] = (),
        skip_bad_rows: bool = False,
        decimal: str = ".",
        encoding: TableEncoding | None = None,
        images: ImageForm = AS_THEY_ARE,
        shuffle: int | None = None,
        live: LiveInput | None = None,
    ) -> Job:
        """The job of sending a file, or where that is the first piece of what comes, of all of it.

        Raises:
            InputError: the file cannot be read, or its ids cannot be used.
        """
        source = open_samples(
            path,
            live,
            label_column=label_column,
            labels=labels,
            id_column=id_column,
            columns=columns,
            drop=drop,
            skip_bad_rows=skip_bad_rows,
            decimal=decimal,
            encoding=encoding,
            images=images,
            shuffle=shuffle,
        )
        options: list[object] = [batch_size, label_column, with_labels]
        if text_ids and id_column is None:
            raise InputError(
                "Ids were asked to be text, but no column of ids was named. Add --id-column, or "
                "leave out --text-ids."
            )
        if id_column is not None:
            if epochs > 1:
                raise InputError(
                    f"{epochs} passes over {path} would send every id {epochs} times; expected "
                    f"one sample per id. Leave out --epochs or --id-column."
                )
            check_unique(source.read_ids, path=path)
            options += [id_column, text_ids]
        if columns is not None or drop:
            options += ["columns", *(columns or ()), "drop", *drop]
        if skip_bad_rows:
            options.append("skip_bad_rows")
        if decimal != ".":
            options += ["decimal", decimal]
        if encoding is not None:
            options += ["encoding", encoding.to_json()]
        files = [path] if labels is None else [path, labels]
        if isinstance(source, ImageSource):
            files = source.files
            options += ["images", images, *(file.relative_to(path) for file in files)]
        if live is not None:  # what comes is not known before, and never comes again
            name = secrets.token_hex(10)
            return cls(source, name, name, name, batch_size, epochs, with_labels, text_ids, live)
        content = fingerprint(files, *options)
        job = cls(source, content, content, content, batch_size, epochs, with_labels, text_ids)
        try:
            sample = next((rows for rows in source.read(1) if len(rows)), None)
            if sample is None:
                return job
            start = job._digest(str(batch_size), sample)
            job = replace(job, start=start, name=start)
            return replace(job, name=job._digest(str(batch_size), next(source.read(batch_size))))
        except InputError:  # which the one who sends it meets
            return job

    @property
    def n_samples(self) -> int | None:
        """Samples in all passes, where the file says how many it has."""
        n = self.source.n_samples
        return None if n is None else n * self.epochs

    def batches(self, after: Progress) -> Iterator[Prepared]:
        """Calls that send what is left after `after`, in order."""
        digest = after.digest
        for epoch in range(after.epoch, self.epochs):
            start = after.row if epoch == after.epoch else 0
            for rows in self._rows(start, (*after.cuts, None)):
                digest = self._digest(digest, rows)
                name = after.name or self.name
                batch_id = f"{name}-{after.run}-{epoch}-{rows.start}-{digest}"
                try:
                    call = calls.ingest(
                        rows.features, self._labels(rows), batch_id, self._ids(rows)
                    )
                except InvalidBatch as error:
                    raise InputError(
                        f"{self.source.path}, samples {rows.start} to "
                        f"{rows.start + len(rows) - 1}: {error}"
                    ) from error
                yield Prepared(call, epoch, rows.start, len(rows), rows.skipped, digest)

    def begins_with(self, sent: Progress) -> bool:
        """Whether the file begins with what was sent, in batches as they were sent."""
        digest = ""
        try:
            for rows in self._rows(0, (*sent.cuts, sent.row)):
                digest = self._digest(digest, rows)
        except InputError:
            return False
        return digest == sent.digest

    def _rows(self, start: int, cuts: Sequence[int | None]) -> Iterator[Rows]:
        """Rows from `start` to the last cut, none across one; nothing is read behind it before.

        Arguments:
            start: Where to begin.
            cuts: Rows, in their order; None is the file's end.
        """
        for cut in cuts:
            if cut is None:
                yield from self.source.read(self.batch_size, start)
                continue
            end = start
            while start < cut:
                size = min(self.batch_size, cut - start)
                for rows in self.source.read(size, start):
                    piece = rows.until(cut)
                    if len(piece):
                        yield piece
                    start = piece.end
                    if cut - start < size:
                        break
                if start == end:  # the rows before the cut were left out, or there are none
                    start = cut
                end = start

    def _digest(self, before: str, rows: Rows) -> str:
        """Names what is sent up to the end of these rows, from the name of what is before them."""
        digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
        features = np.ascontiguousarray(rows.features)
        labels = self._labels(rows)
        if isinstance(labels, np.ndarray):
            labels = labels.tolist()
        digest.update(f"{before};{features.dtype};{features.shape};".encode())
        digest.update(features.data)
        digest.update(repr((labels, self._ids(rows))).encode())
        return digest.hexdigest()

    def _labels(self, rows: Rows) -> Labels | None:
        return rows.labels if self.with_labels else None

    def _ids(self, rows: Rows) -> Sequence[SampleId] | None:
        return None if rows.ids is None else sent_ids(rows.ids, self.text_ids)


@dataclass(frozen=True)
class Prepared:
    """One batch, ready to be sent."""

    call: Call[Ingested]
    epoch: int
    row: int
    samples: int
    skipped: int = 0  # rows of the file among them that were left out
    digest: str = ""  # names what is sent up to its end


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
    model = client.model()
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

"""What is sent of a file, and in which batches.

A batch's id follows from what is sent up to its end, so whatever is sent twice is learned once,
and a file that was corrected or has grown is known up to there.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np

from clients.counters import Counters
from clients.data.encoding import TableEncoding
from clients.data.files import Labels, Rows, Source
from clients.data.formats.ids import check_unique, sent_ids
from clients.data.formats.image import AS_THEY_ARE, ImageForm, ImageSource
from clients.data.live import LiveInput, open_samples
from clients.http import calls
from clients.http.answers import Ingested
from clients.http.calls import Call
from clients.http.errors import InputError
from clients.rounding import Rounding
from clients.sending.resume import Progress, content_of, fingerprint
from core.errors import InvalidBatch
from service.wire import SampleId

_DIGEST_BYTES: Final = 10
"""Of the name of what is sent: two files in 10^12 that differ have the same by chance."""


@dataclass(frozen=True)
class Job:
    """What is sent, and how.

    Attributes:
        source: The open file.
        content: Names the file's content, how it is read and, at the end, the batch size: an edited
            file is another. It is as `content_of` makes it.
        start: Names the first sample and the batch size: a file that has grown has the same.
        name: What ids of batches begin with. It follows from the first batch.
        batch_size: Samples per batch; the last of a pass may have fewer.
        epochs: Passes over the file.
        with_labels: Send the labels that the file has.
        text_ids: Send ids as text, those that are numbers, too.
        live: Where samples come from as they come; None for a file.
        counters: Looks at features of tables that are sent, of one pass.
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
    counters: Counters = field(default_factory=Counters)

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
        rounding: Rounding | None = None,
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
            rounding=rounding,
        )
        options: list[object] = [label_column, with_labels]
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
        content = content_of(fingerprint(files, *options), batch_size)
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
                if epoch == after.epoch and rows.features.ndim == 2:
                    self.counters.add(rows.features)
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

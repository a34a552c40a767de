"""Names of features, of a table and of the service, so that none is taken for another.

A model knows features by their places. A table whose columns stand in another order would be
learned, or answered, without an error: every number of it would be wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np

from clients.data.encoding import TableEncoding
from clients.data.files import Rows, Source
from clients.data.formats.image import AS_THEY_ARE, ImageForm
from clients.data.formats.rows import column_names
from clients.data.header import header_of
from clients.data.live import LiveInput, open_samples
from clients.data.standard_input import title_of
from clients.http.client import GMRClient
from clients.http.errors import (
    InputError,
    RequestRefused,
    ServiceUnavailable,
    ServiceUnreachable,
)
from clients.http.feature_order import listed, places
from clients.http.retry import RetryPolicy
from clients.sending.bar import check_reachable
from clients.sending.image_shape import check_image_shape
from clients.sending.new_model import is_made_by_batch
from clients.sending.samples import ProgressListener, Totals
from core.counted import counted
from service.wire import SampleId


@dataclass(frozen=True)
class Matched:
    """A table whose features stand in the service's order.

    Arguments:
        source: The table.
        missing: Names that the service lacks and the table has; None where there are none.
        remarks: What was done about it, for people.
    """

    source: Source
    missing: tuple[str, ...] | None = None
    remarks: tuple[str, ...] = ()


class NameMatcher:
    """Takes the features of tables by the names that the service knows them by.

    Arguments:
        client: Of the service, which is asked once, and only about a table that has names.
        by_place: Take features by their place, and ask nothing.
    """

    def __init__(self, client: GMRClient, *, by_place: bool = False) -> None:
        self._client, self._by_place = client, by_place
        self._left_out: tuple[str, ...] = ()

    @cached_property
    def _kept(self) -> tuple[str, ...] | None:
        # Patience is for services that were there.
        with GMRClient(self._client.url, retry=RetryPolicy(total_s=0)) as impatient:
            try:
                return impatient.feature_names()
            except RequestRefused as error:
                if not is_made_by_batch(error):
                    raise
                return None
            except ServiceUnavailable as error:
                raise ServiceUnavailable(
                    status=error.status,
                    title=error.title,
                    detail=f"{error.detail} To ask about a table meanwhile, let --by-place take "
                    f"its features by their places: then their names are not needed.",
                    type=error.type,
                    instance=error.instance,
                    retry_after=error.retry_after,
                    context=error.context,
                ) from error

    def columns_of(
        self,
        path: Path,
        columns: Sequence[str] | None,
        apart: Sequence[str | None] = (),
        *,
        encoded: bool = False,
        decimal: str = ".",
    ) -> Sequence[str] | None:
        """The columns of a table that are features, before it is opened.

        Where the table has all of the service's features and other columns besides, only the
        service's are read; the others may hold anything.

        Arguments:
            path: The file.
            columns: Those that were chosen by hand, which stay.
            apart: Columns that are no features, by name or index.
            encoded: An encoding says which columns are features.
            decimal: The sign before decimals.

        Returns:
            Names or indices; None for all others, also where the service is away.

        Raises:
            InputError: The file cannot be read.
        """
        if self._by_place or encoded or columns is not None:
            return columns
        header = header_of(path, decimal)
        try:
            if header is None or self._kept is None:
                return None
        except (ServiceUnreachable, ServiceUnavailable):
            return None  # what is wrong with the file is told before that
        named = {_name(column, header) for column in apart if column is not None}
        others = [name for name in header if name not in self._kept and name not in named]
        once = Counter(header)
        if not others or any(once[name] != 1 or name in named for name in self._kept):
            return None
        self._left_out = tuple(others)
        # By index: a column that is called 3 is the fourth for nobody.
        return [str(header.index(name)) for name in self._kept]

    def match(self, source: Source) -> Matched:
        """A table with the service's features in the service's order, as far as both have names.

        Raises:
            InputError: The service calls its features otherwise.
            ClientError: The service is away.
        """
        names = source.feature_names
        if self._by_place or names is None:
            return Matched(source)
        kept = self._kept
        if kept is None:
            return Matched(source, missing=names)
        if lacking := [*(Counter(kept) - Counter(names)).elements()]:
            raise InputError(_refusal(source, names, kept, lacking))
        if twice := (Counter(names) - Counter(kept)).keys() & set(kept):
            raise InputError(
                f"{source.path} has more than one column that is called {listed(sorted(twice))}, "
                f"and the service fewer; nothing was sent. Expected names that say which is which. "
                f"Rename them, or choose columns by index with --columns and --by-place."
            )
        others = self._left_out or tuple((Counter(names) - Counter(kept)).elements())
        remarks: list[str] = []
        if others:
            remarks.append(
                f"Of {title_of(source.path)} only the service's features were taken; "
                f"{listed(others)} "
                f"{'is none' if len(others) == 1 else 'are none'} and "
                f"{'was' if len(others) == 1 else 'were'} left out. (Labels and ids are named with "
                f"--label-column and --id-column.)"
            )
        if kept == names:
            return Matched(source, remarks=tuple(remarks))
        if not others:
            remarks.append(
                f"The columns of {title_of(source.path)} stand in another order than the service's "
                f"features; each was taken by its name."
            )
        return Matched(InOrder(source, kept), remarks=tuple(remarks))


def open_matched(
    client: GMRClient,
    path: Path,
    *,
    by_place: bool,
    columns: str | None,
    drop: str | None,
    besides: Sequence[str] = (),
    label_column: str | None = None,
    labels: Path | None = None,
    id_column: str | None = None,
    encoding: TableEncoding | None = None,
    decimal: str = ".",
    skip_bad_rows: bool = False,
    images: ImageForm = AS_THEY_ARE,
    live: LiveInput | None = None,
) -> Matched:
    """Open a file about whose samples the service is asked; as `open_source` and `NameMatcher`.

    Arguments:
        columns: Columns of a table that are features, separated by commas.
        drop: Those that are none, likewise.
        besides: Others that are none.
        live: Where `path` is only the first piece of what comes.
    """
    matcher = NameMatcher(client, by_place=by_place)
    dropped = [*(column_names(drop) or ()), *besides]
    chosen = matcher.columns_of(
        path,
        column_names(columns),
        (label_column, id_column, *dropped),
        encoded=encoding is not None,
        decimal=decimal,
    )
    source = open_samples(
        path,
        live,
        label_column=label_column,
        labels=labels,
        id_column=id_column,
        columns=chosen,
        drop=dropped,
        decimal=decimal,
        skip_bad_rows=skip_bad_rows,
        encoding=encoding,
        images=images,
    )
    with suppress(ServiceUnavailable):  # it is there, and answers questions while Redis is away
        check_reachable(client)
    check_image_shape(client, source)
    return matcher.match(source)


class InOrder:
    """A table with features of its own, in another order.

    Arguments:
        source: The table.
        names: Names of its features, in the order that is wanted. Of several of one name the first
            comes first.
    """

    def __init__(self, source: Source, names: tuple[str, ...]) -> None:
        self._source = source
        self.path, self.kind = source.path, source.kind
        self.n_samples, self.n_features = source.n_samples, len(names)
        self.labelled = source.labelled
        self.feature_names: tuple[str, ...] | None = names
        self._order = places(source.feature_names or (), names)

    def read(self, size: int, start: int = 0) -> Iterator[Rows]:
        """See `Source`."""
        for rows in self._source.read(size, start):
            features = np.ascontiguousarray(rows.features[:, self._order])
            yield replace(rows, features=features)

    def read_ids(self) -> Iterator[list[SampleId]]:
        """See `Source`."""
        return self._source.read_ids()


class NamesAfterFirst:
    """Names the features once a batch is accepted, since only then it is known how many there are.

    Arguments:
        listener: Is told of progress first.
        client: Of the service.
        names: D texts, or None for none.
    """

    def __init__(
        self, listener: ProgressListener, client: GMRClient, names: Sequence[str] | None
    ) -> None:
        self._listener, self._client, self._names = listener, client, names

    def sent(self, totals: Totals) -> None:
        """A batch was acknowledged."""
        self._listener.sent(totals)
        if self._names is not None:
            names, self._names = self._names, None
            self._client.name_features(names)


def _name(column: str, header: Sequence[str]) -> str:
    """The name of a column by name or index; what it is not is told where the table is opened."""
    if column in header:
        return column
    try:
        return header[int(column)]
    except (ValueError, IndexError):
        return column


def _refusal(
    source: Source, names: Sequence[str], kept: Sequence[str], lacking: Sequence[str]
) -> str:
    """Why a table without some of the service's features cannot be used."""
    if len(names) == len(kept):
        place = next(i for i, (a, b) in enumerate(zip(kept, names, strict=True)) if a != b)
        what = (
            f"calls feature {place} {names[place]!r}, the service {kept[place]!r}; nothing was "
            f"sent. Expected the features that `gmr features` prints, in any order."
        )
    else:
        what = (
            f"has {counted(len(names), 'feature')}, the service {len(kept)}, of which the file "
            f"lacks {listed(lacking)}; nothing was sent. Expected the features that "
            f"`gmr features` prints, in any order, whatever else the file has."
        )
    return (
        f"{source.path} {what} Choose them with --columns or --drop; or say --by-place, if they "
        f"are the same under other names, in the same order."
    )

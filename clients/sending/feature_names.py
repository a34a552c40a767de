"""Names of features, of a table and of the service, so that none is taken for another.

A model knows features by their places. A table whose columns stand in another order would be
learned, or answered, without an error: every number of it would be wrong.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from clients.data.files import Rows, Source
from clients.http.client import GMRClient
from clients.http.errors import InputError
from clients.sending.samples import ProgressListener, Totals
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


def match_names(client: GMRClient, source: Source) -> Matched:
    """A table by the names of its features, as far as both sides have names.

    Raises:
        InputError: The service calls its features otherwise.
    """
    names = source.feature_names
    if names is None:
        return Matched(source)
    kept = client.feature_names()
    if kept is None:
        return Matched(source, missing=names)
    # What has another number of features is refused by the service, which says so.
    if len(kept) != len(names) or kept == names:
        return Matched(source)
    place = next(i for i, (a, b) in enumerate(zip(kept, names, strict=True)) if a != b)
    if sorted(kept) != sorted(names):
        raise InputError(
            f"{source.path} calls feature {place} {names[place]!r}, the service {kept[place]!r}; "
            f"nothing was sent. Expected the features that `gmr features` prints, in any order. "
            f"Choose them with --columns or --drop; or say --by-place, if they are the same under "
            f"other names, in the same order."
        )
    remark = (
        f"The columns of {source.path} stand in another order than the service's features; each "
        f"was taken by its name."
    )
    return Matched(InOrder(source, kept), remarks=(remark,))


class InOrder:
    """A table with its features in another order.

    Arguments:
        source: The table.
        names: Its features' names, in the order that is wanted. Of several of one name the first
            comes first.
    """

    def __init__(self, source: Source, names: tuple[str, ...]) -> None:
        self._source = source
        self.path, self.kind = source.path, source.kind
        self.n_samples, self.n_features = source.n_samples, source.n_features
        self.labelled = source.labelled
        self.feature_names: tuple[str, ...] | None = names
        self._order = _places(source.feature_names or (), names)

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


def _places(names: Sequence[str], wanted: Sequence[str]) -> NDArray[np.intp]:
    """Where each of the names that are wanted stands.

    Example:
        >>> _places(["b", "a", "b"], ["a", "b", "b"]).tolist()
        [1, 0, 2]
    """
    places = defaultdict[str, list[int]](list)
    for place, name in enumerate(names):
        places[name].append(place)
    return np.array([places[name].pop(0) for name in wanted], dtype=np.intp)

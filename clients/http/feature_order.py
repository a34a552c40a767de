"""Columns of a DataFrame in the order of the features that a model keeps names of.

A model knows features by their places. A frame whose columns stand in another order would be
learned, or answered, without an error: every number of it would be wrong.
"""

from __future__ import annotations

import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from clients.http import calls
from clients.http.calls import Call
from clients.http.errors import RequestRefused
from clients.http.waiting import Steps
from core.errors import InvalidBatch

T = TypeVar("T")

ASKED_AGAIN_S: Final = 60.0
"""Seconds after which a model that kept no names is asked for them again."""

MOST_TOLD: Final = 5
"""Names in a message; of the others it tells how many they are."""


class FeatureOrder:
    """Names that a model keeps, which are asked for once a frame with names comes.

    Names that are known stay so, until a request is refused or somebody says `forget`.

    Arguments:
        now: The clock, in seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._kept: tuple[str, ...] | None = None
        self._asked = -math.inf

    def forget(self) -> None:
        """Ask again when the next frame comes: the names may have changed."""
        self._kept, self._asked = None, -math.inf

    def sent(
        self, call: Callable[[ArrayLike], Call[T]], rows: ArrayLike, columns: Sequence[str] | None
    ) -> Steps[T]:
        """Send samples, with their columns in the model's order.

        Arguments:
            call: The request, from samples in that order.
            rows: Samples, with shape (N, D).
            columns: What their columns are called; None takes them by their place.

        Returns:
            The answer.

        Raises:
            InvalidBatch: The model calls its features otherwise.
        """
        if columns is None:
            answer: T = yield call(rows)
            return answer
        fresh = self._kept is None
        kept = yield from self._names()
        if kept is not None and Counter(kept) != Counter(columns) and not fresh:
            self.forget()
            kept = yield from self._names()
        if kept is not None:
            check_names(columns, kept)
            if tuple(columns) != kept:
                rows = np.asarray(rows)[:, places(columns, kept)]
        try:
            answer = yield call(rows)
        except RequestRefused:
            self.forget()
            raise
        return answer

    def _names(self) -> Steps[tuple[str, ...] | None]:
        if self._kept is None and self._now() - self._asked >= ASKED_AGAIN_S:
            self._kept = yield calls.feature_names()
            self._asked = self._now()
        return self._kept


def columns_of(features: object) -> tuple[str, ...] | None:
    """Names of the columns of a frame of pandas, Polars or Arrow; None where not all are texts.

    Example:
        >>> columns_of([[1.0, 2.0]]) is None
        True
    """
    found: Any = getattr(features, "column_names", None)  # of Arrow, whose columns hold numbers
    if found is None:
        found = getattr(features, "columns", None)
    try:
        names = () if found is None else tuple(found)
    except TypeError:
        return None
    return names if names and all(isinstance(name, str) for name in names) else None


def check_names(columns: Sequence[str], kept: Sequence[str]) -> None:
    """Raise `InvalidBatch` where a frame has not just the features that a model keeps names of."""
    missing = [*(Counter(kept) - Counter(columns)).elements()]
    unknown = [*(Counter(columns) - Counter(kept)).elements()]
    if not missing and not unknown:
        return
    wrong = [
        f"{listed(names)} {'is' if len(names) == 1 else 'are'} {what}"
        for names, what in ((missing, "missing"), (unknown, "unknown"))
        if names
    ]
    raise InvalidBatch(
        f"The columns are not the features that the model keeps names of: {', and '.join(wrong)}; "
        f"nothing was sent. Expected these columns and no others, in any order: {listed(kept)}. "
        f"Choose them; or send the values alone (`frame.to_numpy()`), which are taken by their "
        f"places, if they are the same under other names.",
        missing=missing,
        unknown=unknown,
    )


def places(names: Sequence[str], wanted: Sequence[str]) -> NDArray[np.intp]:
    """Where each of the names that are wanted stands; of several of one name the first first.

    Example:
        >>> places(["b", "a", "b"], ["a", "b", "b"]).tolist()
        [1, 0, 2]
    """
    found = defaultdict[str, list[int]](list)
    for place, name in enumerate(names):
        found[name].append(place)
    return np.array([found[name].pop(0) for name in wanted], dtype=np.intp)


def listed(names: Sequence[str]) -> str:
    """Names for a message.

    Example:
        >>> listed(["load", "date"]), listed(list("abcdefg"))
        ("'load', 'date'", "'a', 'b', 'c', 'd', 'e' and 2 more")
    """
    text = ", ".join(map(repr, names[:MOST_TOLD]))
    more = len(names) - MOST_TOLD
    return f"{text} and {more:,} more" if more > 0 else text

"""What every file format is read into: rows of features, with or without labels.

Rules of the formats:

1. `uint8` stays `uint8` (it means k/255 on the wire), `float16` stays `float16`,
   every other number becomes `float32` in the file's own units.
2. Every feature is finite; the first that is not is an error with row and column.
3. Labels are integers or text, None for a sample without one.
4. Ids are integers or text, one per sample (`ids.py`).
5. Row numbers in messages count samples from 0.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from clients.http.errors import InputError
from clients.rounding import Rounding
from service.wire import SampleId, fault_of_names

Label = int | str
Labels = NDArray[np.int64] | list[Label | None]
"""Integers as an array where all are integers, otherwise a list."""

LABEL_NAMES: Final = ("label", "labels")
"""Columns and arrays that hold the labels of a file of ids and labels where none is named."""

READ_IDS: Final = 65_536
"""Rows per piece when only their ids are read."""


@dataclass(frozen=True)
class Rows:
    """Consecutive samples of a file.

    Attributes:
        start: Position of the first in the file, from 0.
        features: Samples, with shape (N, D), or of images (N, H, W) or (N, H, W, C), uint8,
            float16 or float32.
        labels: N labels, or None when the file has none.
        ids: N ids, or None when none were asked for.
        skipped: Rows among them in the file that were left out, because they cannot be used.
        places: Position of each in the file, where some were left out; None: one after the other.
    """

    start: int
    features: NDArray[Any]
    labels: Labels | None
    ids: list[SampleId] | None = None
    skipped: int = 0
    places: list[int] | None = None

    def __len__(self) -> int:
        return len(self.features)

    @property
    def end(self) -> int:
        """Position of what follows them in the file."""
        return self.start + len(self) + self.skipped

    def until(self, end: int) -> Rows:
        """Those before a position in the file."""
        if end >= self.end:
            return self
        places = self.places or range(self.start, self.end)
        n = bisect_left(places, end)
        return replace(
            self,
            features=self.features[:n],
            labels=None if self.labels is None else self.labels[:n],
            ids=None if self.ids is None else self.ids[:n],
            skipped=end - self.start - n,
            places=None if self.places is None else self.places[:n],
        )


class Source(Protocol):
    """A file that can be read row by row, from any row.

    Attributes:
        path: Where it is.
        kind: What it is, for messages: "npz", "csv", ...
        n_samples: How many rows, or None when only reading on would tell.
        n_features: D.
        labelled: Whether labels were found.
        feature_names: What the features are called, D texts; None where the file does not say.
    """

    path: Path
    kind: str
    n_samples: int | None
    n_features: int
    labelled: bool
    feature_names: tuple[str, ...] | None

    def read(self, size: int, start: int = 0) -> Iterator[Rows]:
        """Rows from `start` on, `size` at a time; only the last may be fewer.

        Raises:
            InputError: the file cannot be read, or holds what is no number, no label, or
                not finite.
        """
        ...

    def read_ids(self) -> Iterator[list[SampleId]]:
        """The ids of all samples, in pieces; none where no column of ids was named.

        Raises:
            InputError: as `read`, or an id cannot be used.
        """
        ...


def as_features(
    values: NDArray[Any],
    *,
    path: Path,
    start: int = 0,
    rounding: Rounding | None = None,
    names: Sequence[str] | None = None,
) -> NDArray[Any]:
    """Any numeric array (N, ...) as contiguous features (N, D); rules 1 and 2.

    Arguments:
        values: Rows, of any shape with N first.
        path: For messages.
        start: Row number of the first, for messages.
        rounding: Looks at what becomes float32.
        names: What the columns are called, for that; None where they have no names.
    """
    rows = values.reshape(len(values), -1)
    if rounding is not None and values.ndim == 2:
        rounding.look(rows, names)
    if rows.dtype in (np.uint8, np.float16, np.float32):
        features = np.ascontiguousarray(rows)
    elif rows.dtype.kind in "biuf":
        # float64 beyond float32's range becomes infinite, and is reported below.
        with np.errstate(over="ignore"):
            features = rows.astype(np.float32)
    else:
        raise InputError(
            f"{path} holds values of type {rows.dtype}; features must be numbers "
            f"(uint8, other integers or floats). Convert the array before sending it."
        )
    if features.dtype != np.uint8:
        # The sum of finite values is finite unless it overflows: look closer only then.
        with np.errstate(over="ignore", invalid="ignore"):
            suspicious = not np.isfinite(features.sum(dtype=np.float64))
        if suspicious and not (finite := np.isfinite(features)).all():
            row, column = np.argwhere(~finite)[0].tolist()
            raise InputError(
                f"{path}: the feature at row {start + row}, column {column} is "
                f"{rows[row, column]}; every feature must be a finite float32. "
                f"Replace or drop missing values before sending.",
                row=start + row,
                column=column,
            )
    return features


def as_labels(values: NDArray[Any], *, path: Path, start: int = 0) -> Labels:
    """Any array (N,) of integers, whole floats or text as labels; rule 3. NaN means none."""
    if values.dtype.kind in "biu":
        return (
            integer_labels(values.tolist())
            if values.dtype == np.uint64
            else values.astype(np.int64)
        )
    if values.dtype.kind == "U":
        return [label or None for label in values.tolist()]
    if values.dtype.kind == "f":
        missing = np.isnan(values)
        # Beyond 64 bits nobody knows which number was meant.
        whole = missing | (values == np.floor(values)) & (np.abs(values) < 2.0**63)
        if not whole.all():
            row = int(np.flatnonzero(~whole)[0])
            raise InputError(
                f"{path}: the label at row {start + row} is {values[row]}; labels must be "
                f"whole numbers or text. Name the column of the classes with --label-column.",
                row=start + row,
            )
        if missing.any():
            return [None if np.isnan(v) else int(v) for v in values.tolist()]
        return values.astype(np.int64)
    raise InputError(
        f"{path} holds labels of type {values.dtype}; labels must be whole numbers or text. "
        f"Convert them before sending."
    )


def integer_labels(values: Sequence[int | None]) -> Labels:
    """Integers as labels, None for a sample without one; what int64 does not hold is text.

    Example:
        >>> integer_labels([2**53 + 1, None, 2**63])
        [9007199254740993, None, '9223372036854775808']
    """
    labels: list[Label | None] = [
        value if value is None or -(2**63) <= value < 2**63 else str(value) for value in values
    ]
    if all(isinstance(label, int) for label in labels):
        return np.array(labels, dtype=np.int64)
    return labels


def check_count(samples: int, labels: int, *, path: Path) -> None:
    """Raise `InputError` unless there is one label per sample."""
    if samples != labels:
        raise InputError(
            f"{path} holds {samples} samples but {labels} labels; expected one label per sample. "
            f"Check that both belong together.",
            samples=samples,
            labels=labels,
        )


def made_up_names(n: int) -> list[str]:
    """Names of features that have none, where a table must have some.

    Example:
        >>> made_up_names(2)
        ['x0', 'x1']
    """
    return [f"x{i}" for i in range(n)]


def names_of_columns(names: Sequence[str] | None) -> tuple[str, ...] | None:
    """Names as a service takes them; None where columns have none, only numbers, or odd ones.

    Example:
        >>> names_of_columns(["load", "speed"])
        ('load', 'speed')
        >>> names_of_columns(["0", "1"]), names_of_columns(made_up_names(2))
        (None, None)
    """
    if not names or fault_of_names(names) or all(name.isdecimal() for name in names):
        return None
    if list(names) == made_up_names(len(names)):
        return None
    return tuple(names)


def column_names(names: str | None) -> list[str] | None:
    """Names of columns that are separated by commas.

    Example:
        >>> column_names("a, b"), column_names(None)
        (['a', 'b'], None)
    """
    return None if names is None else [name.strip() for name in names.split(",") if name.strip()]


def check_chosen(
    twice: Collection[int] | Collection[str | None], header: list[str] | None, *, path: Path
) -> None:
    """Raise `InputError` where columns are chosen as features, and as something else, too.

    Arguments:
        twice: Those columns, by index or name.
        header: Names of columns by index, where there are any.
        path: For messages.
    """
    if twice:
        names = [header[one] if header and isinstance(one, int) else str(one) for one in twice]
        raise InputError(
            f"{path}: {', '.join(sorted(names))} is chosen by --columns and left out by --drop, "
            f"--label-column or --id-column. Expected one of these. Correct the options."
        )


def check_encoded(names: Sequence[str] | None, columns: Sequence[str], *, path: Path) -> None:
    """Fail where a table lacks columns of an encoding, which finds them by their names alone.

    Arguments:
        names: Of the table's columns; None where it has none.
        columns: Of the encoding.
        path: The table, for messages.

    Raises:
        InputError: It lacks some.
    """
    lacking = [column for column in columns if column not in (names or ())]
    if not lacking:
        return
    what = "whose columns have no names"
    if names:
        what = f"which has {', '.join(names[:20])}{', ...' if len(names) > 20 else ''}"
    raise InputError(
        f"The encoding has {'columns' if len(lacking) > 1 else 'a column'} "
        f"{', '.join(map(repr, lacking[:5]))}{', ...' if len(lacking) > 5 else ''}, missing in "
        f"{path}, {what}. Expected all columns of the encoding, by their names. If one went "
        f"missing, add it, with empty cells where nothing is known; if such a table never has it, "
        f"make an encoding of its own by `gmr encoding`, for a model of its own."
    )


def check_named_once(
    names: Sequence[str], wanted: Iterable[str], *, path: Path, by_index: bool
) -> None:
    """Raise `InputError` where several columns have the name of one that is wanted.

    Arguments:
        names: Of all columns.
        wanted: Of those that are asked for, each as often as it is.
        path: For messages.
        by_index: Whether one of them can be had by its index.
    """
    for name in wanted:
        places = [place for place, other in enumerate(names) if other == name]
        if len(places) > 1:
            shown = f"{', '.join(map(str, places[:-1]))} and {places[-1]}"
            advice = (
                f"choose columns by index with --columns, or leave one out with --drop {places[-1]}"
                if by_index
                else "or leave one out, where the file is written"
            )
            raise InputError(
                f"{path}: {len(places)} columns are called {name!r}: {shown}, counted from 0. "
                f"Expected a name of its own for each, so that none is taken for another. Rename "
                f"them, {advice}.",
                column=places[-1],
            )


def check_apart(label: object, id: object, *, path: Path) -> None:
    """Raise `InputError` where one column is named for labels and for ids."""
    if label is not None and label == id:
        raise InputError(
            f"{path}: column {label!r} is named both for labels and for ids; expected two columns. "
            f"Correct --label-column or --id-column."
        )

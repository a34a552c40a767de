"""An encoding of a table: categories and missing values as numbers, the same for every file.

A model knows only numbers, and every sample must have the same features. An encoding is made once,
from a table that shows what there is (`survey.py`), and kept as a JSON file beside it. Whoever
sends, asks or classifies later uses that file.

Rules of this module:

1. A number is itself. Where one is missing stands the column's median. A feature of its own says
   so, if some were missing when the encoding was made and that was not declined; else they are
   counted.
2. A category is a feature of 0 and 1. One that the encoding does not know, and a missing one, is 0
   in all of them; those that are not known are counted.
3. Columns are found by their names. Others are left out, and their order does not matter.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import orjson
from numpy.typing import NDArray

from clients.data.formats.cells import LARGEST, category_of, number_of, numbers_of
from clients.data.formats.numerals import POINT, Numerals
from clients.http.errors import InputError
from core.counted import counted

_FORMAT: Final = 1

_HALF: Final = 0.5
"""Between the values 0 and 1 of a feature."""


@dataclass(frozen=True)
class Numbers:
    """A column of numbers.

    Arguments:
        name: Of the column.
        missing: What stands where a number is missing.
        says_missing: Whether a feature of its own is 1 there.
    """

    name: str
    missing: float
    says_missing: bool = False

    @property
    def features(self) -> tuple[str, ...]:
        """Names of its features."""
        return (self.name, f"{self.name} is missing") if self.says_missing else (self.name,)

    def cell(self, features: Sequence[float]) -> float | None:
        """The number that its features are nearest to; None: it is missing.

        Example:
            >>> [Numbers("a", 7.0, True).cell(part) for part in ([1.5, 0.2], [7.0, 0.9])]
            [1.5, None]
        """
        return None if self.says_missing and features[1] > _HALF else features[0]

    def takes(self, number: float | None) -> bool:
        """Whether a cell can be encoded that holds a number; NaN: it is missing; None: it has none.

        An infinite number is as good as missing where a feature tells of that. Elsewhere it would
        pass for a usual one.
        """
        return number is not None and (self.says_missing or not math.isinf(number))


@dataclass(frozen=True)
class Categories:
    """A column of categories.

    Arguments:
        name: Of the column.
        categories: That are known, each a feature of its own.
    """

    name: str
    categories: tuple[str, ...]

    @property
    def features(self) -> tuple[str, ...]:
        """Names of its features."""
        return tuple(f"{self.name}={category}" for category in self.categories)

    def cell(self, features: Sequence[float]) -> str | None:
        """The category that its features are nearest to; None: it is missing, or was not known.

        Example:
            >>> [Categories("a", ("x", "y")).cell(part) for part in ([0.4, 0.7], [0.4, 0.5])]
            ['y', None]
        """
        # All zeros are as far from a sample as a category's code is where its feature is a half.
        likeliest = max(features)
        return self.categories[features.index(likeliest)] if likeliest > _HALF else None


class TableEncoding:
    """Makes features of a table's cells.

    Arguments:
        columns: In the order of their features; at least one, each name once.

    Attributes:
        unknown: Of each column the cells with a category that is not known, of all that it has
            encoded.
        untold: Of each column the missing numbers that no feature tells, likewise.

    Raises:
        InputError: There is no column, or one twice.

    Example:
        >>> encoding = TableEncoding([Numbers("amount", 20.0), Categories("shop", ("a", "b"))])
        >>> encoding.encode([{"amount": 12.5, "shop": "b"}, {"shop": "a"}]).tolist()
        [[12.5, 0.0, 1.0], [20.0, 1.0, 0.0]]
        >>> encoding.features
        ('amount', 'shop=a', 'shop=b')
    """

    def __init__(self, columns: Iterable[Numbers | Categories]) -> None:
        self.columns = tuple(columns)
        self.unknown: Counter[str] = Counter()
        self.untold: Counter[str] = Counter()
        self._example: dict[str, str] = {}  # of each column, a category that is not known
        if not self.columns or len(set(self.names)) < len(self.columns):
            raise InputError(
                f"An encoding has the columns {list(self.names)}; expected at least one, and each "
                f"once. Make it anew with `gmr encoding`."
            )
        self._places = [
            {category: place for place, category in enumerate(one.categories)}
            if isinstance(one, Categories)
            else {}
            for one in self.columns
        ]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its columns."""
        return tuple(column.name for column in self.columns)

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features, D of them."""
        return tuple(name for column in self.columns for name in column.features)

    def encode(self, rows: Sequence[Mapping[str, Any]]) -> NDArray[np.float32]:
        """Features of samples, with shape (N, D).

        Arguments:
            rows: Of each sample its cells by the names of columns. A column that is not there is
                missing, and others are left out.

        Raises:
            InputError: A cell of a column of numbers holds none.
        """
        return self.encode_columns([[row.get(name) for row in rows] for name in self.names])

    def encode_columns(
        self,
        cells: Sequence[Sequence[object]],
        where: str = "A table",
        first: int = 0,
        numerals: Numerals = POINT,
    ) -> NDArray[np.float32]:
        """The same of columns.

        Arguments:
            cells: Of each of `columns`, those of N samples.
            where: The table, for messages.
            first: Number of the first row, for messages.
            numerals: How text writes numbers.

        Raises:
            InputError: A cell of a column of numbers holds none.
        """
        encoded = np.zeros((len(cells[0]), len(self.features)), np.float32)
        at = 0
        for column, places, values in zip(self.columns, self._places, cells, strict=True):
            part = encoded[:, at : at + len(column.features)]
            if isinstance(column, Categories):
                self._mark(part, column.name, places, values)
            else:
                self._fill(part, column, values, where, first, numerals)
            at += len(column.features)
        return encoded

    def decode(
        self, features: NDArray[np.floating], names: Sequence[str] | None = None
    ) -> list[list[float | str | None]]:
        """The rows that samples are nearest to, one cell of each of `columns`; None: it is missing.

        Arguments:
            features: Of N samples, with shape (N, D): drawn ones need not be codes.
            names: Of the features, in their order there; None: they are in that of `features`.

        Raises:
            InputError: They are not the features of this encoding.

        Example:
            >>> encoding = TableEncoding([Numbers("amount", 20.0), Categories("shop", ("a", "b"))])
            >>> encoding.decode(np.array([[12.5, 0.1, 0.8], [3.0, 0.2, 0.3]]))
            [[12.5, 'b'], [3.0, None]]
        """
        if names is not None and sorted(names) == sorted(self.features):
            features = features[:, [list(names).index(name) for name in self.features]]
        elif names is not None or features.shape[1] != len(self.features):
            raise InputError(
                f"The samples have other features than the encoding, which makes "
                f"{counted(len(self.features), 'feature')}: {', '.join(self.features[:5])}"
                f"{', ...' if len(self.features) > 5 else ''}. Expected the encoding that the "
                f"model's samples were sent with. Name that one."
            )
        cells, at = list[list[float | str | None]](), 0
        for column in self.columns:
            part = features[:, at : at + len(column.features)]
            cells.append([*map(column.cell, part.tolist())])
            at += len(column.features)
        return [list(row) for row in zip(*cells, strict=True)]

    def fits(self, cells: Sequence[object], numerals: Numerals = POINT) -> bool:
        """Whether a sample, one cell of each column, can be encoded."""
        return all(
            isinstance(column, Categories) or column.takes(number_of(cell, numerals))
            for column, cell in zip(self.columns, cells, strict=True)
        )

    @property
    def remarks(self) -> list[str]:
        """What features do not tell of all that it has encoded, a sentence for each column."""
        unknown = [
            f"{name}: {counted(n, 'cell')} with a category that the encoding does not know, such "
            f"as {self._example[name]!r}."
            for name, n in self.unknown.items()
        ]
        untold = [
            f"{name}: {counted(n, 'missing number')}, which no feature tells: the usual number "
            f"stands there."
            for name, n in self.untold.items()
        ]
        return unknown + untold

    def forget_remarks(self) -> None:
        """Count from here."""
        self.unknown.clear()
        self.untold.clear()

    def _mark(
        self,
        part: NDArray[np.float32],
        name: str,
        places: Mapping[str, int],
        values: Sequence[object],
    ) -> None:
        for row, value in enumerate(values):
            category = category_of(value)
            if category is None:
                continue
            place = places.get(category)
            if place is None:
                self.unknown[name] += 1
                self._example[name] = category
            else:
                part[row, place] = 1.0

    def _fill(
        self,
        part: NDArray[np.float32],
        column: Numbers,
        values: Sequence[object],
        where: str,
        first: int,
        numerals: Numerals,
    ) -> None:
        """The features of a column of numbers, into an array with shape (N, 1) or (N, 2)."""
        numbers = numbers_of(values, numerals)
        if numbers is None or (not column.says_missing and np.isinf(numbers).any()):
            found = (number_of(value, numerals) for value in values)
            row = next(row for row, number in enumerate(found) if not column.takes(number))
            raise InputError(
                f"{where}: row {first + row}, column {column.name!r} holds {values[row]!r}; the "
                f"encoding has finite numbers there, of float32. "
                f"{numerals.advice(str(values[row]), ';')}"
                f"{_correction(values[row])}, leave such rows out with --skip-bad-rows, or make "
                f"the encoding anew with --categories {column.name} if it holds no numbers.",
                row=first + row,
            )
        missing = ~np.isfinite(numbers)
        part[:, 0] = np.where(missing, column.missing, numbers)
        if column.says_missing:
            part[:, 1] = missing
        elif missing.any():
            self.untold[column.name] += int(missing.sum())

    def to_json(self) -> bytes:
        """As a file holds it, for people to read as well."""
        columns = [{"kind": _KINDS[type(one)], **asdict(one)} for one in self.columns]
        document = {"gmr_encoding": _FORMAT, "columns": columns}
        return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)

    @classmethod
    def of_json(cls, data: bytes, where: str = "The text") -> Self:
        """The inverse of `to_json`.

        Arguments:
            data: JSON.
            where: The file, for messages.

        Raises:
            InputError: It is no encoding.
        """
        try:
            document = orjson.loads(data)
            if document["gmr_encoding"] != _FORMAT:
                raise ValueError(f"its format is {document['gmr_encoding']}, not {_FORMAT}")
            return cls(_column(dict(one)) for one in document["columns"])
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(
                f"{where} holds no encoding of a table ({type(error).__name__}: {error}). Expected "
                f"a file that `gmr encoding` has made. Make it anew."
            ) from error

    @classmethod
    def read(cls, path: str | Path) -> Self:
        """An encoding from its file.

        Raises:
            InputError: The file cannot be read, or holds none.
        """
        try:
            data = Path(path).read_bytes()
        except OSError as error:
            raise InputError(
                f"{path} cannot be read ({error.strerror}). Expected a file that `gmr encoding` "
                f"has made. Check the path."
            ) from error
        return cls.of_json(data, str(path))


def _correction(cell: object) -> str:
    """What to do about a cell that is no finite number.

    Example:
        >>> _correction("140.773C"), _correction("red")
        ("Take 'C' off the number in this cell and its like", 'Correct the cell')
    """
    reading = _WITH_UNIT.fullmatch(str(cell).strip())
    if reading is None:
        return "Correct the cell"
    return f"Take {reading[1]!r} off the number in this cell and its like"


_WITH_UNIT: Final = re.compile(r"[-+]?[0-9]+(?:[.,][0-9]+)?(?:[eE][-+]?[0-9]+)?\s*([^\s\d.,]\S*)")
"""A reading with its unit behind it."""

_KINDS: Final = {Numbers: "numbers", Categories: "categories"}


def _column(fields: dict[str, Any]) -> Numbers | Categories:
    """A column as it stands in a file.

    Raises:
        KeyError, TypeError, ValueError: It stands wrong there.
    """
    kind, name = fields.pop("kind"), fields["name"]
    if not isinstance(name, str):
        raise TypeError(f"the name {name!r} is no text")
    if kind == "numbers":
        numbers = Numbers(**fields)
        if not abs(numbers.missing) <= LARGEST or not isinstance(numbers.says_missing, bool):
            raise ValueError(f"column {name!r} does not say what stands for missing numbers")
        return numbers
    if kind == "categories":
        categories = tuple(fields.pop("categories"))
        if not all(isinstance(one, str) for one in categories) or not categories:
            raise TypeError(f"the categories of {name!r} are no texts")
        return Categories(categories=categories, **fields)
    raise ValueError(f"column {name!r} is of kind {kind!r}, which is none of numbers, categories")

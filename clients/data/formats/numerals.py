"""How a text table writes numbers."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

_TRUTH: Final = {"true": 1.0, "false": 0.0}
_WITH_COMMA: Final = re.compile(r"\s*[+-]?\d*,\d+([eE][+-]?\d+)?\s*")


@dataclass(frozen=True)
class Numerals:
    """Numbers with a point or a comma before the decimals, and nothing between thousands.

    Arguments:
        decimal: "." or ",". A cell with the other one is no number: it may be meant for thousands.

    Example:
        >>> Numerals(",").number("-1,5"), Numerals(",").is_number("1.500"), Numerals().number("2.5")
        (-1.5, False, 2.5)
    """

    decimal: str = "."

    def number(self, cell: str) -> float:
        """The value of a cell; "nan" and "inf" in any writing have theirs.

        Raises:
            ValueError: It is no number.
        """
        if "_" in cell:
            raise ValueError(f"{cell!r} is a code")  # 12_3 is 123 only in a program
        if self.decimal == ",":
            if "." in cell:
                raise ValueError(f"{cell!r} has a point")
            cell = cell.replace(",", ".")
        return float(cell)

    def is_number(self, cell: str) -> bool:
        """Whether a cell is one."""
        return _can(self.number, cell)

    def feature(self, cell: str) -> float:
        """The value of a cell of a feature: a number, or 1 and 0 for "true" and "false".

        Raises:
            ValueError: It is neither.

        Example:
            >>> Numerals().feature("True"), Numerals().feature("2.5")
            (1.0, 2.5)
        """
        said = _TRUTH.get(cell.strip().casefold())
        return self.number(cell) if said is None else said

    def is_feature(self, cell: str) -> bool:
        """Whether a cell may be one of a feature."""
        return _can(self.feature, cell)

    def advice(self, cell: str, delimiter: str) -> str:
        """What to do about a cell that is no number, where the way of writing may be why.

        Arguments:
            cell: As it stands.
            delimiter: By which cells were told apart.

        Returns:
            A sentence and a blank; empty where the writing is not why.
        """
        if self.decimal == ",":
            if not POINT.is_number(cell):
                return ""
            return "With --decimal , a point is no decimal sign, and thousands are not separated. "
        # Where a comma was taken to part cells, ones that a semicolon parts are still together.
        if _WITH_COMMA.fullmatch(cell) if delimiter != "," else ";" in cell:
            return "Add --decimal , if numbers have a comma before their decimals. "
        return ""


def _can(read: Callable[[str], float], cell: str) -> bool:
    """Whether a cell can be read so."""
    try:
        read(cell)
    except ValueError:
        return False
    return True


POINT: Final = Numerals()

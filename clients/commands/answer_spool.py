"""Answers that come out of order, and are read in the order of rows."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson


class AnswerSpool:
    """Answers that wait in a file; in memory stay two numbers of each.

    Arguments:
        path: A new file.
    """

    def __init__(self, path: Path) -> None:
        self._file = path.open("w+b")
        self._rows, self._places = array("q"), array("q")

    def __enter__(self) -> AnswerSpool:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def add(self, row: int, answer: Sequence[Any]) -> None:
        """Keep the answer about a row of the table, each once."""
        self._rows.append(row)
        self._places.append(self._file.tell())
        self._file.write(orjson.dumps(answer) + b"\n")

    def read(self) -> Iterator[list[Any]]:
        """The answers in the order of rows."""
        for index in np.argsort(np.asarray(self._rows)):
            self._file.seek(self._places[index])
            yield orjson.loads(self._file.readline())

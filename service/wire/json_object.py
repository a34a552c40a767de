"""A JSON object read piece by piece: as little at a time as the rest of a process can wait for.

A parser holds Python's lock until it has read everything, and its lists take sixteen times the room
of the text. So large arrays are cut between their elements, and each piece is parsed, counted and
let go of before the next: what is too much is refused when it is reached, not when it was read.

Rules of this module:

1. Every byte of a value goes through orjson: what cuts the text only decides where.
2. One step looks at `WINDOW` bytes, or searches for one character; the lock is free in between.
3. An element that is longer than that is a row of numbers, or is refused.
4. Every field comes once and is known: else one reader would take another value than the next.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Final

import orjson

from core.errors import InvalidBatch
from service.wire.unknown import refuse_unknown

WINDOW: Final = 64 * 1024
"""Bytes that one step looks at: about a millisecond."""

LONGEST_ROW: Final = 64 * 1024
BYTES_PER_NUMBER: Final = 64
"""What a row of n numbers may have beyond `LONGEST_ROW`, white space included: no step may be made
long by one number with millions of digits."""

CONSTANTS: Final = (b"NaN", b"Infinity")
"""What other writers put where JSON has no number."""

# No quantifier here gives back what it took, so that each pattern takes linear time.
_TEXT: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_SCALAR: Final = rb"(?:" + _TEXT + rb'|[^"\[\]{},\s]++)'
_ROW: Final = rb'\[[^\[\]{}"]*+\]'
_SPACE: Final = re.compile(rb"[ \t\n\r]*+")
_ONE_TEXT: Final = re.compile(_TEXT, re.DOTALL)
_ONE_SCALAR: Final = re.compile(_SCALAR, re.DOTALL)
_SOME: Final = {
    "scalar": re.compile(rb"(?:\s*+" + _SCALAR + rb"\s*+,)*+", re.DOTALL),
    "row": re.compile(rb"(?:\s*+" + _ROW + rb"\s*+,)*+", re.DOTALL),
}
_LAST: Final = {
    "scalar": re.compile(rb"(\s*+(?:" + _SCALAR + rb")?+\s*+)\]", re.DOTALL),
    "row": re.compile(rb"(\s*+(?:" + _ROW + rb")?+\s*+)\]", re.DOTALL),
}
_KINDS: Final = {
    b'"': "string",
    b"[": "array",
    b"{": "object",
    b"n": "null",
    **dict.fromkeys((b"t", b"f"), "boolean"),
    **dict.fromkeys((b"-", *(b"%d" % digit for digit in range(10))), "number"),
}

Body = bytes | bytearray


class NotAsExpected(Exception):
    """An element of an array is of another kind, and was not read.

    Arguments:
        kind: What JSON calls it.
        row: Its place in the array.
        column: Where it is within a row; None for the element itself.
    """

    def __init__(self, kind: str, row: int, column: int | None = None) -> None:
        super().__init__(kind, row, column)
        self.kind, self.row, self.column = kind, row, column


class JsonObject:
    """Reads the fields of one object.

    Arguments:
        body: The whole text.
        known: Names that fields may have.
        advice: What to send, for people.
        most_columns: Numbers that a long row may have; a longer one is not parsed.
    """

    def __init__(
        self, body: Body, known: Collection[str], advice: str, most_columns: int = 2**62
    ) -> None:
        self._body = body
        self._known = set(known)
        self._advice = advice
        self._most_columns = most_columns
        self._at = 0
        self._nearly: str | None = None  # why the text is no JSON, though it could be read

    def read(self, arrays: Mapping[str, Callable[[JsonObject], Any]]) -> dict[str, Any]:
        """Every field with its value.

        Arguments:
            arrays: For fields whose values may be long arrays: reads one of them, by `rows` or
                `scalars`, which it has to use up.

        Raises:
            InvalidBatch: The text is no JSON object, or has a field that is not known, or one
                twice.
        """
        kind = self._kind()
        if kind != "object":
            if kind is None:
                raise self._no_json("unexpected character")
            raise InvalidBatch(f"The body is a JSON {kind}, not an object. {self._advice}.")
        self._at += 1
        fields: dict[str, Any] = {}
        if self._next() != b"}":
            while True:
                name = self._name()
                refuse_unknown("field", [name], self._known)
                if name in fields:
                    raise InvalidBatch(
                        f"The body has the field `{name}` twice; expected it once. Leave one out."
                    )
                fields[name] = self._value(name, arrays)
                if (after := self._next()) == b"}":
                    break
                if after != b",":
                    raise self._no_json("expected a comma or the end of the object")
                self._at += 1
        self._at += 1
        if self._next():
            raise self._no_json("unexpected content after the object")
        return fields

    def check(self) -> None:
        """Raise `InvalidBatch` where a value was read that JSON does not have, such as NaN.

        Ask after the values were looked at: an error that says where it is helps more.
        """
        if self._nearly is not None:
            raise InvalidBatch(self._nearly)

    def rows(self) -> Iterator[list[list[Any]]]:
        """The rows of the array that begins here, some at a time; each is an array.

        Raises:
            NotAsExpected: Something in it is no such row.
            InvalidBatch: It is no JSON.
        """
        return self._elements("row")

    def scalars(self) -> Iterator[list[Any]]:
        """The elements of the array that begins here, some at a time.

        Raises:
            NotAsExpected: One of them is an array or an object.
            InvalidBatch: It is no JSON.
        """
        return self._elements("scalar")

    def _elements(self, form: str) -> Iterator[list[Any]]:
        body, n = self._body, 0
        self._at += 1
        while True:
            at, end = self._at, self._at + WINDOW
            if form == "row" and (quick := self._plain_rows(at, end)):
                n += len(quick)
                yield quick
                continue
            some = _SOME[form].match(body, at, end)
            if some is not None and some.end() > at:
                self._at = some.end()
                found = self._parsed_list(at, some.end() - 1)
            elif (last := _LAST[form].match(body, at, end)) is not None:
                self._at = last.end()
                if last[1].strip(b" \t\n\r"):
                    yield self._parsed_list(at, last.end(1))
                elif n:
                    raise self._no_json("a comma with nothing after it", last.end(1))
                return
            else:
                if form == "scalar":
                    raise self._refusal_of_scalar(n)
                found = [self._long_row(n)]
                if (after := self._next()) not in (b",", b"]"):
                    raise self._no_json("expected a comma or the end of the array")
                self._at += 1
                if after == b"]":
                    yield found
                    return
            n += len(found)
            yield found

    def _plain_rows(self, at: int, end: int) -> list[list[Any]] | None:
        """Rows up to the last that ends here, where there is nothing but rows; else None.

        To search for two characters takes a tenth of the time of a pattern. Without texts, what
        parses as a list ends where an element ends.
        """
        body = self._body
        cut = body.rfind(b"],", at, end)
        if cut < 0 or body.find(b'"', at, end) >= 0 or body.find(b"{", at, end) >= 0:
            return None
        try:
            found: list[Any] = orjson.loads(b"[%b]" % bytes(body[at : cut + 1]))
        except orjson.JSONDecodeError:
            return None
        if set(map(type, found)) != {list}:
            return None
        self._at = cut + 2
        return found

    def _long_row(self, n: int) -> list[Any]:
        """A row that does not end within a window; or why there is none."""
        body, kind = self._body, self._kind()
        if kind != "array":
            if kind is None:
                raise self._no_json("unexpected character")
            raise NotAsExpected(kind, n)
        begin, end = self._at, body.find(b"]", self._at)
        end = len(body) if end < 0 else end
        inside = [body.find(opening, begin + 1, end) for opening in (b"[", b"{", b'"')]
        first = min((offset for offset in inside if offset >= 0), default=None)
        stop = end if first is None else first
        columns = body.count(b",", begin, stop)
        if first is not None and columns <= self._most_columns:
            raise NotAsExpected(_KINDS[bytes(body[first : first + 1])], n, columns)
        if columns + 1 > self._most_columns:
            raise NotAsExpected("row", n, columns + 1)
        self._at = end + 1
        if end - begin > LONGEST_ROW + (columns + 1) * BYTES_PER_NUMBER:
            raise InvalidBatch(
                f"Row {n} has {end - begin} bytes for {columns + 1} numbers; expected a few bytes "
                f"for each. Write numbers without filling."
            )
        row: list[Any] = self._parsed(begin, end + 1)
        return row

    def _refusal_of_scalar(self, n: int) -> Exception:
        kind = self._kind()
        if kind in ("array", "object"):
            return NotAsExpected(str(kind), n)
        return self._no_json(f"unexpected character, or a text of more than {WINDOW} bytes")

    def _name(self) -> str:
        self._next()
        found = _ONE_TEXT.match(self._body, self._at, self._at + WINDOW)
        if found is None:
            raise self._no_json("expected the name of a field")
        name: str = self._parsed(found.start(), found.end())
        self._at = found.end()
        if self._next() != b":":
            raise self._no_json("expected a colon")
        self._at += 1
        return name

    def _value(self, name: str, arrays: Mapping[str, Callable[[JsonObject], Any]]) -> Any:
        kind = self._kind()
        if kind == "array" and name in arrays:
            return arrays[name](self)
        if kind in ("array", "object"):
            raise InvalidBatch(
                f"`{name}` is a JSON {kind}; expected a single value. Send text or a number."
            )
        found = _ONE_SCALAR.match(self._body, self._at, self._at + WINDOW)
        if found is None:
            raise self._no_json(f"unexpected character, or a text of more than {WINDOW} bytes")
        self._at = found.end()
        return self._parsed(found.start(), found.end())

    def _kind(self) -> str | None:
        """What JSON calls the value that comes next; None where there is none."""
        return _KINDS.get(self._next())

    def _next(self) -> bytes:
        """The character that comes next, after white space; nothing at the end."""
        body = self._body
        while True:
            found = _SPACE.match(body, self._at, self._at + WINDOW)
            assert found is not None  # it matches nothing, too
            self._at = found.end()
            if found.end() - found.start() < WINDOW:
                return bytes(body[self._at : self._at + 1])

    def _parsed_list(self, begin: int, end: int) -> list[Any]:
        values: list[Any] = self._parsed(begin, end, b"[%b]")
        return values

    def _parsed(self, begin: int, end: int, form: bytes = b"%b") -> Any:
        text = form % bytes(self._body[begin:end])
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError as error:
            refusal = self._no_json(error.msg, begin + error.pos - form.index(b"%"))
            # NaN is no JSON, but it can be said where it is, by whoever reads the values.
            if any(word in text for word in CONSTANTS) or "infinity" in str(error):
                try:
                    nearly = json.loads(text)
                except (ValueError, RecursionError):
                    raise refusal from None
                self._nearly = self._nearly or str(refusal)
                return nearly
            raise refusal from None

    def _no_json(self, why: str, at: int | None = None) -> InvalidBatch:
        offset = self._at if at is None else at
        return InvalidBatch(
            f"The body is no JSON: {why} (byte {offset}). {self._advice}; NaN and Infinity do not "
            f"exist in JSON."
        )

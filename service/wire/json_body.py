"""A batch as a JSON body.

`{"features": [[...], ...], "labels": [...], "sample_ids": [...], "batch_id": "..."}`, where a
label, like an id, is an integer, a string or null.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import chain
from typing import Any

import numpy as np

from core.errors import InvalidBatch, InvalidLabels, ShapeMismatch
from service.wire.arrays import Array
from service.wire.batch import RawBatch
from service.wire.batch_id import check_id
from service.wire.features import check_features
from service.wire.json_object import JsonObject, NotAsExpected
from service.wire.json_type import json_type
from service.wire.labels import Labels, encode_labels
from service.wire.limits import Limits
from service.wire.sample_ids import check_sample_ids


def parse_json(body: bytes | bytearray, limits: Limits, allowed: Collection[str] = ()) -> RawBatch:
    """A batch from a JSON body. Other threads go on meanwhile, however large it is.

    Arguments:
        body: The whole body.
        limits: Most samples and features accepted.
        allowed: Names of further fields, handed on in `RawBatch.fields`; any other
            is refused, because a misspelled `labels` would be learned as no labels.

    Raises:
        ShapeMismatch: `features` is missing, empty, ragged or holds no numbers.
        NonFiniteFeature: A feature is too large for float32.
        InvalidLabels: Labels of a wrong number or type.
        InvalidBatch: Anything else that is wrong with the body.
    """
    known = {"features", "labels", "sample_ids", "batch_id", *allowed}
    advice = "Send an object with a field `features`"
    text = JsonObject(body, known, advice, most_columns=limits.max_features)
    fields = text.read(
        {
            "features": lambda array: _read_rows(array.rows(), limits),
            "labels": lambda array: read_list(array.scalars(), limits, encode_labels),
            "sample_ids": lambda array: read_list(array.scalars(), limits, check_sample_ids),
        }
    )
    features = fields.get("features")
    if not isinstance(features, np.ndarray):
        raise ShapeMismatch(
            f"`features` is {'missing' if features is None else 'a JSON ' + json_type(features)}; "
            f"expected a list of rows, each a list of D numbers."
        )
    check_features(features, limits)
    labels = fields.get("labels")
    if labels is not None and not isinstance(labels, list):
        raise InvalidLabels(
            f"`labels` is a JSON {json_type(labels)}; expected a list with one integer, string or "
            f"null per sample."
        )
    batch = RawBatch(
        features,
        *(Labels() if labels is None else encode_labels(labels, len(features))),
        check_id(fields.get("batch_id")),
        {name: fields[name] for name in allowed if name in fields},
        check_sample_ids(fields.get("sample_ids"), len(features)),
    )
    text.check()
    return batch


def read_list(
    pieces: Iterator[list[Any]], limits: Limits, check: Callable[[list[Any], int], object]
) -> list[Any]:
    """A list of one value per sample.

    Arguments:
        pieces: Of the list, in order.
        limits: Most samples accepted.
        check: Raises for the first of N values that will not do, and for any array or object.

    Raises:
        InvalidBatch: It has more values than a request may have samples, or `check` says so.
    """
    values: list[Any] = []
    try:
        for piece in pieces:
            values += piece
            limits.check_begun(len(values))
    except NotAsExpected as wrong:
        values.append([] if wrong.kind == "array" else {})
        check(values, len(values))
        raise AssertionError("an array is no value") from wrong
    return values


def _read_rows(pieces: Iterator[list[list[Any]]], limits: Limits) -> Array:
    """Rows of numbers as float32, with shape (N, D), or the error that says where they are none."""
    parts: list[Array] = []
    n, d = 0, 0
    try:
        for rows in pieces:
            if not parts:
                d = len(rows[0])
                if not d:
                    raise _wrong_first("empty")
                limits.check(1, d)
            limits.check_begun(n + len(rows))
            parts.append(_numbers(rows, n, d))
            n += len(rows)
    except NotAsExpected as wrong:
        raise _misfit(wrong, d, limits) from None
    if not parts:
        raise ShapeMismatch(
            "`features` is an empty list; expected a list of rows, each a list of D numbers."
        )
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _numbers(rows: list[list[Any]], first: int, d: int) -> Array:
    """Some of the rows, which are lists."""
    # Types first: numpy takes booleans and "1.5" for numbers without a word.
    if set(map(len, rows)) != {d} or not set(map(type, chain.from_iterable(rows))) <= {int, float}:
        _find_misfit(rows, first, d)
    with np.errstate(over="ignore"):  # too large for float32: infinity, found later
        flat = np.fromiter(chain.from_iterable(rows), np.float32, count=len(rows) * d)
    return flat.reshape(len(rows), d)


def _misfit(wrong: NotAsExpected, d: int, limits: Limits) -> InvalidBatch:
    """The error for what is no row of scalars."""
    if wrong.kind == "row":
        return limits.too_many_features(wrong.column or 0)
    if wrong.column is not None:
        return _no_number(wrong.row, wrong.column, wrong.kind)
    if wrong.row == 0:
        return _wrong_first(f"a JSON {wrong.kind}")
    return ShapeMismatch(
        f"Row {wrong.row} of `features` is a JSON {wrong.kind}; expected a list of {d} numbers.",
        row=wrong.row,
    )


def _wrong_first(what: str) -> ShapeMismatch:
    return ShapeMismatch(
        f"Row 0 of `features` is {what}; expected a list of D numbers per sample. A single sample "
        f"is a list with one row.",
        row=0,
    )


def _no_number(row: int, column: int, kind: str) -> ShapeMismatch:
    return ShapeMismatch(
        f"The feature at row {row}, column {column} is a JSON {kind}; every feature must be a "
        f"number. Replace missing values and encode text before sending.",
        row=row,
        column=column,
    )


def _find_misfit(rows: list[list[Any]], first: int, d: int) -> None:
    """Raise for the first row of a wrong length, or the first thing that is no number."""
    for i, row in enumerate(rows, first):
        if len(row) != d:
            raise ShapeMismatch(
                f"Row {i} has {len(row)} features, but row 0 has {d}; every row needs the same "
                f"number. Check that no value is missing.",
                row=i,
                expected=d,
                got=len(row),
            )
        for j, value in enumerate(row):
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise _no_number(i, j, json_type(value))

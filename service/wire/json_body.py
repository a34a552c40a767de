"""A batch as a JSON body.

`{"features": [[...], ...], "labels": [...], "sample_ids": [...], "batch_id": "..."}`, where a
label, like an id, is an integer, a string or null.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import chain

import numpy as np
import orjson

from core.errors import InvalidBatch, InvalidLabels, ShapeMismatch
from service.wire.arrays import Array
from service.wire.batch import RawBatch
from service.wire.batch_id import check_id
from service.wire.features import check_features
from service.wire.json_type import json_type
from service.wire.labels import Labels, encode_labels
from service.wire.limits import Limits
from service.wire.not_json import refusal
from service.wire.sample_ids import check_sample_ids
from service.wire.unknown import refuse_unknown


def parse_json(
    body: bytes | bytearray | memoryview, limits: Limits, allowed: Collection[str] = ()
) -> RawBatch:
    """A batch from a JSON body.

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
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        advice = "Send an object with a field `features`"
        raise refusal(body, error, advice, lambda near: _read(near, limits, allowed)) from None
    return _read(document, limits, allowed)


def _read(document: object, limits: Limits, allowed: Collection[str]) -> RawBatch:
    """A batch from what the body says."""
    if not isinstance(document, dict):
        raise InvalidBatch(
            f"The body is a JSON {json_type(document)}; expected an object with a field `features`."
        )
    refuse_unknown("field", document, {"features", "labels", "sample_ids", "batch_id", *allowed})

    features = _parse_rows(document.get("features"), limits)
    labels = document.get("labels")
    if labels is not None and not isinstance(labels, list):
        raise InvalidLabels(
            f"`labels` is a JSON {json_type(labels)}; expected a list with one integer, string or "
            f"null per sample."
        )
    return RawBatch(
        features,
        *(Labels() if labels is None else encode_labels(labels, len(features))),
        check_id(document.get("batch_id")),
        {name: document[name] for name in allowed if name in document},
        check_sample_ids(document.get("sample_ids"), len(features)),
    )


def _parse_rows(rows: object, limits: Limits) -> Array:
    """A list of lists of numbers as float32, or the error that says where it is none."""
    if not isinstance(rows, list) or not rows:
        got = "missing" if rows is None else f"a JSON {json_type(rows)}"
        raise ShapeMismatch(
            f"`features` is {'an empty list' if rows == [] else got}; expected a list of rows, "
            f"each a list of D numbers."
        )
    first = rows[0]
    if not isinstance(first, list) or not first:
        raise ShapeMismatch(
            f"Row 0 of `features` is {'empty' if first == [] else 'a JSON ' + json_type(first)}; "
            f"expected a list of D numbers per sample. A single sample is a list with one row.",
            row=0,
        )
    n, d = len(rows), len(first)
    limits.check(n, d)
    # Types first: numpy takes booleans and "1.5" for numbers without a word, and would
    # give every cell of a table the width of its longest string.
    if set(map(type, rows)) != {list} or set(map(len, rows)) != {d}:
        _find_misfit(rows, d)
    if not set(map(type, chain.from_iterable(rows))) <= {int, float}:
        _find_misfit(rows, d)
    with np.errstate(over="ignore"):  # too large for float32: infinity, found below
        flat = np.fromiter(chain.from_iterable(rows), np.float32, count=n * d)
    return check_features(flat.reshape(n, d), limits)


def _find_misfit(rows: list[object], d: int) -> None:
    """Raise for the first row of a wrong length, or the first thing that is no number."""
    for i, row in enumerate(rows):
        if not isinstance(row, list):
            raise ShapeMismatch(
                f"Row {i} of `features` is a JSON {json_type(row)}; expected a list of {d} "
                f"numbers.",
                row=i,
            )
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
                raise ShapeMismatch(
                    f"The feature at row {i}, column {j} is a JSON {json_type(value)}; every "
                    f"feature must be a number. Replace missing values and encode text before "
                    f"sending.",
                    row=i,
                    column=j,
                )

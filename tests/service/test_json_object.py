"""Tests for service.wire.json_object: cut anywhere, a text means what one parser makes of it."""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.errors import InvalidBatch, ShapeMismatch
from service.wire import Limits, json_object, parse_json, parse_labels
from service.wire.json_object import JsonObject, NotAsExpected

KNOWN = ("features", "labels", "c")
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4)
    | st.sampled_from(['"', "\\", "]", ",", "[", "{", '\\"', "é]"])
)
NUMBERS = st.integers(-5, 10**6) | st.floats(allow_nan=False, allow_infinity=False)
ROWS = st.lists(st.lists(NUMBERS, max_size=12), max_size=12)
DOCUMENTS = st.fixed_dictionaries(
    {}, optional={"features": ROWS, "labels": st.lists(SCALARS, max_size=30), "c": SCALARS}
)
INDENTS = st.sampled_from([None, 1])


@pytest.fixture(params=[64, 300])
def window(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Short pieces, so that texts are cut everywhere."""
    monkeypatch.setattr(json_object, "WINDOW", request.param)
    size: int = request.param
    return size


def read(text: bytes) -> dict[str, Any]:
    """Every field, its pieces put together."""

    def joined(pieces: Any) -> list[Any]:
        return [one for piece in pieces for one in piece]

    reader = JsonObject(text, KNOWN, "Send it")
    fields = reader.read(
        {"features": lambda a: joined(a.rows()), "labels": lambda a: joined(a.scalars())}
    )
    reader.check()
    return fields


EACH_WINDOW = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@EACH_WINDOW
@given(document=DOCUMENTS, indent=INDENTS, ascii_=st.booleans())
def test_every_object_is_read_as_it_is(
    window: int, document: dict[str, Any], indent: int | None, ascii_: bool
) -> None:
    text = json.dumps(document, indent=indent, ensure_ascii=ascii_).encode()
    assert read(text) == document


@EACH_WINDOW
@given(
    document=DOCUMENTS,
    indent=INDENTS,
    place=st.floats(0, 1),
    damage=st.sampled_from([b"", b",", b"]", b"[", b"}", b'"', b" ", b"\x0b", b"1", b":", b"NaN"]),
    over=st.integers(0, 2),
)
def test_nothing_is_taken_that_the_parser_does_not_take(
    window: int,
    document: dict[str, Any],
    indent: int | None,
    place: float,
    damage: bytes,
    over: int,
) -> None:
    text = json.dumps(document, indent=indent).encode()
    at = round(place * len(text))
    text = text[:at] + damage + text[at + over :]
    try:
        found = read(text)
    except (InvalidBatch, NotAsExpected):
        return
    assert found == orjson.loads(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"c": 1, "c": 2}', "the field `c` twice"),
        (b'{"features": [[1]], "features": [[2]]}', "the field `features` twice"),
        (b'{"c": [1]}', "`c` is a JSON array"),
        (b'{"c": {"c": 1}}', "`c` is a JSON object"),
        (b'{"c": 1} x', "after the object"),
        (b'{"c": 1', "a comma or the end of the object"),
        (b'{"c" 1}', "a colon"),
        (b"{c: 1}", "the name of a field"),
        (b'{"features": [[1] [2]]}', "no JSON"),
        (b'{"features": [[1], ]}', "no JSON"),
        (b'{"features": [, [1]]}', "no JSON"),
        (b'{"labels": [1 2]}', "no JSON"),
        (b'{"labels": ["a\n"]}', "no JSON"),
        (b'{"labels": ["' + b"x" * 70_000 + b'"]}', "more than 65536 bytes"),
        (b'{"features": [[0.' + b"1" * 200_000 + b"]]}", "few bytes"),
        (b'{"c": "\xff"}', "no JSON"),
        (b"\xef\xbb\xbf{}", "no JSON"),
        (b"nonsense", "not an object"),
    ],
)
def test_what_is_wrong_is_said(text: bytes, message: str) -> None:
    with pytest.raises(InvalidBatch, match=message):
        read(text)


def test_the_place_of_an_error_is_that_in_the_whole_text() -> None:
    text = b'{"features": [' + b"[1.5, 2.5], " * 20_000 + b"[1.5, x]]}"
    with pytest.raises(InvalidBatch) as caught:
        read(text)
    assert f"(byte {text.index(b'x')})" in str(caught.value)


LIMITS = Limits(max_samples=10_000, max_features=1000)
MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (b'{"features": [' + b"[0.5]," * (4 * MIB) + b"[0.5]]}", InvalidBatch),
        (b'{"features": [[' + b"0.5," * (6 * MIB) + b"0.5]]}", ShapeMismatch),
        (b'{"features": [' + b"0.5," * (6 * MIB) + b"0.5]}", ShapeMismatch),
        (b'{"features": ' + b"[" * (24 * MIB) + b"}", ShapeMismatch),
        (b'{"features": [[1]], "labels": [' + b"1," * (12 * MIB) + b"1]}", InvalidBatch),
        (b'{"features": [[1]], "labels": [' + b"[" * (24 * MIB) + b"]}", InvalidBatch),
        (b'{"features": [[1]], "batch_id": [' + b"1," * (12 * MIB) + b"1]}", InvalidBatch),
        (b'{"x": [' + b"1," * (12 * MIB) + b"1]}", InvalidBatch),
    ],
    ids=["rows", "columns", "no rows", "brackets", "labels", "nested", "not a list", "unknown"],
)
def test_too_much_is_refused_where_it_becomes_too_much(
    text: bytes, error: type[InvalidBatch]
) -> None:
    """24 MiB that a parser would take 0.5 to 4 s for: refused within a step or two."""
    parsed = 0

    def count(frame: Any, event: str, argument: Any) -> None:
        nonlocal parsed
        if event == "c_call" and argument is orjson.loads:
            parsed += 1

    sys.setprofile(count)
    try:
        with pytest.raises(error):
            parse_json(text, LIMITS)
    finally:
        sys.setprofile(None)
    assert parsed < 10


def test_other_threads_go_on_while_a_large_body_is_read() -> None:
    rows = b"[" + b",".join(b"0.123456" for _ in range(500)) + b"]"
    text = b'{"features": [' + b",".join([rows] * 4000) + b"]}"  # 18 MB
    ticks = 0
    done = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not done.is_set():
            ticks += 1
            time.sleep(0.001)

    other = threading.Thread(target=tick)
    other.start()
    try:
        batch = parse_json(text, LIMITS)
    finally:
        done.set()
        other.join()
    assert batch.features.shape == (4000, 500)
    # One parse of everything lets the other thread in five times.
    assert ticks > 10


def test_labels_are_read_by_the_same_rules() -> None:
    with pytest.raises(InvalidBatch, match="twice"):
        parse_labels(b'{"sample_ids": [1], "labels": [1], "labels": [2]}', LIMITS)
    with pytest.raises(InvalidBatch, match="sample id at position 1 is a JSON array"):
        parse_labels(b'{"sample_ids": [1, [2]], "labels": [1, 2]}', LIMITS)
    with pytest.raises(InvalidBatch, match="label at position 1 is a JSON object"):
        parse_labels(b'{"sample_ids": [1, 2], "labels": [1, {}]}', LIMITS)

"""Tests for the service.wire module."""

from __future__ import annotations

import itertools
import json
import math
import struct
import zlib
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from core.errors import InvalidBatch, InvalidLabels, NonFiniteFeature, ShapeMismatch
from service.wire import (
    MAX_LABEL_BYTES,
    NO_LIMITS,
    TENSOR_TYPES,
    Control,
    Limits,
    RawBatch,
    RawLabels,
    RawName,
    Upload,
    identity,
    pack,
    parse_json,
    parse_labels,
    parse_safetensors,
    read_entry,
    unpack,
)
from service.wire.labels import encode_labels

LIMITS = Limits(max_samples=100, max_features=50)

labels = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.text(min_size=1, max_size=20))


names = st.one_of(st.integers(-(2**63), 2**63 - 1), st.text(min_size=1, max_size=20))


@st.composite
def sample_ids(draw: st.DrawFn, n: int) -> list[int | str | None]:
    """Names of n samples, each once, some left out; or integers alone."""
    kinds = draw(st.sampled_from([names, st.integers(0, 10**6)]))
    ids: list[int | str | None] = list(draw(st.lists(kinds, min_size=n, max_size=n, unique=True)))
    for row in draw(st.sets(st.integers(0, n - 1))) if kinds is names else ():
        ids[row] = None
    return ids


@st.composite
def batches(draw: st.DrawFn) -> RawBatch:
    dtype = draw(st.sampled_from(["<f4", "<f2", "u1"]))
    shape = draw(hnp.array_shapes(min_dims=2, max_dims=4, max_side=6))
    finite = None if dtype == "u1" else {"allow_nan": False, "allow_infinity": False}
    features = draw(hnp.arrays(dtype, shape, elements=finite))
    some = draw(st.none() | st.lists(labels, min_size=shape[0], max_size=shape[0]))
    name = draw(st.none() | st.from_regex(r"[A-Za-z0-9_.-]{1,40}", fullmatch=True))
    ids = draw(st.none() | sample_ids(shape[0]))
    return RawBatch.of(features, some, name, ids)


def same(a: RawBatch, b: RawBatch) -> bool:
    codes = (None if a.codes is None else a.codes.tolist()) == (
        None if b.codes is None else b.codes.tolist()
    )
    return (
        a.features.dtype == b.features.dtype
        and a.features.tobytes() == b.features.tobytes()
        and a.features.shape == b.features.shape
        and codes
        and [(type(x), x) for x in a.vocabulary] == [(type(x), x) for x in b.vocabulary]
        and a.batch_id == b.batch_id
        and a.sample_ids == b.sample_ids
    )


def as_redis_returns(entry: dict[str, Any]) -> dict[bytes, bytes]:
    return {name.encode(): bytes(value) for name, value in entry.items()}


# Round trips ------------------------------------------------------------------


@given(batches())
def test_a_batch_comes_through_an_entry_unchanged(batch: RawBatch) -> None:
    assert same(RawBatch.from_entry(as_redis_returns(batch.to_entry())), batch)


@given(batches())
def test_a_batch_comes_through_a_binary_body_unchanged(batch: RawBatch) -> None:
    assert same(parse_safetensors(batch.to_safetensors(), NO_LIMITS), batch)


@given(batches())
def test_the_same_batch_has_the_same_bytes(batch: RawBatch) -> None:
    again = RawBatch.from_entry(as_redis_returns(batch.to_entry()))
    first, second = batch.to_entry(), again.to_entry()
    assert first["crc"] == second["crc"]
    assert bytes(first["x"]) == bytes(second["x"])


@given(batches())
def test_json_and_binary_bodies_of_one_batch_are_the_same_batch(batch: RawBatch) -> None:
    known = (
        [None if code < 0 else batch.vocabulary[code] for code in batch.codes.tolist()]
        if (batch.codes is not None)
        else None
    )
    wide = RawBatch.of(batch.to_float32(), known, batch.batch_id)
    document = {
        "features": batch.to_float32().astype(float).tolist(),
        "labels": known,
        "batch_id": batch.batch_id,
    }
    assert same(parse_json(orjson.dumps(document), NO_LIMITS), wide)


@given(
    st.dictionaries(
        st.text(min_size=1, max_size=10).filter(lambda name: name != "__metadata__"),
        st.sampled_from(sorted(TENSOR_TYPES.values(), key=str)).flatmap(
            lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0))
        ),
        max_size=4,
    ),
    st.dictionaries(st.text(max_size=10), st.text(max_size=10), max_size=3),
)
def test_our_files_and_those_of_the_library_are_read_by_both(
    tensors: dict[str, np.ndarray], metadata: dict[str, str]
) -> None:
    ours = safetensors.numpy.load(pack(tensors, metadata))
    theirs, text = unpack(safetensors.numpy.save(tensors, metadata or None))
    assert text == metadata
    for name, array in tensors.items():
        for read in (ours[name], theirs[name]):
            assert read.dtype == array.dtype
            assert read.shape == array.shape
            assert read.tobytes() == array.tobytes()


@pytest.mark.parametrize(
    "control",
    [
        Control("boundary"),
        Control("settle"),
        Control("rename", labels=(7, "seven"), by="ada", note="a typing error"),
        Control("merge", labels=(7, "seven"), by="ada", note="a typing error"),
        Control("join"),
        Control("aim", samples=2),
        Control("aim", samples=10**18 - 1),
        Control("rollback", version=12),
        Control("rollback", version=0),
        Control("restore", checkpoint=b"\x00\xffbytes"),
        Control("restore", upload=Upload("0af9", 3, 10_000_000, "ab" * 32)),
    ],
)
def test_a_control_entry_comes_through_unchanged(control: Control) -> None:
    assert read_entry(as_redis_returns(control.to_entry())) == control


# Meaning ----------------------------------------------------------------------


@given(batches(), st.data())
def test_a_batch_in_pieces_is_joined_to_what_it_was(batch: RawBatch, data: st.DataObject) -> None:
    n = len(batch)
    cuts = [0, *sorted(data.draw(st.sets(st.integers(1, n - 1)) if n > 1 else st.just(set()))), n]
    pieces = [
        RawBatch.of(
            batch.features[a:b],
            None if batch.labels is None else batch.labels[a:b],
            f"piece {a}",
            None if batch.sample_ids is None else batch.sample_ids[a:b],
        )
        for a, b in itertools.pairwise(cuts)
    ]
    assert same(RawBatch.joined(pieces), replace(batch, batch_id=None))


@given(batches())
def test_images_are_one_row_of_features_each(batch: RawBatch) -> None:
    """Whatever the shape of images, a model sees (N, D), row by row."""
    rows = batch.to_float32()
    assert rows.shape == (len(batch), batch.n_features)
    assert rows.tobytes() == batch.to_float32().reshape(batch.features.shape).tobytes()


def test_the_limit_of_features_counts_all_pixels_and_channels() -> None:
    small = RawBatch.of(np.zeros((2, 5, 5, 2))).to_safetensors()
    assert parse_safetensors(small, LIMITS).n_features == LIMITS.max_features
    large = RawBatch.of(np.zeros((2, 5, 5, 3))).to_safetensors()
    with pytest.raises(InvalidBatch, match="75"):
        parse_safetensors(large, LIMITS)


def test_a_pixel_that_is_no_number_is_named_by_its_column() -> None:
    pixels = np.zeros((2, 3, 3), "f4")
    pixels[1, 2, 1] = np.nan
    with pytest.raises(NonFiniteFeature, match="row 1, column 7"):
        parse_safetensors(pack({"features": pixels}), NO_LIMITS)


def test_a_byte_k_means_k_of_255() -> None:
    batch = RawBatch.of(np.arange(256, dtype=np.uint8).reshape(2, 128))
    expected = (np.arange(256, dtype=np.float64) / 255).astype(np.float32).reshape(2, 128)
    assert batch.to_float32().tolist() == expected.tolist()


def test_labels_are_coded_in_order_of_first_appearance_however_they_come() -> None:
    plain = RawBatch.of(np.zeros((4, 1)), [7, 3, 7, -1])
    array = RawBatch.of(np.zeros((4, 1)), np.array([7, 3, 7, -1], np.int8))
    body = pack({"features": np.zeros((4, 1), "f4"), "labels": np.array([7, 3, 7, -1])})
    for batch in (plain, array, parse_safetensors(body, LIMITS)):
        assert batch.vocabulary == (7, 3, -1)
        assert batch.codes is not None
        assert batch.codes.tolist() == [0, 1, 0, 2]
        assert batch.n_labelled == 4


@pytest.mark.parametrize("letter", ["a", "é", "漢", "🦆"])
def test_a_label_has_so_many_bytes_whatever_its_letters(letter: str) -> None:
    most = MAX_LABEL_BYTES // len(letter.encode())
    assert encode_labels([letter * most], 1).vocabulary == (letter * most,)
    with pytest.raises(InvalidLabels, match="256 bytes of UTF-8"):
        encode_labels([letter * (most + 1)], 1)


def test_the_integer_1_and_the_text_1_are_two_labels() -> None:
    batch = parse_json(b'{"features": [[1], [2], [3]], "labels": [1, "1", null]}', LIMITS)
    assert batch.vocabulary == (1, "1")
    assert batch.codes is not None
    assert batch.codes.tolist() == [0, 1, -1]
    assert batch.n_labelled == 2


def test_codes_with_a_vocabulary_may_leave_samples_unlabelled() -> None:
    tensors = {"features": np.zeros((3, 2), "f2"), "labels": np.array([1, -1, 0], "i4")}
    batch = parse_safetensors(pack(tensors, {"vocabulary": '["a", "b"]'}), LIMITS)
    assert batch.vocabulary == ("a", "b")
    assert batch.codes is not None
    assert batch.codes.tolist() == [1, -1, 0]


def test_the_checksum_covers_features_codes_and_vocabulary() -> None:
    x = np.arange(6, dtype="<f4").reshape(2, 3)
    entry = RawBatch.of(x, ["a", "b"]).to_entry()
    y = np.array([0, 1], "<i8").tobytes()
    expected = zlib.crc32(b'["a","b"]', zlib.crc32(y, zlib.crc32(x.tobytes())))
    assert entry["crc"] == str(expected).encode()
    assert entry["crc"] != RawBatch.of(x, ["a", "c"]).to_entry()["crc"]


def test_allowed_fields_are_handed_on() -> None:
    assert parse_json(b'{"features": [[1]], "c": 3}', LIMITS, ("c", "n")).fields == {"c": 3}
    body = pack({"features": np.zeros((1, 1), "f4")}, {"c": "3", "format": "pt"})
    assert parse_safetensors(body, LIMITS, ("c",)).fields == {"c": "3"}


def test_arrays_are_not_copied_on_their_way_in_and_out() -> None:
    body = pack({"features": np.arange(6, dtype="f4").reshape(2, 3)})
    batch = parse_safetensors(body, LIMITS)
    assert np.shares_memory(batch.features, np.frombuffer(body, np.uint8))
    x = batch.to_entry()["x"]
    assert np.shares_memory(np.frombuffer(x, np.uint8), np.frombuffer(body, np.uint8))
    assert batch.to_float32() is batch.features


@given(
    n=st.integers(1, 5),
    d=st.integers(1, 5),
    place=st.integers(0, 24),
    value=st.sampled_from([math.nan, math.inf, -math.inf]),
    more=st.lists(st.integers(0, 24), max_size=3),
)
def test_the_first_number_that_python_writes_and_json_has_not_is_pointed_at(
    n: int, d: int, place: int, value: float, more: list[int]
) -> None:
    places = sorted({one % (n * d) for one in (place, *more)})
    rows = [[0.5] * d for _ in range(n)]
    for one in places:
        rows[one // d][one % d] = value
    with pytest.raises(NonFiniteFeature) as caught:
        parse_json(json.dumps({"features": rows}).encode(), LIMITS)
    first = {"row": places[0] // d, "column": places[0] % d}
    assert caught.value.context == first


def test_what_is_no_json_is_never_taken() -> None:
    # Another parser would take all of these; only the one that reads every body decides.
    for body in (
        b'{"features": [[1]], "c": NaN}',
        b'{"features": [[1]], "p_values": -Infinity}',
    ):
        with pytest.raises(InvalidBatch, match="no JSON"):
            parse_json(body, LIMITS, allowed=("c", "p_values"))
    with pytest.raises(InvalidLabels, match="position 1 is nan"):
        parse_labels(b'{"sample_ids": ["a", "b"], "labels": [1, NaN]}', LIMITS)
    with pytest.raises(InvalidBatch, match="no JSON"):
        parse_labels(b'{"sample_ids": ["a"], "labels": [1], "batch_id": "NaN",}', LIMITS)


def test_a_tensor_that_is_not_aligned_is_read_all_the_same() -> None:
    header = b'{"features":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}}'
    header += b" " * (3 - len(header) % 4)  # 8 + length is no multiple of 4
    body = struct.pack("<Q", len(header)) + header + struct.pack("<2f", 1.5, -2.0)
    batch = parse_safetensors(body, LIMITS)
    assert batch.features.tolist() == [[1.5, -2.0]]
    assert batch.features.flags.aligned


# Refusals ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        (b"", InvalidBatch, "no JSON"),
        (b"[[1, 2]]", InvalidBatch, "JSON array"),
        (b'{"features": [[NaN]]}', NonFiniteFeature, "row 0, column 0 is nan"),
        (b'{"features": [[1, 2], [3, -Infinity]]}', NonFiniteFeature, "row 1, column 1 is -inf"),
        (b'{"features": [[1, 2], [1e400, 4]]}', NonFiniteFeature, "row 1, column 0 is inf"),
        (b'{"features": [[1]], "labels": [NaN]}', InvalidLabels, "position 0 is nan"),
        (b'{"features": [[1]], "x": NaN}', InvalidBatch, "field 'x'"),
        (b'{"features": [[1]], "batch_id": "NaN", }', InvalidBatch, "no JSON"),
        (b'{"features": [[NaN]]', InvalidBatch, "no JSON"),
        (b"[" * 100_000 + b"NaN", InvalidBatch, "JSON array, not an object"),
        (b'{"labels": [1]}', ShapeMismatch, "`features` is missing"),
        (b'{"features": []}', ShapeMismatch, "an empty list"),
        (b'{"features": [[]]}', ShapeMismatch, "Row 0 of `features` is empty"),
        (b'{"features": [1, 2]}', ShapeMismatch, "Row 0 of `features` is a JSON number"),
        (b'{"features": [[1], 2]}', ShapeMismatch, "Row 1 of `features` is a JSON number"),
        (b'{"features": [[1, 2], [3, 4], [5]]}', ShapeMismatch, "Row 2 has 1 features"),
        (b'{"features": [[1, 2], [3, "4"]]}', ShapeMismatch, "row 1, column 1 is a JSON string"),
        (b'{"features": [[1, 2], [true, 4]]}', ShapeMismatch, "row 1, column 0 is a JSON boolean"),
        (b'{"features": [[1, null]]}', ShapeMismatch, "row 0, column 1 is a JSON null"),
        (b'{"features": [[[1]]]}', ShapeMismatch, "row 0, column 0 is a JSON array"),
        (b'{"features": [[1, 1e39]]}', NonFiniteFeature, "row 0, column 1 is inf"),
        (b'{"features": [[1]], "label": [1]}', InvalidBatch, "Did you mean `labels`"),
        (b'{"features": [[1]], "labels": [1, 2]}', InvalidLabels, "1 sample came with 2 labels"),
        (b'{"features": [[1]], "labels": 1}', InvalidLabels, "JSON number"),
        (
            b'{"features": [[1], [2]], "labels": [1, true]}',
            InvalidLabels,
            "position 1 is a JSON bool",
        ),
        (b'{"features": [[1]], "labels": [1.0]}', InvalidLabels, "position 0 is a JSON number"),
        (b'{"features": [[1]], "labels": [[1]]}', InvalidLabels, "position 0 is a JSON array"),
        (b'{"features": [[1]], "labels": [9223372036854775808]}', InvalidLabels, "64 bits"),
        (b'{"features": [[1]], "labels": ["' + b"x" * 300 + b'"]}', InvalidLabels, "300 char"),
        (b'{"features": [[1]], "batch_id": 5}', InvalidBatch, "batch_id is a JSON number"),
        (b'{"features": [[1]], "batch_id": ""}', InvalidBatch, "0 characters"),
        (b'{"features": [[1]], "batch_id": "a\\nb"}', InvalidBatch, "cannot be printed"),
        (json.dumps({"features": [[1]] * 101}).encode(), InvalidBatch, "at most 100"),
        (json.dumps({"features": [[1] * 51]}).encode(), ShapeMismatch, "at most 50"),
    ],
)
def test_a_json_body_is_refused_with_the_first_offending_position(
    body: bytes, error: type[InvalidBatch], message: str
) -> None:
    with pytest.raises(error, match=message):
        parse_json(body, LIMITS)


def test_one_long_string_among_the_features_costs_no_memory() -> None:
    # As an array of text, every cell would be as wide as the widest.
    rows: list[list[object]] = [[0.0] * 50 for _ in range(100)]
    rows[99][49] = "x" * 1_000_000
    with pytest.raises(ShapeMismatch, match="row 99, column 49"):
        parse_json(orjson.dumps({"features": rows}), LIMITS)


def features(*shape: int, dtype: str = "<f4") -> np.ndarray:
    return np.zeros(shape, dtype)


@pytest.mark.parametrize(
    ("tensors", "metadata", "error", "message"),
    [
        ({}, {}, ShapeMismatch, "no tensor `features`"),
        ({"features": features(3)}, {}, ShapeMismatch, r"shape \(3,\)"),
        ({"features": features(0, 3)}, {}, ShapeMismatch, "at least one sample"),
        ({"features": features(3, 0)}, {}, ShapeMismatch, "at least one sample"),
        ({"features": features(2, 2, dtype="<f8")}, {}, ShapeMismatch, "float64"),
        ({"features": features(2, 2, dtype="i1")}, {}, ShapeMismatch, "int8"),
        ({"features": features(101, 1)}, {}, InvalidBatch, "at most 100"),
        ({"features": features(1, 51)}, {}, ShapeMismatch, "at most 50"),
        ({"features": features(1, 1), "lables": features(1)}, {}, InvalidBatch, "`labels`"),
        ({"features": features(1, 1), "labels": features(1)}, {}, InvalidLabels, "float32"),
        (
            {"features": features(1, 1), "labels": features(1, 1, dtype="i8")},
            {},
            InvalidLabels,
            r"shape \(1, 1\)",
        ),
        (
            {"features": features(2, 1), "labels": features(3, dtype="i8")},
            {},
            InvalidLabels,
            "2 samples came with 3 labels",
        ),
        (
            {"features": features(2, 1), "labels": np.array([0, 2])},
            {"vocabulary": '["a", "b"]'},
            InvalidLabels,
            "position 1 is 2, but the vocabulary has 2",
        ),
        (
            {"features": features(1, 1), "labels": np.array([-2])},
            {"vocabulary": '["a"]'},
            InvalidLabels,
            "position 0 is -2",
        ),
        (
            {"features": features(1, 1), "labels": np.array([0])},
            {"vocabulary": '["a", ""]'},
            InvalidLabels,
            "position 1 of the vocabulary is an empty string.*Send null",
        ),
        (
            {"features": features(1, 1), "labels": np.array([0])},
            {"vocabulary": '["a", "a"]'},
            InvalidLabels,
            "repeats",
        ),
        (
            {"features": features(1, 1), "labels": np.array([0])},
            {"vocabulary": "a"},
            InvalidLabels,
            "no JSON",
        ),
        (
            {"features": features(1, 1), "labels": np.array([2**63], "<u8")},
            {},
            InvalidLabels,
            "64 bits",
        ),
        ({"features": features(1, 1)}, {"batch_id": "x" * 201}, InvalidBatch, "201 characters"),
    ],
)
def test_a_binary_body_is_refused_with_the_reason(
    tensors: dict[str, np.ndarray],
    metadata: dict[str, str],
    error: type[InvalidBatch],
    message: str,
) -> None:
    with pytest.raises(error, match=message):
        parse_safetensors(pack(tensors, metadata), LIMITS)


def test_an_empty_label_is_refused_wherever_labels_are_made() -> None:
    for make in (
        lambda: RawBatch.of(features(2, 1), ["a", ""]),
        lambda: RawBatch.of(features(2, 1), np.array(["a", ""])),
        lambda: RawLabels.of([1, 2], ["a", ""]),
    ):
        with pytest.raises(InvalidLabels, match=r"position 1 is an empty string.*Send null"):
            make()
    with pytest.raises(InvalidLabels, match="Send null to dismiss"):
        RawName.of(1, "")
    assert RawBatch.of(features(2, 1), [" ", None]).vocabulary == (" ",)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", ["<f4", "<f2"])
def test_a_feature_that_is_not_finite_is_named(value: float, dtype: str) -> None:
    array = features(4, 5, dtype=dtype)
    array[2, 3] = array[3, 0] = value
    with pytest.raises(NonFiniteFeature, match=f"row 2, column 3 is {value}") as caught:
        parse_safetensors(pack({"features": array}), LIMITS)
    assert caught.value.context == {"row": 2, "column": 3}


def file_of(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


TENSOR = {"dtype": "F32", "shape": [1, 1], "data_offsets": [0, 4]}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"short",
        struct.pack("<Q", 10**18) + b"{}",
        file_of(b"{"),
        file_of(b"\xff"),
        file_of([]),
        file_of({"__metadata__": {"a": 1}}),
        file_of({"features": []}),
        file_of({"features": {**TENSOR, "dtype": "F8_E4M3"}}, b"1234"),
        file_of({"features": {**TENSOR, "dtype": ["F32"]}}, b"1234"),
        file_of({"features": {**TENSOR, "shape": [1, -1]}}, b"1234"),
        file_of({"features": {**TENSOR, "shape": [True, 1]}}, b"1234"),
        file_of({"features": {**TENSOR, "shape": [1.0, 1]}}, b"1234"),
        file_of({"features": {**TENSOR, "shape": [1] * 9}}, b"1234"),
        file_of({"features": {**TENSOR, "shape": [10**6, 10**6]}}, b"1234"),
        file_of({"features": {**TENSOR, "shape": [2**62, 4, 0]}}, b"1234"),
        file_of({"features": {**TENSOR, "data_offsets": [4, 0]}}, b"1234"),
        file_of({"features": {**TENSOR, "data_offsets": [0, 8]}}, b"1234"),
        file_of({"features": {**TENSOR, "data_offsets": [0]}}, b"1234"),
        file_of({"features": TENSOR}, b"12345"),
        file_of({"features": TENSOR, "labels": TENSOR}, b"1234"),
        file_of({"features": {**TENSOR, "data_offsets": [4, 8]}}, b"12345678"),
    ],
)
def test_what_is_no_safetensors_file_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidBatch):
        parse_safetensors(body, LIMITS)


@given(st.binary(max_size=200))
def test_random_bytes_raise_nothing_but_invalid_batch(body: bytes) -> None:
    for parse in (parse_json, parse_safetensors):
        with pytest.raises(InvalidBatch):
            parse(body, LIMITS)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=12,
)


@settings(max_examples=300)
@given(
    st.fixed_dictionaries(
        {}, optional=dict.fromkeys(("features", "labels", "batch_id"), json_values)
    )
)
def test_any_json_gives_a_batch_or_invalid_batch(document: dict[str, object]) -> None:
    try:
        batch = parse_json(json.dumps(document).encode(), LIMITS)
    except InvalidBatch:
        return
    assert np.isfinite(batch.features).all()
    assert batch.features.dtype == np.float32


@settings(max_examples=300)
@given(batches(), st.data())
def test_a_damaged_body_gives_a_batch_or_invalid_batch(
    batch: RawBatch, data: st.DataObject
) -> None:
    body = bytearray(batch.to_safetensors())
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        parse_safetensors(body, LIMITS)
    except InvalidBatch:
        return


entry_values = st.binary(max_size=30) | st.sampled_from(
    [
        b"1",
        b"batch",
        b"f4",
        b"u1",
        b"1,1",
        b"2,2",
        b"0,0",
        b"rollback",
        b'["a"]',
        b"[]",
        b"\x00" * 8,
    ]
)


@settings(max_examples=300)
@given(
    st.dictionaries(
        st.sampled_from(
            [b"kind", b"x", b"y", b"dtype", b"shape", b"labels", b"id", b"crc", b"version", b"t"]
        ),
        entry_values,
    )
)
def test_any_entry_gives_a_request_or_invalid_batch(fields: dict[bytes, bytes]) -> None:
    try:
        asked = read_entry({b"v": b"1", **fields}, LIMITS)
    except InvalidBatch:
        return
    assert isinstance(asked, RawBatch | Control)


def batch_entry(**changes: bytes) -> dict[bytes, bytes]:
    entry = as_redis_returns(RawBatch.of(np.ones((2, 2), "f4"), ["a", None]).to_entry())
    return {**entry, **{name.encode(): value for name, value in changes.items()}}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"v": b"2"}, "field v is '2'"),
        ({"kind": b"learn"}, "kind is 'learn'"),
        ({"x": b"\x00" * 16}, "checksum"),
        ({"labels": b'["b"]'}, "checksum"),
        ({"crc": b"x"}, "field crc"),
        ({"dtype": b"f8"}, "dtype is 'f8'"),
        ({"shape": b"2"}, "shape is '2'"),
        ({"shape": b"2,-2"}, "shape"),
        ({"shape": b"2,3"}, "holds 16 bytes"),
        ({"shape": b"1_0,2"}, "shape"),
        ({"by": b""}, "field by has 0"),
        ({"by": b"a\nb"}, "field by has 3"),
        ({"by": b"a" * 101}, "field by has 101"),
        ({"shape": "٢,2".encode()}, "shape"),
        ({"lables": b'["b"]'}, r"batch\) has a field 'lables'; .* Did you mean `labels`"),
        ({"Y": b""}, "field 'Y'"),
        ({"proposal": b"1"}, "field 'proposal'"),
        ({"ünit": b"1"}, "Leave it out"),
    ],
)
def test_a_wrong_entry_is_refused_with_the_reason(changes: dict[str, bytes], message: str) -> None:
    with pytest.raises(InvalidBatch, match=message):
        read_entry(batch_entry(**changes))


@pytest.mark.parametrize(
    ("entry", "name"),
    [
        (RawLabels.of([1], ["a"]).to_entry(), "lables"),
        (RawName.of(1, "a").to_entry(), "propsal"),
        (Control("boundary", note="new shift").to_entry(), "notes"),
    ],
)
def test_any_entry_with_a_field_that_nothing_reads_is_refused(
    entry: dict[str, bytes], name: str
) -> None:
    read_entry({**entry, "requeued_from": b"1-0"})
    with pytest.raises(InvalidBatch, match=f"has a field '{name}'; .* Did you mean"):
        read_entry({**entry, name: b"1"})


def test_labels_without_codes_are_refused() -> None:
    entry = batch_entry()
    del entry[b"y"]
    with pytest.raises(InvalidLabels, match="labels and no field y"):
        read_entry(entry)


def test_a_batch_has_the_name_of_its_key_and_is_the_same_batch_from_another() -> None:
    batch = RawBatch.of([[1.0, 2.0]], batch_id="a")
    entries = [replace(batch, by=by).to_entry() for by in ("camera 7", "pump", None)]
    assert [RawBatch.from_entry(entry).by for entry in entries] == ["camera 7", "pump", None]
    assert len({identity(entry) for entry in entries}) == 1


def test_an_entry_beyond_the_limits_is_refused() -> None:
    with pytest.raises(InvalidBatch, match="at most 1"):
        read_entry(batch_entry(), Limits(max_samples=1, max_features=9))


def test_an_entry_by_hand_needs_no_more_than_the_documented_fields() -> None:
    fields = {"v": b"1", "kind": b"batch", "x": bytes([0, 255]), "dtype": b"u1", "shape": b"1,2"}
    batch = read_entry(fields)
    assert isinstance(batch, RawBatch)
    assert batch.to_float32().tolist() == [[0.0, 1.0]]
    assert batch.codes is None


@pytest.mark.parametrize("features", [[["a"]], [[True]], [[None]], [1.0, 2.0], [[]]])
def test_a_program_cannot_make_a_wrong_batch_either(features: Any) -> None:
    with pytest.raises(ShapeMismatch):
        RawBatch.of(features)


# Labels that come later -----------------------------------------------------------------------


@given(st.lists(st.tuples(names, names), min_size=1, max_size=20, unique_by=lambda pair: pair[0]))
def test_labels_survive_body_and_entry(pairs: list[tuple[int | str, int | str]]) -> None:
    ids, told = zip(*pairs, strict=True)
    request = RawLabels.of(list(ids), np.array(told) if type(told[0]) is int else list(told), "n")
    if any(type(label) is not type(told[0]) for label in told):
        request = RawLabels.of(list(ids), list(told), "n")
    assert request.sample_ids == ids
    assert parse_labels(request.to_json(), LIMITS) == request
    assert read_entry(request.to_entry(), LIMITS) == request


@pytest.mark.parametrize("label", ["x", 7, None])
def test_a_name_survives_body_and_entry(label: int | str | None) -> None:
    request = RawName.of(3, label, "n")
    assert parse_labels(request.to_json(), LIMITS) == request
    assert read_entry(request.to_entry()) == request


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ids": b'["b"]'}, "checksum"),
        ({"ids": b"{", "crc": b"0"}, "checksum"),
        ({"labels": b"[2]"}, "checksum"),
    ],
)
def test_damaged_labels_are_refused(changes: dict[str, bytes], message: str) -> None:
    entry = {**RawLabels.of(["a"], [1]).to_entry(), **changes}
    with pytest.raises(InvalidBatch, match=message):
        read_entry(entry)
    without = {name: value for name, value in entry.items() if name != "crc"}
    if changes.get("ids") == b"{":
        with pytest.raises(InvalidBatch, match="no JSON"):
            read_entry(without)


def test_more_labels_than_a_request_may_hold_are_refused() -> None:
    request = RawLabels.of(list(range(101)), [1] * 101)
    with pytest.raises(InvalidBatch, match="at most 100"):
        parse_labels(request.to_json(), LIMITS)
    with pytest.raises(InvalidBatch, match="at most 100"):
        read_entry(request.to_entry(), LIMITS)


@pytest.mark.parametrize(
    "control",
    [
        Control("rollback", version=1, by="b" * 101),
        Control("aim", samples=10, by="b" * 101),
        Control("boundary", by="b" * 101),
    ],
)
def test_whoever_asks_has_a_short_name(control: Control) -> None:
    with pytest.raises(InvalidBatch, match="its author 101"):
        read_entry(control.to_entry())
    shorter = replace(control, by="b" * 100)
    assert read_entry(shorter.to_entry()) == shorter


def test_ids_of_samples_may_be_a_tensor_or_text() -> None:
    features = np.ones((2, 1), "f4")
    tensors = {"features": features, "sample_ids": np.array([5, 6], "u2")}
    assert parse_safetensors(pack(tensors), LIMITS).sample_ids == (5, 6)
    text = pack({"features": features}, {"sample_ids": '["a", null]'})
    assert parse_safetensors(text, LIMITS).sample_ids == ("a", None)
    for wrong in (np.array([5.0, 6.0]), np.array([[5, 6]]), np.array([5])):
        with pytest.raises(InvalidBatch, match="sample"):
            parse_safetensors(pack({"features": features, "sample_ids": wrong}), LIMITS)
    with pytest.raises(InvalidBatch, match="no JSON"):
        parse_safetensors(pack({"features": features}, {"sample_ids": "a,b"}), LIMITS)


def test_the_second_of_two_samples_with_one_name_is_pointed_at() -> None:
    with pytest.raises(InvalidBatch, match="position 3 names a second") as caught:
        RawBatch.of(np.ones((4, 1)), sample_ids=["a", None, "b", "a"])
    assert caught.value.context["position"] == 3

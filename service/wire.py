"""Arrays <-> bytes: HTTP bodies and entries of the input stream.

Rules of this module:

1. numpy and `core.errors` only, no torch: the clients import it too.
2. Every byte may come from a stranger. Whatever is wrong with it, the answer is
   an `InvalidBatch` that names the first offending position; nothing else is
   raised, nothing larger than the input is allocated before it was checked.
3. Arrays travel as they were sent (uint8 stays a quarter of float32) and are
   views of the bytes received where that is possible.
4. Numbers are little-endian.

Throughout: N samples, D features. Features are float32, float16, or uint8 where
a byte k means k/255. Labels are integers or strings; inside a batch they are
codes into its `vocabulary`, with -1 for a sample without a label.

Two bodies carry a batch over HTTP:

* JSON: `{"features": [[...], ...], "labels": [...], "batch_id": "..."}`, where a
  label is an integer, a string or null.
* safetensors: tensor `features` (N, D), optional tensor `labels` (N,) of integers,
  and text metadata `batch_id`, `vocabulary`. Without a vocabulary the integers are
  the labels themselves; with one, a JSON list, they are codes that index it.

An entry of the input stream has these fields, so that any program may add one:

| field | content |
|---|---|
| `v` | `1`, the version of this table |
| `kind` | `batch`, `boundary`, `settle`, `rollback` or `restore` |
| `x` | batch: features, row by row, as raw bytes; restore: a checkpoint |
| `dtype` | batch: `f4`, `f2` or `u1` |
| `shape` | batch: `N,D` |
| `y` | batch, optional: N codes, int64 |
| `labels` | batch, with `y`: JSON list of the labels that the codes index |
| `id` | optional: batch id |
| `crc` | optional: crc32 over `x`, `y` and `labels`, in decimal |
| `t` | optional: when it was sent, Unix milliseconds |
| `version` | rollback: the model version to go back to |
"""

from __future__ import annotations

import difflib
import time
import uuid
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple, TypeGuard

import numpy as np
import numpy.typing as npt
import orjson

from core.errors import InvalidBatch, InvalidLabels, NonFiniteFeature, ShapeMismatch

Label = int | str
Array = npt.NDArray[Any]
Fields = Mapping[bytes, Any] | Mapping[str, Any]

MEDIA_TYPE: Final = "application/vnd.safetensors"
"""Media type of a binary body."""

UNLABELLED: Final = -1
VERSION: Final = b"1"
MAX_ID_LENGTH: Final = 200
MAX_LABEL_LENGTH: Final = 256
MAX_HEADER_BYTES: Final = 1024 * 1024

Kind = Literal["batch", "boundary", "settle", "rollback", "restore"]
CONTROL_KINDS: Final = ("boundary", "settle", "rollback", "restore")

FEATURE_TYPES: Final[Mapping[str, np.dtype[Any]]] = {
    "f4": np.dtype("<f4"),
    "f2": np.dtype("<f2"),
    "u1": np.dtype("u1"),
}

# The names of the safetensors format, as far as numpy has the type.
TENSOR_TYPES: Final[Mapping[str, np.dtype[Any]]] = {
    "BOOL": np.dtype("bool"),
    "U8": np.dtype("u1"),
    "I8": np.dtype("i1"),
    "U16": np.dtype("<u2"),
    "I16": np.dtype("<i2"),
    "F16": np.dtype("<f2"),
    "U32": np.dtype("<u4"),
    "I32": np.dtype("<i4"),
    "F32": np.dtype("<f4"),
    "U64": np.dtype("<u8"),
    "I64": np.dtype("<i8"),
    "F64": np.dtype("<f8"),
}
TENSOR_NAMES: Final = {dtype: name for name, dtype in TENSOR_TYPES.items()}


class Limits(NamedTuple):
    """What one request may hold at most."""

    max_samples: int
    max_features: int


NO_LIMITS: Final = Limits(max_samples=2**62, max_features=2**62)


@dataclass(frozen=True, eq=False)
class RawBatch:
    """N samples as they were sent, with or without labels.

    Made by `of`, `parse_json`, `parse_safetensors` or `from_entry`, all of which
    check what they are given.

    Arguments:
        features: Samples, with shape (N, D): float32, float16, or uint8 (k means k/255).
        codes: Index into `vocabulary` per sample, with shape (N,), int64, or -1;
            None when no sample is labelled.
        vocabulary: The labels that occur, without repeats, in order of first appearance.
        batch_id: The sender's name for the batch, by which a repeat is recognised.
        fields: What else the body held and the caller allowed.

    Example:
        >>> batch = RawBatch.of([[0.0, 1.0], [2.0, 3.0]], ["cat", None])
        >>> batch.vocabulary, batch.codes.tolist(), batch.features.dtype
        (('cat',), [0, -1], dtype('float32'))
        >>> RawBatch.from_entry(batch.to_entry()).features.tolist()
        [[0.0, 1.0], [2.0, 3.0]]
    """

    features: Array
    codes: npt.NDArray[np.int64] | None = None
    vocabulary: tuple[Label, ...] = ()
    batch_id: str | None = None
    fields: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))

    def __len__(self) -> int:
        return int(self.features.shape[0])

    @property
    def n_features(self) -> int:
        """Features per sample (D)."""
        return int(self.features.shape[1])

    @property
    def n_labelled(self) -> int:
        """Samples that carry a label."""
        return 0 if self.codes is None else int(np.count_nonzero(self.codes >= 0))

    @classmethod
    def of(
        cls,
        features: npt.ArrayLike,
        labels: Sequence[Label | None] | Array | None = None,
        batch_id: str | None = None,
    ) -> RawBatch:
        """A checked batch from arrays in memory, for programs that send.

        Arguments:
            features: Samples, with shape (N, D). float32, float16 and uint8 are kept;
                anything else becomes float32.
            labels: One integer, string or None per sample.
            batch_id: At most 200 characters.

        Raises:
            InvalidBatch: As if the batch had been received.
        """
        array = np.asarray(features)
        if array.dtype not in FEATURE_TYPES.values():
            if array.dtype.kind not in "iuf":
                raise ShapeMismatch(
                    f"Features of type {array.dtype} are no numbers; expected float32, float16 or "
                    f"uint8. Convert them before sending."
                )
            array = _to_float32(array)
        array = _check_features(np.ascontiguousarray(array), NO_LIMITS)
        codes, vocabulary = (None, ()) if labels is None else _encode_labels(labels, len(array))
        return cls(array, codes, vocabulary, None if batch_id is None else _check_id(batch_id))

    def to_float32(self) -> npt.NDArray[np.float32]:
        """The features as float32, with shape (N, D); read-only where nothing was converted."""
        if self.features.dtype == np.uint8:
            # Divided, not multiplied by 1/255: k/255 is then the nearest float32.
            return np.divide(self.features, np.float32(255), dtype=np.float32)
        return self.features.astype(np.float32, copy=False)

    def to_safetensors(self, metadata: Mapping[str, str] | None = None) -> bytes:
        """The batch as a binary HTTP body."""
        tensors: dict[str, Array] = {"features": self.features}
        text = dict(metadata or {})
        if self.batch_id is not None:
            text["batch_id"] = self.batch_id
        if self.codes is not None:
            tensors["labels"] = self.codes
            text["vocabulary"] = orjson.dumps(self.vocabulary).decode()
        return pack(tensors, text)

    def to_entry(self) -> dict[str, bytes | memoryview]:
        """The fields of a stream entry. The arrays are not copied."""
        x, y, labels = self._payload()
        n, d = self.features.shape
        entry: dict[str, bytes | memoryview] = {
            "v": VERSION,
            "kind": b"batch",
            "x": x,
            "dtype": f"{self.features.dtype.kind}{self.features.itemsize}".encode(),
            "shape": b"%d,%d" % (n, d),
            "crc": b"%d" % _crc(x, y, labels),
            "t": _now_ms(),
        }
        if self.codes is not None:
            entry["y"] = y
            entry["labels"] = labels
        if self.batch_id is not None:
            entry["id"] = self.batch_id.encode()
        return entry

    @classmethod
    def from_entry(cls, entry: Fields, limits: Limits = NO_LIMITS) -> RawBatch:
        """The batch that a stream entry holds; its features are a view of field `x`.

        Raises:
            InvalidBatch: The entry is no batch of ours, or is damaged.
        """
        fields = _as_bytes(entry)
        if _kind(fields) != "batch":
            raise InvalidBatch(f"The entry is a {_kind(fields)}, expected a batch.")
        x, y, labels = fields.get("x", b""), fields.get("y"), fields.get("labels", b"")
        name = fields.get("dtype", b"").decode("ascii", "replace")
        if name not in FEATURE_TYPES:
            raise InvalidBatch(
                f"The entry's dtype is {name[:20]!r}; expected one of {', '.join(FEATURE_TYPES)}."
            )
        dtype = FEATURE_TYPES[name]
        n, d = _parse_shape(fields.get("shape", b""))
        if len(x) != n * d * dtype.itemsize:
            raise ShapeMismatch(
                f"The entry says {n} x {d} features of {dtype.itemsize} bytes, but holds {len(x)} "
                f"bytes. Write the array row by row, with nothing before or after it.",
                shape=[n, d],
                bytes=len(x),
            )
        if "crc" in fields:
            _check_crc(fields["crc"], x, y or b"", labels)
        features = _check_features(np.frombuffer(x, dtype).reshape(n, d), limits)

        codes: npt.NDArray[np.int64] | None = None
        vocabulary: tuple[Label, ...] = ()
        if y is not None:
            if len(y) != 8 * n:
                raise _wrong_number_of_labels(n, len(y) // 8)
            vocabulary = _parse_vocabulary(labels)
            codes = _check_codes(np.frombuffer(y, "<i8"), vocabulary)
        batch_id = _check_id(_text(fields["id"], "id")) if "id" in fields else None
        return cls(features, codes, vocabulary, batch_id)

    def _payload(self) -> tuple[memoryview, memoryview | bytes, bytes]:
        x = _buffer(self.features)
        if self.codes is None:
            return x, b"", b""
        return x, _buffer(self.codes), orjson.dumps(self.vocabulary)


@dataclass(frozen=True)
class Control:
    """An entry that asks for something other than learning a batch.

    Arguments:
        kind: `boundary` (declared by hand), `settle` (the stream is quiet), `rollback`
            (to `version`) or `restore` (from `checkpoint`).
        version: The kept model version to go back to.
        checkpoint: A checkpoint's bytes.

    Example:
        >>> read_entry(Control("rollback", version=7).to_entry())
        Control(kind='rollback', version=7)
    """

    kind: Literal["boundary", "settle", "rollback", "restore"]
    version: int | None = None
    checkpoint: bytes | None = field(default=None, repr=False)

    def to_entry(self) -> dict[str, bytes | memoryview]:
        """The fields of a stream entry."""
        entry: dict[str, bytes | memoryview] = {
            "v": VERSION,
            "kind": self.kind.encode(),
            "t": _now_ms(),
        }
        if self.version is not None:
            entry["version"] = b"%d" % self.version
        if self.checkpoint is not None:
            entry["x"] = self.checkpoint
            entry["crc"] = b"%d" % _crc(self.checkpoint)
        return entry


def read_entry(entry: Fields, limits: Limits = NO_LIMITS) -> RawBatch | Control:
    """What an entry of the input stream asks for.

    Arguments:
        entry: Field name to bytes, as Redis returns it.
        limits: Refuse a larger batch, as the API would have done.

    Raises:
        InvalidBatch: The entry is not of our format, or is damaged.
    """
    fields = _as_bytes(entry)
    if fields.get("v") != VERSION:
        raise InvalidBatch(
            f"The entry's field v is {_shown(fields.get('v'))}; expected 1, the only version of "
            f"the entry format there is. See service/wire.py for the fields of an entry."
        )
    kind = _kind(fields)
    if kind == "batch":
        return RawBatch.from_entry(entry, limits)
    if kind == "rollback":
        return Control("rollback", version=_parse_int(fields.get("version", b""), "version"))
    if kind == "restore":
        checkpoint = fields.get("x", b"")
        if "crc" in fields:
            _check_crc(fields["crc"], checkpoint)
        return Control("restore", checkpoint=checkpoint)
    return Control(kind)


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
        raise InvalidBatch(
            f"The body is no JSON: {error}. Send an object with a field `features`; NaN and "
            f"Infinity do not exist in JSON."
        ) from None
    if not isinstance(document, dict):
        raise InvalidBatch(
            f"The body is a JSON {_json_type(document)}; expected an object with a field "
            f"`features`."
        )
    known = {"features", "labels", "batch_id", *allowed}
    _refuse_unknown("field", document, known)

    features = _parse_rows(document.get("features"), limits)
    labels = document.get("labels")
    codes: npt.NDArray[np.int64] | None = None
    vocabulary: tuple[Label, ...] = ()
    if labels is not None:
        if not isinstance(labels, list):
            raise InvalidLabels(
                f"`labels` is a JSON {_json_type(labels)}; expected a list with one integer, "
                f"string or null per sample."
            )
        codes, vocabulary = _encode_labels(labels, len(features))
    batch_id = document.get("batch_id")
    return RawBatch(
        features,
        codes,
        vocabulary,
        None if batch_id is None else _check_id(batch_id),
        {name: document[name] for name in allowed if name in document},
    )


def parse_safetensors(
    body: bytes | bytearray | memoryview, limits: Limits, allowed: Collection[str] = ()
) -> RawBatch:
    """A batch from a binary body; its features are a view of the body.

    Arguments:
        body: The whole body.
        limits: Most samples and features accepted.
        allowed: Names of further metadata, handed on in `RawBatch.fields`. Other
            metadata is ignored: tools add their own.

    Raises:
        ShapeMismatch, NonFiniteFeature, InvalidLabels, InvalidBatch: As for JSON.
    """
    tensors, metadata = unpack(body)
    _refuse_unknown("tensor", tensors, {"features", "labels"})
    if "features" not in tensors:
        raise ShapeMismatch("The body holds no tensor `features`; expected one, (N, D).")
    features = _check_features(tensors["features"], limits)

    codes: npt.NDArray[np.int64] | None = None
    vocabulary: tuple[Label, ...] = ()
    if "labels" in tensors:
        labels = tensors["labels"]
        if labels.dtype.kind not in "iu" or labels.ndim != 1:
            raise InvalidLabels(
                f"The tensor `labels` is {labels.dtype} with shape {labels.shape}; expected "
                f"integers with shape (N,). For strings send codes and a `vocabulary`."
            )
        if len(labels) != len(features):
            raise _wrong_number_of_labels(len(features), len(labels))
        if "vocabulary" in metadata:
            vocabulary = _parse_vocabulary(metadata["vocabulary"].encode())
            codes = _check_codes(labels, vocabulary)
        else:
            codes, vocabulary = _encode_labels(labels, len(features))
    batch_id = metadata.get("batch_id")
    return RawBatch(
        features,
        codes,
        vocabulary,
        None if batch_id is None else _check_id(batch_id),
        {name: metadata[name] for name in allowed if name in metadata},
    )


def pack(tensors: Mapping[str, Array], metadata: Mapping[str, str] | None = None) -> bytes:
    """Named arrays and text as one safetensors file, readable by every such library.

    Example:
        >>> tensors, metadata = unpack(pack({"a": np.arange(3)}, {"b": "c"}))
        >>> tensors["a"].tolist(), metadata
        ([0, 1, 2], {'b': 'c'})
    """
    header: dict[str, object] = {}
    if metadata:
        header["__metadata__"] = dict(metadata)
    buffers: list[bytes | memoryview] = []
    end = 0
    # Widest type first, so that every tensor is aligned to its type.
    for name, array in sorted(tensors.items(), key=lambda item: (-item[1].itemsize, item[0])):
        little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        begin, end = end, end + little.nbytes
        header[name] = {
            "dtype": TENSOR_NAMES[little.dtype],
            "shape": list(array.shape),
            "data_offsets": [begin, end],
        }
        buffers.append(_buffer(little))
    text = orjson.dumps(header)
    text += b" " * (-len(text) % 8)  # the format's own way of aligning the data
    return b"".join([len(text).to_bytes(8, "little"), text, *buffers])


def unpack(body: bytes | bytearray | memoryview) -> tuple[dict[str, Array], dict[str, str]]:
    """The arrays and the text of a safetensors file; the arrays are read-only views of it.

    Written here and not taken from the safetensors library, which copies every
    tensor twice on this way and leaves dtype and size checks to its caller.

    Raises:
        InvalidBatch: The bytes are no safetensors file, or hold a type unknown to numpy.
    """
    view = memoryview(body).toreadonly()
    if len(view) < 8:
        raise _malformed(f"it has {len(view)} bytes, and the length of the header alone takes 8")
    length = int.from_bytes(view[:8], "little")
    if length > min(len(view) - 8, MAX_HEADER_BYTES):
        raise _malformed(f"its header claims {length} bytes of the {len(view) - 8} that follow")
    try:
        header = orjson.loads(view[8 : 8 + length])
    except orjson.JSONDecodeError as error:
        raise _malformed(f"its header is no JSON ({error})") from None
    if not isinstance(header, dict):
        raise _malformed("its header is no JSON object")
    metadata = header.pop("__metadata__", None) or {}
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise _malformed("its __metadata__ does not map names to text")

    data = view[8 + length :]
    tensors: dict[str, Array] = {}
    spans: list[tuple[int, int]] = []
    for name, entry in header.items():
        dtype, shape, begin, end = _parse_tensor_header(name, entry)
        count = 1
        for size in shape:
            count *= size
        if not 0 <= begin <= end <= len(data) or end - begin != count * dtype.itemsize:
            raise _malformed(
                f"tensor {name[:40]!r} of shape {shape[:8]} claims bytes {begin} to {end} of "
                f"{len(data)}"
            )
        spans.append((begin, end))
        array = np.frombuffer(data[begin:end], dtype).reshape(shape)
        # Some writers do not align; numpy copes, slowly, and torch does not.
        tensors[name] = array if array.flags.aligned else array.copy()
    _check_no_gaps(spans, len(data))
    return tensors, metadata


# Checks -----------------------------------------------------------------------


def _check_features(array: Array, limits: Limits) -> Array:
    if array.ndim != 2 or 0 in array.shape:
        raise ShapeMismatch(
            f"Features have shape {array.shape}; expected (N, D) with at least one sample and one "
            f"feature. Send a matrix with one row per sample.",
            shape=list(array.shape),
        )
    n, d = array.shape
    if array.dtype not in FEATURE_TYPES.values():
        raise ShapeMismatch(
            f"Features are {array.dtype}; expected float32, float16 or uint8 (k means k/255). "
            f"Convert them before sending.",
            dtype=str(array.dtype),
        )
    _check_limits(n, d, limits)
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0].tolist()
        raise NonFiniteFeature.at(row=row, column=column, value=float(array[row, column]))
    return array


def _check_limits(n: int, d: int, limits: Limits) -> None:
    if n > limits.max_samples:
        raise InvalidBatch(
            f"The request has {n} samples; at most {limits.max_samples} are accepted at once. Send "
            f"smaller batches, or raise GMR_MAX_SAMPLES.",
            samples=n,
            max_samples=limits.max_samples,
        )
    if d > limits.max_features:
        raise ShapeMismatch(
            f"Each sample has {d} features; at most {limits.max_features} are accepted. Check that "
            f"samples are rows, or raise GMR_MAX_FEATURES.",
            features=d,
            max_features=limits.max_features,
        )


def _to_float32(array: Array) -> npt.NDArray[np.float32]:
    """Numbers of any real type as float32; infinity where one is too large."""
    with np.errstate(over="ignore"):
        return array.astype(np.float32)


def _parse_rows(rows: object, limits: Limits) -> Array:
    """A list of lists of numbers as float32, or the error that says where it is none."""
    if not isinstance(rows, list) or not rows:
        got = "missing" if rows is None else f"a JSON {_json_type(rows)}"
        raise ShapeMismatch(
            f"`features` is {'an empty list' if rows == [] else got}; expected a list of rows, "
            f"each a list of D numbers."
        )
    first = rows[0]
    if not isinstance(first, list) or not first:
        raise ShapeMismatch(
            f"Row 0 of `features` is {'empty' if first == [] else 'a JSON ' + _json_type(first)}; "
            f"expected a list of D numbers per sample. A single sample is a list with one row.",
            row=0,
        )
    n, d = len(rows), len(first)
    _check_limits(n, d, limits)
    # Types first: numpy takes booleans and "1.5" for numbers without a word, and would
    # give every cell of a table the width of its longest string.
    if set(map(type, rows)) != {list} or set(map(len, rows)) != {d}:
        _find_misfit(rows, d)
    if not set(map(type, chain.from_iterable(rows))) <= {int, float}:
        _find_misfit(rows, d)
    with np.errstate(over="ignore"):  # too large for float32: infinity, found below
        flat = np.fromiter(chain.from_iterable(rows), np.float32, count=n * d)
    return _check_features(flat.reshape(n, d), limits)


def _find_misfit(rows: list[object], d: int) -> None:
    """Raise for the first row of a wrong length, or the first thing that is no number."""
    for i, row in enumerate(rows):
        if not isinstance(row, list):
            raise ShapeMismatch(
                f"Row {i} of `features` is a JSON {_json_type(row)}; expected a list of {d} "
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
                    f"The feature at row {i}, column {j} is a JSON {_json_type(value)}; every "
                    f"feature must be a number. Replace missing values and encode text before "
                    f"sending.",
                    row=i,
                    column=j,
                )


def _encode_labels(
    labels: Sequence[Label | None] | Array, n: int
) -> tuple[npt.NDArray[np.int64], tuple[Label, ...]]:
    """Codes (N,) and the vocabulary they index, in order of first appearance."""
    if isinstance(labels, np.ndarray):
        if labels.ndim != 1:
            raise InvalidLabels(f"Labels have shape {labels.shape}; expected (N,), one per sample.")
        if labels.dtype.kind in "iu":
            if len(labels) != n:
                raise _wrong_number_of_labels(n, len(labels))
            return _encode_integers(labels)
        labels = labels.tolist()
    if len(labels) != n:
        raise _wrong_number_of_labels(n, len(labels))
    index: dict[Label, int] = {}
    codes = np.empty(n, np.int64)
    for i, label in enumerate(labels):
        if label is None:
            codes[i] = UNLABELLED
            continue
        if isinstance(label, np.generic):
            label = label.item()
        _check_label(label, f"The label at position {i}", i)
        codes[i] = index.setdefault(label, len(index))
    return codes, tuple(index)


def _encode_integers(labels: Array) -> tuple[npt.NDArray[np.int64], tuple[Label, ...]]:
    values, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    if labels.dtype == np.dtype("<u8") and len(values) and values[-1] > 2**63 - 1:
        _check_label(int(values[-1]), "The largest label", int(first[-1]))
    order = np.argsort(first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank[inverse], tuple(values[order].tolist())


def _check_label(label: object, what: str, position: int) -> None:
    if isinstance(label, bool) or not isinstance(label, int | str):
        raise InvalidLabels(
            f"{what} is a JSON {_json_type(label)}; expected an integer, a string or null. Convert "
            f"it before sending.",
            position=position,
        )
    if isinstance(label, str) and len(label) > MAX_LABEL_LENGTH:
        raise InvalidLabels(
            f"{what} has {len(label)} characters; at most {MAX_LABEL_LENGTH} are accepted. Send a "
            f"short name.",
            position=position,
        )
    if isinstance(label, int) and not -(2**63) <= label < 2**63:
        raise InvalidLabels(
            f"{what} is {label}; integers must fit 64 bits with a sign. Send it as a string.",
            position=position,
        )


def _check_codes(codes: Array, vocabulary: tuple[Label, ...]) -> npt.NDArray[np.int64]:
    wrong = np.flatnonzero((codes < UNLABELLED) | (codes >= len(vocabulary)))
    if len(wrong):
        position = int(wrong[0])
        raise InvalidLabels(
            f"The label code at position {position} is {int(codes[position])}, but the vocabulary "
            f"has {len(vocabulary)} labels. Send codes that index the vocabulary, or -1.",
            position=position,
        )
    return codes.astype(np.int64, copy=False)


def _parse_vocabulary(text: bytes) -> tuple[Label, ...]:
    try:
        labels = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise InvalidLabels(
            f"The vocabulary is no JSON: {error}. Send a JSON list of the labels that the codes "
            f"index."
        ) from None
    if not isinstance(labels, list):
        raise InvalidLabels(f"The vocabulary is a JSON {_json_type(labels)}; expected a list.")
    for i, label in enumerate(labels):
        _check_label(label, f"The label at position {i} of the vocabulary", i)
    if len(set(labels)) != len(labels):
        raise InvalidLabels("The vocabulary repeats a label; expected each label once.")
    return tuple(labels)


def _wrong_number_of_labels(samples: int, labels: int) -> InvalidLabels:
    return InvalidLabels(
        f"{samples} samples came with {labels} labels; expected one per sample. Send null for a "
        f"sample without a label.",
        samples=samples,
        labels=labels,
    )


def _check_id(batch_id: object) -> str:
    if not isinstance(batch_id, str) or not 0 < len(batch_id) <= MAX_ID_LENGTH:
        got = f"is a JSON {_json_type(batch_id)}"
        if isinstance(batch_id, str):
            got = f"has {len(batch_id)} characters"
        raise InvalidBatch(
            f"The batch_id {got}; expected text of 1 to {MAX_ID_LENGTH} characters, for example "
            f"a UUID."
        )
    if not batch_id.isprintable():
        raise InvalidBatch(
            f"The batch_id {batch_id!r} holds characters that cannot be printed; expected plain "
            f"text, for example a UUID."
        )
    return batch_id


def new_batch_id() -> str:
    """A fresh name for a batch that came without one."""
    return uuid.uuid4().hex


def _refuse_unknown(what: str, names: Iterable[str], known: set[str]) -> None:
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, sorted(known), n=1)
            hint = f"Did you mean `{close[0]}`?" if close else "Leave it out."
            raise InvalidBatch(
                f"The body has a {what} {name[:40]!r}; known are {', '.join(sorted(known))}. {hint}"
            )


# Bytes ------------------------------------------------------------------------


def _buffer(array: Array) -> memoryview:
    """The bytes of an array, not copied where it lies row by row already."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _crc(*parts: bytes | memoryview) -> int:
    crc = 0
    for part in parts:
        crc = zlib.crc32(part, crc)
    return crc


def _check_crc(expected: bytes, *parts: bytes | memoryview) -> None:
    crc = _crc(*parts)
    if _parse_int(expected, "crc") != crc:
        raise InvalidBatch(
            f"The entry's checksum is {_shown(expected)}, but its bytes give {crc}: it was "
            f"damaged, or written by a program that computes crc32 otherwise. Send it again.",
            crc=crc,
        )


def _as_bytes(entry: Fields) -> dict[str, bytes]:
    return {
        key.decode("ascii", "replace") if isinstance(key, bytes) else key: value
        for key, value in entry.items()
    }


def _kind(fields: Mapping[str, bytes]) -> Kind:
    kind = fields.get("kind", b"").decode("ascii", "replace")
    if kind == "batch" or kind in CONTROL_KINDS:
        return kind  # type: ignore[return-value]  # just checked
    raise InvalidBatch(
        f"The entry's kind is {kind[:40]!r}; expected batch, {', '.join(CONTROL_KINDS)}."
    )


def _parse_int(text: bytes, name: str) -> int:
    # bytes.isdigit accepts ASCII digits only, unlike str's; int() would accept "_" too.
    if not text.isdigit() or len(text) > 18:
        raise InvalidBatch(
            f"The entry's field {name} is {_shown(text)}; expected a whole number, not negative."
        )
    return int(text)


def _parse_shape(text: bytes) -> tuple[int, int]:
    n, comma, d = bytes(text).partition(b",")
    if not comma:
        raise InvalidBatch(f"The entry's shape is {_shown(text)}; expected `N,D`, like 100,784.")
    return _parse_int(n, "shape"), _parse_int(d, "shape")


def _text(value: bytes, name: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise InvalidBatch(f"The entry's field {name} is no UTF-8 text.") from None


def _parse_tensor_header(name: str, entry: object) -> tuple[np.dtype[Any], list[int], int, int]:
    if not isinstance(entry, dict):
        raise _malformed(f"the header of tensor {name[:40]!r} is no object")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not isinstance(dtype, str) or dtype not in TENSOR_TYPES:
        raise InvalidBatch(
            f"Tensor {name[:40]!r} has the type {str(dtype)[:20]!r}; expected one of "
            f"{', '.join(TENSOR_TYPES)}. Convert it before sending."
        )
    if not _all_counts(shape) or len(shape) > 8:
        raise _malformed(f"the shape of tensor {name[:40]!r} is no list of up to 8 sizes")
    if not _all_counts(offsets) or len(offsets) != 2:
        raise _malformed(f"the data_offsets of tensor {name[:40]!r} are no pair of positions")
    return TENSOR_TYPES[dtype], shape, offsets[0], offsets[1]


def _all_counts(values: object) -> TypeGuard[list[int]]:
    return isinstance(values, list) and all(type(value) is int and value >= 0 for value in values)


def _check_no_gaps(spans: list[tuple[int, int]], size: int) -> None:
    """The format wants each byte of the data in exactly one tensor."""
    position = 0
    for begin, end in sorted(spans):
        if begin != position:
            raise _malformed(
                f"byte {min(begin, position)} of its data belongs to no or two tensors"
            )
        position = end
    if position != size:
        raise _malformed(f"{size - position} bytes follow its last tensor")


def _malformed(what: str) -> InvalidBatch:
    return InvalidBatch(
        f"The body is no safetensors file: {what}. Write it with a safetensors library and send it "
        f"whole."
    )


def _json_type(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
        case dict():
            return "object"
    return type(value).__name__


def _shown(value: bytes | None) -> str:
    return "missing" if value is None else repr(value[:40].decode("ascii", "replace"))


def _now_ms() -> bytes:
    return b"%d" % (time.time_ns() // 1_000_000)

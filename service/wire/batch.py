"""A batch of samples as it was sent."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import orjson

from core.errors import InvalidBatch, InvalidLabels, ShapeMismatch
from service.wire.arrays import Array, buffer
from service.wire.batch_id import check_id
from service.wire.features import FEATURE_TYPES, as_features, check_features
from service.wire.fields import (
    MOST_BY,
    Fields,
    begin,
    by_name,
    check_checksum,
    checksum,
    kind_of,
    shape_of,
    text_of,
)
from service.wire.labels import Label, Labels, encode_labels, read_labels, wrong_number_of_labels
from service.wire.limits import NO_LIMITS, Limits
from service.wire.packing import pack
from service.wire.sample_ids import SampleId, SampleIds, check_sample_ids, read_sample_ids

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class RawBatch:
    """N samples as they were sent, with or without labels.

    Made by `of`, `parse_json`, `parse_safetensors` or `from_entry`, all of which
    check what they are given.

    Arguments:
        features: Samples, with shape (N, D), or of images (N, H, W) or (N, H, W, C): float32,
            float16, or uint8 (k means k/255).
        codes: Index into `vocabulary` per sample, with shape (N,), int64, or -1;
            None when no sample is labelled.
        vocabulary: The labels that occur, without repeats, in order of first appearance.
        batch_id: The sender's name for the batch, by which a repeat is recognised.
        fields: What else the body held and the caller allowed.
        sample_ids: The sender's name for each sample, or None; None when no sample has one.
        by: Name of the key that sent it; None without keys.

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
    sample_ids: SampleIds | None = None
    by: str | None = None

    def __len__(self) -> int:
        return int(self.features.shape[0])

    @property
    def n_features(self) -> int:
        """Features per sample (D)."""
        return math.prod(self.features.shape[1:])

    @property
    def n_labelled(self) -> int:
        """Samples that carry a label."""
        return 0 if self.codes is None else int(np.count_nonzero(self.codes >= 0))

    @property
    def labels(self) -> list[Label | None] | None:
        """The label of each sample, as it was sent; None when no sample has one."""
        if self.codes is None:
            return None
        return [None if code < 0 else self.vocabulary[code] for code in self.codes.tolist()]

    @classmethod
    def of(
        cls,
        features: npt.ArrayLike,
        labels: Sequence[Label | None] | Array | None = None,
        batch_id: str | None = None,
        sample_ids: Sequence[SampleId | None] | Array | None = None,
    ) -> RawBatch:
        """A checked batch from arrays in memory, for programs that send.

        Arguments:
            features: Samples, with shape (N, D), or of images (N, H, W) or (N, H, W, C).
                float32, float16 and uint8 are kept; anything else becomes float32.
            labels: One integer, string or None per sample.
            batch_id: At most 200 characters.
            sample_ids: One integer, string or None per sample; for labels that come later.

        Raises:
            InvalidBatch: As if the batch had been received.
        """
        array = check_features(as_features(features), NO_LIMITS)
        coded = Labels() if labels is None else encode_labels(labels, len(array))
        ids = check_sample_ids(sample_ids, len(array))
        return cls(array, *coded, check_id(batch_id), sample_ids=ids)

    @classmethod
    def joined(cls, batches: Sequence[RawBatch]) -> RawBatch:
        """The samples of several batches, one after the other, without their batch ids.

        Arguments:
            batches: At least one; of one type and shape of samples, and from one key.

        Example:
            >>> one, other = RawBatch.of([[0.0]], ["cat"]), RawBatch.of([[1.0]])
            >>> RawBatch.joined([one, other, RawBatch.of([[2.0]], ["dog"])]).labels
            ['cat', None, 'dog']
        """
        features = np.concatenate([one.features for one in batches])
        labels = _in_a_row(batches, [one.labels for one in batches])
        coded = Labels() if labels is None else encode_labels(labels, len(features))
        ids = _in_a_row(batches, [one.sample_ids for one in batches])
        named = None if ids is None else tuple(ids)
        return cls(features, *coded, sample_ids=named, by=batches[0].by)

    def to_float32(self) -> npt.NDArray[np.float32]:
        """The features as float32, with shape (N, D); read-only where nothing was converted."""
        rows = self.features if self.features.ndim == 2 else self.features.reshape(len(self), -1)
        if rows.dtype == np.uint8:
            # Divided, not multiplied by 1/255: k/255 is then the nearest float32.
            return np.divide(rows, np.float32(255), dtype=np.float32)
        return rows.astype(np.float32, copy=False)

    def to_safetensors(self, metadata: Mapping[str, str] | None = None) -> bytes:
        """The batch as a binary HTTP body."""
        tensors: dict[str, Array] = {"features": self.features}
        text = dict(metadata or {})
        if self.batch_id is not None:
            text["batch_id"] = self.batch_id
        if self.codes is not None:
            tensors["labels"] = self.codes
            text["vocabulary"] = orjson.dumps(self.vocabulary).decode()
        if self.sample_ids is not None:
            if all(type(id) is int for id in self.sample_ids):
                tensors["sample_ids"] = np.array(self.sample_ids, dtype=np.int64)
            else:
                text["sample_ids"] = orjson.dumps(self.sample_ids).decode()
        return pack(tensors, text)

    def to_entry(self) -> dict[str, bytes | memoryview]:
        """The fields of a stream entry. The arrays are not copied."""
        x, y, labels, ids = buffer(self.features), memoryview(b""), b"", b""
        if self.codes is not None:
            y, labels = buffer(self.codes), orjson.dumps(self.vocabulary)
        if self.sample_ids is not None:
            ids = orjson.dumps(self.sample_ids)
        entry = begin("batch")
        entry["x"] = x
        entry["dtype"] = f"{self.features.dtype.kind}{self.features.itemsize}".encode()
        entry["shape"] = ",".join(map(str, self.features.shape)).encode()
        entry["crc"] = checksum(x, y, labels, ids)
        if self.codes is not None:
            entry["y"] = y
            entry["labels"] = labels
        if ids:
            entry["ids"] = ids
        if self.batch_id is not None:
            entry["id"] = self.batch_id.encode()
        if self.by is not None:
            entry["by"] = self.by.encode()
        return entry

    @classmethod
    def from_entry(cls, entry: Fields, limits: Limits = NO_LIMITS) -> RawBatch:
        """The batch that a stream entry holds; its features are a view of field `x`.

        Raises:
            InvalidBatch: The entry is no batch of ours, or is damaged.
        """
        fields = by_name(entry)
        if (kind := kind_of(fields)) != "batch":
            raise InvalidBatch(f"The entry is a {kind}, expected a batch.")
        x, y, labels = fields.get("x", b""), fields.get("y"), fields.get("labels", b"")
        if y is None and "labels" in fields:
            raise InvalidLabels(
                "The entry has a field labels and no field y; expected y, N codes that index the "
                "labels. Add it, or leave labels out for samples without."
            )
        name = fields.get("dtype", b"").decode("ascii", "replace")
        if name not in FEATURE_TYPES:
            raise InvalidBatch(
                f"The entry's dtype is {name[:20]!r}; expected one of {', '.join(FEATURE_TYPES)}."
            )
        dtype = FEATURE_TYPES[name]
        shape = shape_of(fields)
        n = shape[0]
        if len(x) != math.prod(shape) * dtype.itemsize:
            raise ShapeMismatch(
                f"The entry says {' x '.join(map(str, shape))} features of {dtype.itemsize} bytes, "
                f"but holds {len(x)} bytes. Write the array row by row, with nothing before or "
                f"after it.",
                shape=list(shape),
                bytes=len(x),
            )
        check_checksum(fields, x, y or b"", labels, fields.get("ids", b""))
        features = check_features(np.frombuffer(x, dtype).reshape(shape), limits)

        coded = Labels()
        if y is not None:
            if len(y) != 8 * n:
                raise wrong_number_of_labels(n, len(y) // 8)
            coded = read_labels(np.frombuffer(y, "<i8"), labels)
        ids = read_sample_ids(fields["ids"], n) if "ids" in fields else None
        by = _sender(text_of(fields, "by"))
        return cls(features, *coded, check_id(text_of(fields, "id")), sample_ids=ids, by=by)


def samples_of(entry: Fields) -> int | None:
    """Samples of an entry of kind `batch`, whatever else is wrong with it.

    None where its shape cannot be read, or is not that of its bytes.

    Example:
        >>> samples_of({"x": b"123456", "dtype": b"u1", "shape": b"2,3", "labels": b"?"})
        2
    """
    fields = by_name(entry)
    dtype = FEATURE_TYPES.get(fields.get("dtype", b"").decode("ascii", "replace"))
    try:
        shape = shape_of(fields)
    except InvalidBatch:
        return None
    if dtype is None or len(fields.get("x", b"")) != math.prod(shape) * dtype.itemsize:
        return None
    return shape[0]


def _in_a_row(
    batches: Sequence[RawBatch], found: Sequence[Sequence[T] | None]
) -> list[T | None] | None:
    """What each sample has, None where it has nothing; None where none has anything."""
    if all(one is None for one in found):
        return None
    row: list[T | None] = []
    for batch, values in zip(batches, found, strict=True):
        row += [None] * len(batch) if values is None else values
    return row


def _sender(by: str | None) -> str | None:
    if by is not None and not (by.isprintable() and 0 < len(by) <= MOST_BY):
        raise InvalidBatch(
            f"The entry's field by has {len(by)} characters, or some that cannot be printed. "
            f"Expected the name of a key, of 1 to {MOST_BY} printable ones. Leave the field out, "
            f"or shorten it."
        )
    return by

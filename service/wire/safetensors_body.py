"""A batch as a binary body: a safetensors file.

Tensor `features` (N, D), or of images (N, H, W) or (N, H, W, C), optional tensor `labels`
(N,) of integers, and text metadata `batch_id`, `vocabulary`. Without a vocabulary the
integers are the labels themselves; with one, a JSON list, they are codes that index it. Ids
of samples are a tensor `sample_ids` (N,) of integers, or metadata `sample_ids`, a JSON list.
"""

from __future__ import annotations

from collections.abc import Collection

from core.errors import InvalidBatch, InvalidLabels, ShapeMismatch
from service.wire.arrays import Array
from service.wire.batch import RawBatch
from service.wire.batch_id import check_id
from service.wire.features import check_features
from service.wire.labels import Labels, encode_labels, read_labels, wrong_number_of_labels
from service.wire.limits import Limits
from service.wire.packing import unpack
from service.wire.sample_ids import SampleIds, check_sample_ids, read_sample_ids
from service.wire.unknown import refuse_unknown


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
    refuse_unknown("tensor", tensors, {"features", "labels", "sample_ids"})
    if "features" not in tensors:
        raise ShapeMismatch("The body holds no tensor `features`; expected one, (N, D).")
    features = check_features(tensors["features"], limits)
    return RawBatch(
        features,
        *_read_labels(tensors.get("labels"), metadata.get("vocabulary"), len(features)),
        check_id(metadata.get("batch_id")),
        {name: metadata[name] for name in allowed if name in metadata},
        _read_ids(tensors.get("sample_ids"), metadata.get("sample_ids"), len(features)),
    )


def _read_ids(ids: Array | None, text: str | None, n: int) -> SampleIds | None:
    if ids is None:
        return None if text is None else read_sample_ids(text, n)
    if ids.dtype.kind not in "iu" or ids.ndim != 1:
        raise InvalidBatch(
            f"The tensor `sample_ids` is {ids.dtype} with shape {ids.shape}; expected integers "
            f"with shape (N,). Send strings as metadata `sample_ids`, a JSON list."
        )
    return check_sample_ids(ids, n)


def _read_labels(labels: Array | None, vocabulary: str | None, n: int) -> Labels:
    if labels is None:
        return Labels()
    if labels.dtype.kind not in "iu" or labels.ndim != 1:
        raise InvalidLabels(
            f"The tensor `labels` is {labels.dtype} with shape {labels.shape}; expected integers "
            f"with shape (N,). For strings send codes and a `vocabulary`."
        )
    if vocabulary is None:
        return encode_labels(labels, n)
    if len(labels) != n:
        raise wrong_number_of_labels(n, len(labels))
    return read_labels(labels, vocabulary.encode())

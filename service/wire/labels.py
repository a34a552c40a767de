"""Labels as codes: one integer per sample that indexes a vocabulary."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from core.counted import counted
from core.errors import InvalidLabels
from service.wire.arrays import Array
from service.wire.json_type import json_type

Label = int | str

UNLABELLED: Final = -1
MAX_LABEL_BYTES: Final = 256
"""Of a label in UTF-8. A thousand classes are named in a quarter of a MiB, in each answer."""


class Labels(NamedTuple):
    """The labels of N samples; without arguments: none is labelled.

    Arguments:
        codes: Index into `vocabulary` per sample, with shape (N,), int64, or -1.
        vocabulary: The labels that the codes index, without repeats.
    """

    codes: npt.NDArray[np.int64] | None = None
    vocabulary: tuple[Label, ...] = ()


def encode_labels(labels: Sequence[Label | None] | Array, n: int) -> Labels:
    """Labels as they are -> codes, with the vocabulary in order of first appearance.

    Arguments:
        labels: One integer, string or None per sample.
        n: How many samples there are.

    Raises:
        InvalidLabels: They are of a wrong number or type.
    """
    if isinstance(labels, np.ndarray) and labels.ndim != 1:
        raise InvalidLabels(f"Labels have shape {labels.shape}; expected (N,), one per sample.")
    if len(labels) != n:
        raise wrong_number_of_labels(n, len(labels))
    if isinstance(labels, np.ndarray):
        if labels.dtype.kind in "iu":
            return _encode_integers(labels)
        labels = labels.tolist()
    index: dict[Label, int] = {}
    codes = np.empty(n, np.int64)
    for i, label in enumerate(labels):
        if label is None:
            codes[i] = UNLABELLED
            continue
        if isinstance(label, np.generic):
            label = label.item()
        check_label(label, f"The label at position {i}", i)
        codes[i] = index.setdefault(label, len(index))
    return Labels(codes, tuple(index))


def read_labels(codes: Array, text: bytes) -> Labels:
    """Labels that came as codes.

    Arguments:
        codes: With shape (N,), any integers.
        text: The vocabulary as a JSON list.

    Raises:
        InvalidLabels: The text is no list of labels, or a code is no index of it nor -1.
    """
    vocabulary = _parse_vocabulary(text)
    return Labels(_check_codes(codes, vocabulary), vocabulary)


def wrong_number_of_labels(samples: int, labels: int) -> InvalidLabels:
    """The error to raise where there are not as many labels as samples."""
    return InvalidLabels(
        f"{counted(samples, 'sample')} came with {counted(labels, 'label')}; expected one per "
        f"sample. Send null for a sample without a label.",
        samples=samples,
        labels=labels,
    )


def _encode_integers(labels: Array) -> Labels:
    values, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    if labels.dtype == np.dtype("<u8") and len(values) and values[-1] > 2**63 - 1:
        check_label(int(values[-1]), "The largest label", int(first[-1]))
    order = np.argsort(first)
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return Labels(rank[inverse], tuple(values[order].tolist()))


def check_label(label: object, what: str, position: int) -> None:
    """Raise `InvalidLabels` where it is none that a class can have.

    Arguments:
        label: Of one class.
        what: How the message calls it.
        position: Where it is among others.
    """
    if isinstance(label, float) and not math.isfinite(label):
        raise InvalidLabels(
            f"{what} is {label}; expected an integer, a string or null. Send null for a sample "
            f"without a label.",
            position=position,
        )
    if isinstance(label, bool) or not isinstance(label, int | str):
        raise InvalidLabels(
            f"{what} is a JSON {json_type(label)}; expected an integer, a string or null. Convert "
            f"it before sending.",
            position=position,
        )
    if label == "":
        raise InvalidLabels(
            f"{what} is an empty string, which answers could not tell from no class; expected an "
            f"integer, a string with a character or null. Send null for a sample without a label.",
            position=position,
        )
    if isinstance(label, str) and (
        len(label) > MAX_LABEL_BYTES or len(label.encode(errors="replace")) > MAX_LABEL_BYTES
    ):
        raise InvalidLabels(
            f"{what} has {len(label)} characters, which are more than {MAX_LABEL_BYTES} bytes of "
            f"UTF-8; expected at most so many. Send a short name.",
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
        raise InvalidLabels(f"The vocabulary is a JSON {json_type(labels)}; expected a list.")
    for i, label in enumerate(labels):
        check_label(label, f"The label at position {i} of the vocabulary", i)
    if len(set(labels)) != len(labels):
        raise InvalidLabels("The vocabulary repeats a label; expected each label once.")
    return tuple(labels)

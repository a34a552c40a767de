"""A minibatch: samples and, where known, their labels.

Labels are what the sender calls them (integers or strings). Inside a batch they
are codes into the batch's own `vocabulary`, so that a batch of N labels costs N
integers; the engine maps codes to its classes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol

import torch
from torch import Tensor

from core.counted import counted
from core.errors import InvalidLabels, NonFiniteFeature, ShapeMismatch

Label = int | str
"""What a sender may call a class. Integers and strings never compare equal."""

SampleId = int | str
"""What a sender may call a sample, to send its label later."""


class SupportsArray(Protocol):
    """What NumPy makes an array of: one of its own, a DataFrame."""

    def __array__(self) -> Any:
        """An array of NumPy."""


UNLABELLED = -1
"""The code of a sample without a label."""


@dataclass(frozen=True)
class Batch:
    """N samples of D features, with or without labels.

    Arguments:
        features: Samples, with shape (N, D), floating point, finite. Images may also be uint8,
            where k means k/255, or have shape (N, H, W) or (N, H, W, C), which is D = H W C.
        codes: Index into `vocabulary` per sample, with shape (N,), int64, or
            `UNLABELLED`; None when no sample is labelled.
        vocabulary: The labels that occur, without repeats.
        sample_ids: Per sample the sender's name for it, or None; None when none has one. A
            sample with a name and no label awaits its label before it is learned.
        images: Whether the sender declares the samples as images, with features in [0, 1]; so
            does who sends uint8, or the shape of images.
        novel: Whether all are like nothing that was learned, so that their labels name none
            of it. The engine says so of samples that it has held back, not the sender.
        places: Samples of the stream before each, with shape (N,), int64, on the CPU; None where
            nobody asks. The engine notes them of what it keeps, so that it can be told whose it is.
        image_shape: (H, W) or (H, W, C) of images that came in that shape; empty for others.

    Example:
        >>> batch = Batch.of(torch.zeros(3, 2), ["cat", None, "dog"])
        >>> batch.vocabulary, batch.codes.tolist()
        (('cat', 'dog'), [0, -1, 1])
    """

    features: Tensor
    codes: Tensor | None = None
    vocabulary: tuple[Label, ...] = ()
    sample_ids: tuple[SampleId | None, ...] | None = None
    images: bool = False
    novel: bool = False
    places: Tensor | None = None
    image_shape: tuple[int, ...] = ()

    def __len__(self) -> int:
        return self.features.shape[0]

    @classmethod
    def of(
        cls,
        features: Tensor | SupportsArray | Sequence[object],
        labels: Iterable[Label | None] | Tensor | None = None,
        sample_ids: Iterable[SampleId | None] | None = None,
        *,
        images: bool = False,
    ) -> Batch:
        """A batch from samples and plain labels, in order of first appearance.

        Arguments:
            features: Samples, with shape (N, D), or of images (N, H, W) or (N, H, W, C): a tensor,
                an array, or whatever NumPy makes an array of numbers of.
            labels: One integer, string or None per sample, of NumPy, too.
            sample_ids: Likewise, and none twice.
            images: As `Batch` has it.

        Raises:
            ShapeMismatch: Features are no numbers, or of rows of different lengths.
            InvalidLabels: A label or id is neither an integer nor a string, or an id comes twice.
        """
        features = features if isinstance(features, Tensor) else _tensor(features)
        ids = None
        if sample_ids is not None:
            ids = tuple(None if one is None else plain_id(one) for one in sample_ids)
            _check_distinct(ids)
        if labels is None:
            return cls(features, sample_ids=ids, images=images)
        return cls(features, sample_ids=ids, images=images).labelled(labels)

    def labelled(self, labels: Iterable[Label | None] | Tensor) -> Batch:
        """The same with other labels: one integer, string or None per sample.

        Raises:
            InvalidLabels: One is neither.
        """
        found = labels.tolist() if isinstance(labels, Tensor) else labels
        plain = [None if label is None else plain_label(label) for label in found]
        vocabulary = tuple(dict.fromkeys(label for label in plain if label is not None))
        index = {label: code for code, label in enumerate(vocabulary)}
        codes = [UNLABELLED if label is None else index[label] for label in plain]
        return replace(self, codes=torch.tensor(codes, dtype=torch.int64), vocabulary=vocabulary)

    @property
    def plain_labels(self) -> list[Label | None]:
        """The label of each sample, None where it has none."""
        if self.codes is None:
            return [None] * len(self)
        # The code -1 picks the last entry.
        return [(*self.vocabulary, None)[code] for code in self.codes.tolist()]

    def to_float32(self, device: torch.device) -> Batch:
        """The same with features (N, D) of float32, on a device."""
        shape = tuple(self.features.shape[1:]) if self.features.ndim in (3, 4) else self.image_shape
        images = self.images or self.features.dtype == torch.uint8 or bool(shape)
        features = as_float32(self.features, device)
        return replace(self, features=features, images=images, image_shape=shape)

    def select(self, rows: Tensor) -> Batch:
        """Some of the samples, by index (M,); without their names."""
        features = self.features[rows.to(self.features.device)]
        codes = None if self.codes is None else self.codes[rows.to(self.codes.device)]
        return Batch(
            features,
            codes,
            self.vocabulary,
            images=self.images,
            novel=self.novel,
            places=None if self.places is None else self.places[rows.to(self.places.device)],
        )

    def check(self, n_features: int | None, image_shape: Sequence[int] = ()) -> None:
        """Raise the `InvalidBatch` that applies, if any.

        Arguments:
            n_features: D of the model, or None while any D will do.
            image_shape: Of the model's samples; empty while any will do.
        """
        if self.features.ndim != 2 or 0 in self.features.shape:
            raise ShapeMismatch(
                f"Features have shape {tuple(self.features.shape)}; expected (N, D) with at least "
                f"one sample and one feature. Send a matrix with one row per sample.",
                shape=list(self.features.shape),
            )
        n, d = self.features.shape
        if n_features is not None and d != n_features:
            raise ShapeMismatch.features(expected=n_features, got=d)
        check_image_shape(self.image_shape, image_shape)
        # One term that is not finite makes the sum so: one pass, no N x D mask. (A sum that
        # merely overflows costs the second look and nothing else.)
        if not bool(torch.isfinite(self.features.sum())):
            wrong = (~torch.isfinite(self.features)).nonzero()
            if len(wrong):
                row, column = wrong[0].tolist()
                value = float(self.features[row, column])
                raise NonFiniteFeature.at(row=row, column=column, value=value)
        if self.sample_ids is not None and len(self.sample_ids) != n:
            raise InvalidLabels(
                f"{counted(n, 'sample')} came with {counted(len(self.sample_ids), 'sample id')}; "
                f"expected one per sample. Send null for a sample that will get no label.",
                samples=n,
                sample_ids=len(self.sample_ids),
            )
        _check_distinct(self.sample_ids or ())
        if self.codes is not None:
            self._check_codes(self.codes, n)

    def _check_codes(self, codes: Tensor, n: int) -> None:
        if codes.shape != (n,):
            raise InvalidLabels(
                f"{counted(n, 'sample')} came with {counted(codes.numel(), 'label')}; "
                f"expected one per sample. Send null for a sample without a label.",
                samples=n,
                labels=codes.numel(),
            )
        if codes.dtype != torch.int64:
            raise InvalidLabels(
                f"Label codes are {codes.dtype}; expected int64. Send codes that index the "
                f"vocabulary, or the labels themselves."
            )
        low, high = int(codes.min()), int(codes.max())
        if low < UNLABELLED or high >= len(self.vocabulary):
            raise InvalidLabels(
                f"Label codes run from {low} to {high}, but the vocabulary has "
                f"{len(self.vocabulary)} labels. Send codes that index the vocabulary.",
                low=low,
                high=high,
            )
        for label in self.vocabulary:
            plain_label(label)
        if len(set(self.vocabulary)) < len(self.vocabulary):
            raise InvalidLabels(
                f"The vocabulary of {len(self.vocabulary)} labels names "
                f"{len(self.vocabulary) - len(set(self.vocabulary))} of them twice. Send each "
                f"label once and point several codes at it.",
                labels=len(self.vocabulary),
            )


def plain_label(label: object) -> Label:
    """A label as an integer or a string of Python; a number of NumPy becomes one.

    Raises:
        InvalidLabels: It is neither, and None is neither, too.

    Example:
        >>> import numpy as np
        >>> plain_label(np.int32(3)), plain_label("cat")
        (3, 'cat')
    """
    return _plain(label, "label")


def plain_id(name: object) -> SampleId:
    """The name of a sample, likewise.

    Raises:
        InvalidLabels: It is neither an integer nor a string.
    """
    return _plain(name, "sample id")


def _check_distinct(ids: Sequence[SampleId | None]) -> None:
    """Raise `InvalidLabels` where an id names two samples: a label of it would be for either."""
    named = [id for id in ids if id is not None]
    if len(set(named)) == len(named):
        return
    places: dict[SampleId, int] = {}
    for position, id in enumerate(ids):
        if id is not None and places.setdefault(id, position) < position:
            raise InvalidLabels(
                f"The sample id {id!r:.80} names the samples at positions {places[id]} and "
                f"{position} of one batch; expected one sample per id. Give every sample an id of "
                f"its own.",
                position=position,
            )


def _tensor(values: SupportsArray | Sequence[object]) -> Tensor:
    """An array or list of numbers as a tensor; single, half and double precision and uint8 stay."""
    if hasattr(values, "__array__"):
        array = values.__array__()
        if array.dtype.kind in "iuf":
            kept = str(array.dtype) in ("float16", "float32", "float64", "uint8")
            # A copy, because torch knows neither all types nor strides, and warns of memory that
            # it may not write.
            return torch.from_numpy(array.astype(array.dtype if kept else "float64", order="C"))
        what = f"Features of type {array.dtype} are no numbers"
    else:
        try:
            found = torch.as_tensor(values)
        except (TypeError, ValueError, RuntimeError) as error:
            what = f"Features are no matrix of numbers ({error})"
        else:
            if found.dtype != torch.bool:
                return found
            what = "Features of type bool are no numbers"
    raise ShapeMismatch(
        f"{what}; expected (N, D), floating point or integers. Send a matrix with one row per "
        f"sample."
    )


def _plain(value: object, what: str) -> int | str:
    # Whatever a number of NumPy or torch is called: this module needs no NumPy.
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()
    # A bool is an integer to Python, and equal to one: True would be the class 1.
    if type(value) is not int and type(value) is not str:
        raise InvalidLabels(
            f"The {what} {value!r:.80} is of type {type(value).__name__}; expected an integer "
            f"or a string. Send one of these."
        )
    return value


def as_float32(features: Tensor, device: torch.device) -> Tensor:
    """Samples as the model sees them, float32 on a device.

    Arguments:
        features: With shape (N, D), or of images (N, H, W) or (N, H, W, C), which become
            (N, H W C); uint8 k means k/255. Any other shape is left for `Batch.check`.
    """
    whole = features.dtype == torch.uint8
    features = features.to(device, torch.float32)
    if features.ndim in (3, 4):
        features = features.flatten(1)
    # Divided, not multiplied by 1/255: k/255 is then the nearest float32.
    return features / 255 if whole else features


def check_image_shape(got: Sequence[int], expected: Sequence[int]) -> None:
    """Raise `ShapeMismatch` where images have another shape than those of a model.

    Arguments:
        got: (H, W) or (H, W, C) of the images; empty for flat rows, which say no shape.
        expected: Likewise of the model.
    """
    # Of another number of features it is the number that is told, by whoever knows D.
    if (
        math.prod(got) == math.prod(expected)
        and got
        and expected
        and plain_shape(got) != plain_shape(expected)
    ):
        raise ShapeMismatch.images(expected=expected, got=got)


def plain_shape(shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of an image, without the one channel of a grey one.

    Example:
        >>> plain_shape((28, 28, 1)), plain_shape((1, 28, 28)), plain_shape((1, 28, 3))
        ((28, 28), (28, 28), (1, 28, 3))
    """
    if len(shape) == 3 and shape[2] == 1:
        return tuple(shape[:2])
    # With three numbers at the end it is a picture in colour, one pixel high.
    if len(shape) == 3 and shape[0] == 1 and shape[2] != 3:
        return tuple(shape[1:])
    return tuple(shape)


def distinct(label: Label) -> tuple[type, Label]:
    """A key under which the integer 1 and the string "1" are different labels."""
    return type(label), label


def codes_among(batch: Batch, labels: Sequence[Label]) -> Tensor:
    """Place of each sample's label among others, with shape (N,), int64, on the CPU.

    -1 where the sample has none, or it is not among them.
    """
    if batch.codes is None:
        return torch.full((len(batch),), UNLABELLED, dtype=torch.int64)
    return _codes_by_code(batch.vocabulary, tuple(labels))[batch.codes.cpu()]


@lru_cache(maxsize=64)
def _codes_by_code(vocabulary: tuple[Label, ...], labels: tuple[Label, ...]) -> Tensor:
    """Place among the labels for each code of a vocabulary; the code -1 picks the last entry, -1.

    A step asks for the same several times, and so do the steps after it.
    """
    codes = {distinct(label): code for code, label in enumerate(labels)}
    table = [codes.get(distinct(label), UNLABELLED) for label in vocabulary]
    return torch.tensor([*table, UNLABELLED])


def new_labels(batch: Batch, labels: Iterable[Label]) -> list[Label]:
    """Labels that samples carry and that are not among others, in the vocabulary's order."""
    if batch.codes is None:
        return []
    known = set(map(distinct, labels))
    used = set(batch.codes.tolist())
    return [
        label
        for code, label in enumerate(batch.vocabulary)
        if code in used and distinct(label) not in known
    ]

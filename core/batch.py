"""A minibatch: samples and, where known, their labels.

Labels are what the sender calls them (integers or strings). Inside a batch they
are codes into the batch's own `vocabulary`, so that a batch of N labels costs N
integers; the engine maps codes to its classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from core.errors import InvalidLabels, NonFiniteFeature, ShapeMismatch

Label = int | str
"""What a sender may call a class. Integers and strings never compare equal."""

UNLABELLED = -1
"""The code of a sample without a label."""


@dataclass(frozen=True)
class Batch:
    """N samples of D features, with or without labels.

    Arguments:
        features: Samples, with shape (N, D), floating point, finite.
        codes: Index into `vocabulary` per sample, with shape (N,), int64, or
            `UNLABELLED`; None when no sample is labelled.
        vocabulary: The labels that occur, without repeats.

    Example:
        >>> batch = Batch.of(torch.zeros(3, 2), ["cat", None, "dog"])
        >>> batch.vocabulary, batch.codes.tolist()
        (('cat', 'dog'), [0, -1, 1])
    """

    features: Tensor
    codes: Tensor | None = None
    vocabulary: tuple[Label, ...] = ()

    def __len__(self) -> int:
        return self.features.shape[0]

    @classmethod
    def of(cls, features: Tensor, labels: list[Label | None] | Tensor | None = None) -> Batch:
        """A batch from samples (N, D) and plain labels, in order of first appearance."""
        if labels is None:
            return cls(features)
        plain = labels.tolist() if isinstance(labels, Tensor) else list(labels)
        vocabulary = tuple(dict.fromkeys(label for label in plain if label is not None))
        index = {label: code for code, label in enumerate(vocabulary)}
        codes = [UNLABELLED if label is None else index[label] for label in plain]
        return cls(features, torch.tensor(codes, dtype=torch.int64), vocabulary)

    def rows(self, mask: Tensor) -> Batch | None:
        """The samples that a mask, with shape (N,), picks; None where it picks none."""
        if not bool(mask.any()):
            return None
        if bool(mask.all()):
            return self
        codes = None if self.codes is None else self.codes[mask.to(self.codes.device)]
        return Batch(self.features[mask.to(self.features.device)], codes, self.vocabulary)

    def check(self, n_features: int | None) -> None:
        """Raise the `InvalidBatch` that applies, if any.

        Arguments:
            n_features: D of the model, or None while any D will do.
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
        # One term that is not finite makes the sum so: one pass, no N x D mask. (A sum that
        # merely overflows costs the second look and nothing else.)
        if not bool(torch.isfinite(self.features.sum())):
            wrong = (~torch.isfinite(self.features)).nonzero()
            if len(wrong):
                row, column = wrong[0].tolist()
                value = float(self.features[row, column])
                raise NonFiniteFeature.at(row=row, column=column, value=value)
        if self.codes is not None:
            self._check_codes(self.codes, n)

    def _check_codes(self, codes: Tensor, n: int) -> None:
        if codes.shape != (n,):
            raise InvalidLabels(
                f"{n} samples came with {codes.numel()} labels; expected one per sample. "
                f"Send null for a sample without a label.",
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
            if type(label) not in (int, str):
                raise InvalidLabels(
                    f"The label {label!r} is of type {type(label).__name__}; expected an integer "
                    f"or a string. Send one of these."
                )
        if len(set(self.vocabulary)) < len(self.vocabulary):
            raise InvalidLabels(
                f"The vocabulary of {len(self.vocabulary)} labels names "
                f"{len(self.vocabulary) - len(set(self.vocabulary))} of them twice. Send each "
                f"label once and point several codes at it.",
                labels=len(self.vocabulary),
            )

"""Answers about samples: sent, labelled, classified, judged, drawn."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clients.http.answers.building import Floats, Label, Labels
from clients.http.notebook import drawings, table


@dataclass(frozen=True)
class Ingested:
    """A batch is durable in the stream."""

    entry_id: str  # of the first, if it came twice
    batch_id: str
    samples: int
    backlog: int  # entries accepted and not yet learned
    duplicate: bool = False  # it was there before; nothing was added
    rejected: str | None = None  # of a duplicate that could not be used: the reason
    deadletter: str | None = None  # likewise: its dead letter, where it is kept


@dataclass(frozen=True)
class Labelled:
    """Labels are durable in the stream."""

    entry_id: str  # of the first, if they came twice
    batch_id: str
    labels: int
    backlog: int  # entries accepted and not yet learned
    duplicate: bool = False  # they were there before; nothing was added
    rejected: str | None = None  # of a duplicate that could not be used: the reason
    deadletter: str | None = None  # likewise: its dead letter, where it is kept


@dataclass(frozen=True, eq=False)
class Classification:
    """The most probable class of each sample."""

    model_version: int
    labels: Labels  # (N,) None where the answer is unknown
    codes: NDArray[np.int64]  # (N,) position of the label in `classes`; -1 where unknown
    probabilities: Floats  # (N, C) in the order of `classes`
    classes: tuple[Label, ...]
    log_likelihoods: Floats  # (N,)
    inliers: NDArray[np.bool_]  # (N,) by `score`
    p_values: Floats | None  # (N,) share of inliers that are at least as strange, if asked for
    unknown: NDArray[np.bool_] | None  # (N,) p-value at or below `unknown_rate`, if there was one
    score: str = "log_likelihood"  # what decides on inliers: that, or "p_value"
    calibration: int = 0  # held-out scores behind the p-values; 0: too few, and there are none

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        best = np.asarray(self.probabilities).max(axis=1)
        rows = (
            ("unknown" if label is None else label, f"{share:.3f}", f"{score:.1f}", bool(inlier))
            for label, share, score, inlier in zip(
                np.asarray(self.labels, dtype=object).tolist(),
                best.tolist(),
                np.asarray(self.log_likelihoods).tolist(),
                np.asarray(self.inliers).tolist(),
                strict=True,
            )
        )
        head = ("class", "probability", "log-likelihood, nats", "inlier")
        return f"<div>{table(head, rows, len(best))}</div>"


@dataclass(frozen=True, eq=False)
class OutlierScores:
    """The typicality of each sample."""

    model_version: int
    log_likelihoods: Floats  # (N,)
    inliers: NDArray[np.bool_]  # (N,) by `score` and `threshold`
    threshold: float  # of the log-likelihood, in nats, or the asked false-positive rate
    p_values: Floats | None  # (N,) share of inliers that are at least as strange
    typicality: Floats | None  # (N,) what the p-values rank; goes on falling beyond their least
    score: str  # what decides on inliers: "log_likelihood" or "p_value"
    calibration: int  # held-out scores behind the p-values; 0: too few, and there are none
    scales: Floats | None = None  # (N,) share of the mixture from which each is strangest

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        p_values, n = self.p_values, len(self.inliers)
        rows = (
            (f"{score:.1f}", "" if p is None else f"{p:.4g}", bool(inlier))
            for score, p, inlier in zip(
                np.asarray(self.log_likelihoods).tolist(),
                [None] * n if p_values is None else np.asarray(p_values).tolist(),
                np.asarray(self.inliers).tolist(),
                strict=True,
            )
        )
        head = ("log-likelihood, nats", "p-value", "inlier")
        return f"<div>{table(head, rows, n)}</div>"


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples drawn from the model."""

    model_version: int
    features: Floats  # (N, D)
    labels: Labels  # (N,) None where no class is known
    log_likelihoods: Floats  # (N,)
    probabilities: Floats  # (N,) that the model gives each label; 1 while no class is known
    short: NDArray[np.bool_]  # (N,) less probable than was asked for: the best that came
    seed: int | None = None  # of the draw; None from a service that does not say

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        rows = list(np.asarray(self.features))
        labels = np.asarray(self.labels).tolist()
        names = ["" if label is None else str(label) for label in labels]
        return f"<div>{drawings(rows, names)}</div>" if rows else "<div>no samples</div>"

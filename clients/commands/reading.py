"""One reading of a service: what `gmr status` prints once and `gmr top` again and again.

Rules of this module:

1. A number that the service does not know, or did not answer, is None.
2. A service that is away is a reading as well: not ready, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from clients.http.answers import Boundary, DriftState, Ledger, ModelInfo, Readiness
from clients.http.answers.boundaries import feature_title
from clients.http.client import GMRClient
from clients.http.errors import ServiceUnavailable, ServiceUnreachable
from core.counted import counted

UNARMED = {
    "annealing": "the model has yet to converge",
    "dependence": "samples depend on each other",
    "awaiting_labels": "all samples wait for labels",
    "cooldown": "it rests after a boundary",
    "no_detector": "nothing looks for changes",
}
"""Reasons why a detector may not speak, in words, where it is not for want of samples alone."""

MOST_FEATURES = 3
"""That are named of those that drift."""

AWAY = (ServiceUnavailable, ServiceUnreachable)
"""Errors that say that there is no answer, and not that the question was wrong."""


@dataclass(frozen=True)
class Reading:
    """The answers of a service about itself; None for what it did not answer."""

    url: str
    readiness: Readiness
    model: ModelInfo | None = None
    drift: DriftState | None = None
    boundaries: tuple[Boundary, ...] = ()
    ledger: Ledger | None = None
    proposals: int | None = None  # open ones, of new classes
    dead_letters: int | None = None  # kept, and not sent again

    @classmethod
    def of(cls, client: GMRClient) -> Reading:
        """Ask a service.

        Raises:
            ServiceError: the service answered, and refused.
        """
        try:
            readiness = client.ready()
            if not readiness.ready:
                # What Redis holds would be waited for in vain.
                return cls(client.url, readiness)
            return cls(
                client.url,
                readiness,
                client.model(),
                client.drift(),
                client.boundaries(),
                client.ledger(),
                len(client.proposals()),
                client.dead_letters(limit=1).total,
            )
        except AWAY as error:
            return cls.away(client.url, error)

    @classmethod
    def away(cls, url: str, error: Exception) -> Reading:
        """The reading of a service that does not answer."""
        return cls(url, Readiness(False, str(error)))

    def document(self, boundaries: int = 3) -> dict[str, Any]:
        """The reading as JSON-ready values, with the newest boundaries."""
        model, drift = self.model, self.drift
        raw = {} if drift is None else drift.raw
        return {
            "url": self.url,
            "ready": self.readiness.ready,
            "reason": None if self.readiness.ready else self.readiness.reason,
            "model_version": model and model.model_version,
            "preset": model and model.preset,
            "components": model and model.components,
            "classes": model and len(model.classes),
            "features": model and model.features,
            "image_shape": model and model.raw.get("image_shape"),
            "coarse_features": model and model.raw.get("coarse_features"),
            "samples_seen": model and model.samples_seen,
            "backlog": model and model.backlog,
            "checkpoint_error": model and model.checkpoint_error,
            "archive_error": model and model.archive_error,
            "set_aside": model and model.set_aside,
            "sub_task": drift and drift.sub_task,
            "mode": drift and drift.mode,
            "awaiting": drift and drift.awaiting,
            "labels_early": drift and drift.labels_early,
            "labels_matched": drift and drift.labels_matched,
            "labels_unmatched": drift and drift.labels_unmatched,
            "gate": drift and drift.raw.get("gate"),
            "detectors": drift and drift.raw.get("detectors"),
            "phase": drift and drift.phase,
            "armed_in": drift and drift.armed_in,
            "unarmed_reason": drift and drift.unarmed_reason,
            "inlier_rate": drift and drift.inlier_rate,
            "inlier_rate_mean": drift and drift.inlier_rate_mean,
            "statistic": drift and drift.statistic,
            "threshold": drift and drift.threshold,
            "accuracy": raw.get("prequential_accuracy_mean"),
            "estimated_accuracy": raw.get("estimated_accuracy"),
            "estimated_accuracy_low": raw.get("estimated_accuracy_low"),
            "estimated_accuracy_high": raw.get("estimated_accuracy_high"),
            "stream_samples": raw.get("stream_samples"),
            "feature_drift": drift and drift.feature_drift,
            "trainer_reported": drift and (drift.heartbeat_time or drift.time),
            "loaded": drift and drift.loaded,
            "ledger": self.ledger and dict(self.ledger.raw),
            "proposals": self.proposals,
            "dead_letters": self.dead_letters,
            "boundaries": [
                {
                    "boundary": one.boundary,
                    "id": one.id,
                    "time": one.time,
                    "sample": one.estimated_start_sample,
                    "sub_task": one.sub_task,
                    "detector": one.detector,
                    "signal": one.signal or None,
                    "recurrence_of": one.recurrence_of,
                    "severity": one.severity,
                    "notes": len(one.notes),
                    "dropped": one.dropped,
                }
                for one in self.boundaries[-boundaries:]
            ],
        }


def accuracy_of(document: dict[str, Any]) -> str:
    """The accuracy in words: that of labelled samples, and the one expected of the newest.

    Example:
        >>> ends = {"estimated_accuracy_low": 0.93, "estimated_accuracy_high": 0.97}
        >>> accuracy_of({"accuracy": 0.96, "estimated_accuracy": 0.95, **ends})
        '96.0 % (prequential), expected now: 95.0 % (93.0 % to 97.0 %)'
    """
    text = f"{share(document['accuracy'])} (prequential)"
    if document["estimated_accuracy"] is None:
        return text
    low, high = document["estimated_accuracy_low"], document["estimated_accuracy_high"]
    now = share(document["estimated_accuracy"])
    return f"{text}, expected now: {now} ({share(low)} to {share(high)})"


def features_of(document: dict[str, Any]) -> str | None:
    """Features that drift, in words; None where nothing can be compared, as of images.

    Example:
        >>> row = {"feature": 3, "name": "load", "change": 1.25, "drifts": True}
        >>> features_of({"feature_drift": {"drifting": 1, "features": [row]}})
        '1 drifts: load (feature 3) by +1.25 deviations'
        >>> features_of({"feature_drift": {"drifting": 0, "features": []}})
        'none drifts'
        >>> features_of(
        ...     {"image_shape": [8, 8], "feature_drift": {"drifting": 0, "features": []}}
        ... )
    """
    drift = document.get("feature_drift")
    if document.get("image_shape") or not drift or drift["drifting"] is None:
        return None
    n, rows = drift["drifting"], [row for row in drift["features"] if row["drifts"]]
    if not n:
        return "none drifts"
    told = [
        f"{feature_title(row['feature'], row['name'])} by {row['change']:+.3g} deviations"
        for row in rows[:MOST_FEATURES]
    ]
    more = f" and {n - len(told):,} more" if n > len(told) else ""
    return f"{n:,} {'drifts' if n == 1 else 'drift'}: {', '.join(told)}{more}"


def coarse_of(document: dict[str, Any]) -> str | None:
    """Features that float32 is too coarse for, in words; None where there are none.

    Example:
        >>> row = {"feature": 3, "name": "at", "mean": 1.8e9, "deviation": 55.4, "spacing": 128.0}
        >>> coarse_of({"coarse_features": [row]}).split(":")[0]
        'float32 is too coarse for at (feature 3)'
        >>> coarse_of({"coarse_features": []})
    """
    rows = document.get("coarse_features")
    if not rows:
        return None
    told = [
        f"{feature_title(row['feature'], row['name'])}: near {row['mean']:.3g} numbers are "
        f"{row['spacing']:.3g} apart, the deviation is {row['deviation']:.3g}"
        for row in rows[:MOST_FEATURES]
    ]
    more = f"; and {len(rows) - len(told):,} more" if len(rows) > len(told) else ""
    return (
        f"float32 is too coarse for {'; '.join(told)}{more}. Subtract an offset before sending, "
        f"for example the first time stamp; then reset"
    )


def labels_of(document: dict[str, Any]) -> str | None:
    """What became of labels by id, in words; None where none came.

    Example:
        >>> counts = {"duplicate": 0, "late": 1904, "unknown": 3}
        >>> labels_of({"labels_matched": 4096, "labels_unmatched": counts, "labels_early": 2})
        '4,096 matched, 2 waiting for their sample, 1,907 dropped (1,904 late, 3 unknown)'
        >>> labels_of({"labels_matched": 0, "labels_unmatched": {"late": 0}, "labels_early": 0})
    """
    matched, unmatched = document["labels_matched"], document["labels_unmatched"]
    dropped = sum((unmatched or {}).values())
    early = document["labels_early"]
    if not matched and not dropped and not early:
        return None
    parts = [f"{matched or 0:,} matched"]
    if early:
        parts.append(f"{early:,} waiting for their sample")
    if dropped:
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in unmatched.items() if n)
        parts.append(f"{dropped:,} dropped ({reasons})")
    return ", ".join(parts)


def phase_of(document: dict[str, Any]) -> str:
    """The phase in words.

    Example:
        >>> phase_of({"phase": "learning", "armed_in": 120, "set_aside": 0})
        'learning, armed in 120 samples'
        >>> phase_of({"phase": "learning", "armed_in": None, "set_aside": 0})
        'learning, not armed'
        >>> phase_of({"phase": "learning", "armed_in": 100, "samples_seen": 0, "awaiting": 1150})
        'waits for labels (1,150 samples), nothing learned yet'
        >>> because = {"unarmed_reason": "dependence", "set_aside": 0}
        >>> phase_of({"phase": "learning", "armed_in": None, **because})
        'learning, not armed: samples depend on each other'
        >>> phase_of({"phase": "learning", "armed_in": 800, **because})
        'learning, armed in 800 samples: samples depend on each other'
    """
    phase = str(document["phase"] or "")
    if not document.get("samples_seen", 1) and document.get("awaiting"):
        return f"waits for labels ({counted(document['awaiting'], 'sample')}), nothing learned yet"
    mode = document.get("mode")
    if mode == "frozen":
        return "frozen, nothing is learned"
    if mode == "detect_only":
        return f"detect only, nothing is learned ({phase})"
    because = UNARMED.get(document.get("unarmed_reason") or "")
    why = f": {because}" if because else ""
    if phase == "learning" and document["armed_in"]:
        return f"learning, armed in {counted(document['armed_in'], 'sample')}{why}"
    if phase == "learning" and document["armed_in"] is None:
        return f"learning, not armed{why}"
    if phase == "warning":
        return f"warning, {counted(document['set_aside'] or 0, 'sample')} set aside"
    return phase or "-"


def gate_of(document: dict[str, Any]) -> str | None:
    """What is held back and why, in words; None where all that is learned is served.

    Example:
        >>> gate_of({"gate": None})
        >>> gate_of(
        ...     {
        ...         "gate": {
        ...             "held": True,
        ...             "served_version": 9,
        ...             "checked_version": 17,
        ...             "past_sub_task": 0,
        ...             "accuracy_before": 0.98,
        ...             "accuracy_now": 0.5,
        ...         }
        ...     }
        ... )
        'version 17 is held back: 50.0 % right of sub-task 0, after 98.0 %; version 9 answers'
    """
    gate = document.get("gate")
    if not gate or not gate["held"]:
        return None
    return (
        f"version {gate['checked_version']} is held back: {share(gate['accuracy_now'])} right of "
        f"sub-task {gate['past_sub_task']}, after {share(gate['accuracy_before'])}; "
        f"version {gate['served_version']} answers"
    )


def share(value: float | None) -> str:
    """A share from 0 to 1 in per cent, or a dash where it is not known.

    Example:
        >>> share(0.8333), share(None)
        ('83.3 %', '-')
    """
    return "-" if value is None else f"{100 * value:.1f} %"

"""What is said of a named model of which its trainer has not read a sample, nor said a word."""

from __future__ import annotations

from core.drift.detector import UnarmedReason
from service.settings import Settings


def not_begun(settings: Settings, heartbeat_time: float) -> dict[str, object]:
    """Facts for GET /drift, as a trainer would tell them of a model that has begun with nothing.

    Arguments:
        settings: Of the model.
        heartbeat_time: When the trainer that leads it last gave a sign of life, Unix seconds.
    """
    reason = UnarmedReason.NO_DETECTOR if settings.detector == "none" else UnarmedReason.WARM_UP
    nothing: dict[str, object] = dict.fromkeys(_ZERO, 0)
    return {
        **nothing,
        "mode": "learn",
        "phase": "learning",
        "armed": False,
        "unarmed_reason": reason.value,
        "ert_asked": False,
        # Of a run time in seconds nothing is known before samples come.
        "ert": settings.engine_config().ert,
        "detector": settings.detector,
        "statistics": {},
        "thresholds": {},
        "class_accuracies": [],
        "dropped_stretches": [],
        "time": heartbeat_time,
        "loaded": False,
        "heartbeat_time": heartbeat_time,
    }


_ZERO = (
    *("model_version", "sub_task", "boundaries", "boundaries_dropped"),
    *("passed_batches", "passed_samples", "labels_held", "labels_early", "labels_matched"),
    *("bursts", "quarantined", "probe_samples", "probe_alarms"),
    *("samples_since_boundary", "batches_since_boundary", "stream_samples", "stream_batches"),
    *("set_aside_batches", "awaiting"),
)

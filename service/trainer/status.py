"""What the status says of the engine's state."""

from __future__ import annotations

from core.engine.asked_settings import ADJUSTABLE
from core.engine.engine import Engine
from core.engine.state import EngineState
from core.memory.coarse_features import coarse_features


def facts_of(state: EngineState, engine: Engine) -> dict[str, object]:
    """Facts of a state for GET /drift and GET /model, JSON-ready."""
    settings, asked = state.in_force(engine.config), state.asked.values
    stream, arming, model = state.stream, engine.arming(state), state.model
    return {
        "mode": state.rest.mode.value,
        "passed_batches": stream.all_batches - stream.batches,
        "passed_samples": stream.all_samples - stream.samples,
        "labels_held": len(state.rest.labels),
        "labels_early": len(state.pending.awaiting.early),
        "ert_asked": state.watch.ert_asked,
        "settings": {
            name: {"value": getattr(settings, name), "asked": name in asked} for name in ADJUSTABLE
        },
        "phase": state.phase,
        "armed": state.seen.watch.armed,
        "armed_in": arming.samples,
        "unarmed_reason": None if arming.reason is None else arming.reason.value,
        "recurrence_of": state.sub_task.recurrence,
        "model_version": model.version,
        "samples_seen": model.samples_seen,
        "batches_seen": model.batches_seen,
        "stream_batches": stream.all_batches,
        "stream_samples": stream.all_samples,
        "dropped_stretches": [stretch._asdict() for stretch in stream.dropped],
        "sub_task": state.sub_task.number,
        "begun": state.begun,
        "proposals_made": state.pending.proposals.made,
        "set_aside_batches": len(state.pending.set_aside),
        "set_aside_samples": state.pending.set_aside_samples,
        "awaiting": state.pending.awaiting.raw_samples,
        "n_features": state.n_features,
        "coarse_features": coarse_features(model.standardiser, images=bool(model.image_shape)),
    }

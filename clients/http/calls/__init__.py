"""The contract as pure functions: arguments -> request, reply -> answer or error.

Rules of this module:

1. No I/O, no clock, no waiting: `client.py` sends, whichever way it likes, and both
   its classes share every line here. How replies are read stands in `replies.py`.
2. Samples travel as safetensors in the sender's type (uint8 costs a quarter of
   float32), answers come as safetensors where the service offers it.
3. A call says whether it may be sent again when nobody knows if it arrived. Every
   batch carries an id made before the first try, so ingesting may.
"""

from clients.http.calls.call import Call
from clients.http.calls.dead_letter_calls import (
    dead_letter,
    dead_letter_batch,
    dead_letters,
    drop_dead_letters,
    requeue_dead_letter,
)
from clients.http.calls.drift_calls import (
    add_note,
    boundaries,
    boundary,
    boundary_image,
    declare_boundary,
    drift,
    history,
    proposals,
    quarantine,
    set_ert,
)
from clients.http.calls.key_calls import api_keys, audit, key_shares, make_api_key, revoke_api_key
from clients.http.calls.model_calls import (
    change_settings,
    checkpoint,
    feature_names,
    make_model,
    merge_classes,
    model,
    models,
    name_features,
    named_model,
    of_model,
    release,
    rename_class,
    restore,
    rollback,
    set_mode,
    settings,
    take_down_model,
    versions,
)
from clients.http.calls.sample_calls import (
    classify,
    ingest,
    ingest_state,
    label,
    name_proposal,
    outliers,
    sample,
    sample_image,
)
from clients.http.calls.service_calls import batch, ledger, metrics, ready

__all__ = [
    "Call",
    "add_note",
    "api_keys",
    "audit",
    "batch",
    "boundaries",
    "boundary",
    "boundary_image",
    "change_settings",
    "checkpoint",
    "classify",
    "dead_letter",
    "dead_letter_batch",
    "dead_letters",
    "declare_boundary",
    "drift",
    "drop_dead_letters",
    "feature_names",
    "history",
    "ingest",
    "ingest_state",
    "key_shares",
    "label",
    "ledger",
    "make_api_key",
    "make_model",
    "merge_classes",
    "metrics",
    "model",
    "models",
    "name_features",
    "name_proposal",
    "named_model",
    "of_model",
    "outliers",
    "proposals",
    "quarantine",
    "ready",
    "release",
    "rename_class",
    "requeue_dead_letter",
    "restore",
    "revoke_api_key",
    "rollback",
    "sample",
    "sample_image",
    "set_ert",
    "set_mode",
    "settings",
    "take_down_model",
    "versions",
]

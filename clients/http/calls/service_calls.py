"""Calls about the service: metrics, readiness, and what became of every sample."""

from __future__ import annotations

from urllib.parse import quote

from clients.http import answers, replies
from clients.http.calls.call import Call, get


def metrics() -> Call[str]:
    """GET /metrics."""
    return Call("GET", "/metrics", lambda reply: reply.body.decode())


def ready() -> Call[answers.Readiness]:
    """GET /health/ready."""
    return Call("GET", "/health/ready", replies.readiness, patient=False, expected=frozenset({503}))


def ledger() -> Call[answers.Ledger]:
    """GET /ledger."""
    return get("/ledger", lambda document: answers.build(answers.Ledger, document))


def batch(batch_id: str) -> Call[answers.BatchFate]:
    """GET /batches/{batch_id}."""
    return get(
        f"/batches/{quote(batch_id, safe='')}",
        lambda document: answers.build(answers.BatchFate, document),
    )

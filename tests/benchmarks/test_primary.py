"""Tests for the benchmarks.primary module: what it calls lost is lost."""

from __future__ import annotations

from benchmarks.primary import _lost


def test_what_replicas_have_confirmed_outlives_their_primary_and_what_they_have_not_does_not() -> (
    None
):
    confirmed, bare = _lost(1, 0.3, node_timeout_ms=500), _lost(0, 0.3, node_timeout_ms=500)
    assert confirmed["acknowledged"]
    assert confirmed["lost"] == 0
    assert bare["lost"]

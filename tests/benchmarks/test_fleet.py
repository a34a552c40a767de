"""Tests for benchmarks.fleet: arithmetic from measured figures."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.fleet import Fleet, Measured, needs

FLEET, MEASURED = Fleet(), Measured()


def test_every_model_is_on_one_host() -> None:
    one = needs(replace(FLEET, hosts=1, buckets=1), MEASURED)
    assert one.largest_bucket == one.largest_host == FLEET.models
    many = needs(FLEET, MEASURED)
    assert FLEET.models / FLEET.buckets <= many.largest_bucket < 3 * FLEET.models / FLEET.buckets
    assert FLEET.models / FLEET.hosts <= many.largest_host < 2 * FLEET.models / FLEET.hosts


def test_what_is_asked_of_redis_does_not_depend_on_where_models_are() -> None:
    asked = needs(FLEET, MEASURED).commands_s
    assert needs(replace(FLEET, hosts=5, buckets=16), MEASURED).commands_s == asked
    twice = needs(replace(FLEET, models=2 * FLEET.models), MEASURED).commands_s
    assert twice == pytest.approx(2 * asked)


def test_a_bucket_with_more_than_one_core_can_do_never_catches_up() -> None:
    found = needs(replace(FLEET, active=1.0, batches_s=10.0), MEASURED)
    assert not found.fits
    assert found.caught_up_s == float("inf")
    assert needs(FLEET, MEASURED).fits


def test_slower_detection_costs_what_it_takes_and_what_came_meanwhile() -> None:
    quick = needs(FLEET, MEASURED)
    slow = needs(FLEET, replace(MEASURED, back_s=MEASURED.back_s + 60))
    assert slow.back_s - quick.back_s == pytest.approx(60)
    assert slow.caught_up_s - quick.caught_up_s > 60

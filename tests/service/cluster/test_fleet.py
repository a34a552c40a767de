"""Tests for service.cluster.fleet: where hosts are begun and ended, on a simulated Ray."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import SecretStr

from core.errors import InvalidSettings
from service.cluster import answer
from service.settings import Settings
from tests.service.cluster.simulated_ray import SimulatedRay

KEY = 24 * "k"


def fleet_on(
    processors: dict[str, int], buckets: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[Any, SimulatedRay]:
    ray = SimulatedRay(processors)
    ray.install(monkeypatch)
    from service.cluster.fleet import Fleet

    return Fleet(Settings(model="plant", admin_key=SecretStr(KEY)), buckets), ray


def test_a_bucket_is_led_where_it_was_moved_to_though_another_host_stands_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet, ray = fleet_on({"a": 1, "b": 1, "c": 1}, 1, monkeypatch)
    fleet.up(standby=1)
    fleet.move(0, "c")
    assert ray.places() == {"b000.2": "c leading", "b000.3": "b standing by"}
    # Somebody could have led it at any time.
    assert ray.told[2:] == ["b000.2 begins on c", "b000.1 ends", "b000.0 ends", *ray.told[5:]]


def test_a_host_that_stands_by_where_a_bucket_is_to_go_takes_it_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet, ray = fleet_on({"a": 1, "b": 1}, 1, monkeypatch)
    fleet.up(standby=1)
    fleet.move(0, "b")
    assert ray.places() == {"b000.1": "b leading", "b000.2": "a standing by"}


def test_a_move_that_is_given_twice_changes_nothing_the_second_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet, ray = fleet_on({"a": 1, "b": 1}, 1, monkeypatch)
    fleet.up()
    fleet.move(0, "b")
    told = list(ray.told)
    assert fleet.move(0, "b") == 0.0
    assert (ray.places(), ray.told) == ({"b000.1": "b leading"}, told)


def test_hosts_of_a_bucket_are_on_different_nodes_after_a_drain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet, ray = fleet_on({"head": 0, "a": 1, "b": 1, "c": 1}, 6, monkeypatch)
    fleet.up(standby=1)
    assert len(fleet.drain("a")) == 4
    places = [(name[:4], place.split()[0]) for name, place in ray.places().items()]
    assert sorted(places) == [(f"b{bucket:03d}", on) for bucket in range(6) for on in ("b", "c")]


def test_a_node_that_is_not_there_is_told_with_those_that_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet, _ = fleet_on({"abc": 1, "abd": 1}, 1, monkeypatch)
    with pytest.raises(InvalidSettings, match=r"No node is called 'x'.*abc \(10.0.0.1\), abd"):
        fleet.drain("x")
    with pytest.raises(InvalidSettings, match="2 nodes are called 'ab'"):
        fleet.drain("ab")


def test_the_last_node_with_processors_is_not_drained(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet, _ = fleet_on({"head": 0, "a": 1}, 1, monkeypatch)
    with pytest.raises(InvalidSettings, match="no other node"):
        fleet.drain("a")


def test_hosts_that_hang_are_waited_for_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet, ray = fleet_on({"a": 1, "b": 1}, 8, monkeypatch)
    fleet.up()
    ray.hanging = {f"b{bucket:03d}.0" for bucket in range(6)}
    ray.waited = 0
    phases = [row.phase for row in fleet.status()]
    assert phases == 6 * ["no answer"] + 2 * ["leading"]
    assert ray.waited == 1 + 2  # for all, then the answers of two


def test_hosts_are_not_told_the_key_of_the_administrator(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet, ray = fleet_on({"a": 1}, 1, monkeypatch)
    fleet.up()
    own = ray.environments["b000.0"]
    assert (own["GMR_MODEL"], own["GMR_STANDBY"]) == ("plant-b000", "true")
    assert KEY not in str(own)


def test_hosts_are_told_what_was_set_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    # One of another release would refuse the settings that it does not know, all by their defaults.
    monkeypatch.delenv("GMR_TRAINER_NICENESS", raising=False)  # of all tests
    fleet, ray = fleet_on({"a": 1}, 1, monkeypatch)
    fleet.up()
    assert sorted(ray.environments["b000.0"]) == [
        "GMR_DATA_DIR",
        "GMR_MODEL",
        "GMR_SNAPSHOT_STORE",
        "GMR_STANDBY",
    ]


@pytest.mark.parametrize("frozen", ["list", "nodes", "get_actor", "begin", "kill"])
def test_a_head_that_freezes_is_waited_for_so_long_and_no_longer(
    frozen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer, "HEAD_S", 0.2)
    fleet, ray = fleet_on({"a": 1, "b": 1}, 1, monkeypatch)
    fleet.up()
    ray.frozen = {frozen}
    with pytest.raises(answer.RaySilent, match=r"Ray has not answered for .*expected.*give the"):
        fleet.drain("a")
    ray.frozen = set()
    assert fleet.drain("a") == ["b000.0"]

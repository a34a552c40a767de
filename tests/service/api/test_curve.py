"""Tests for GET /drift/curve: any length of history in few points, and nothing averaged away."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import orjson
import pytest

from benchmarks import _history as history
from service.api.curve import Curve
from service.settings import Settings
from tests.service.api.stack import problem, serving


def rows(n: int) -> list[tuple[str, bytes]]:
    return [(f"{index}-0", orjson.dumps(history.event(index))) for index in range(n)]


def curve_of(n: int, most: int) -> tuple[Curve, dict[str, Any]]:
    made = Curve(most)
    made.add(rows(n))
    return made, made.columns()


@pytest.mark.parametrize(
    ("n", "per_point"), [(1, 1), (20, 1), (21, 2), (40, 2), (41, 4), (333, 32)]
)
def test_points_are_few_and_stand_for_all_batches(n: int, per_point: int) -> None:
    made, columns = curve_of(n, 20)
    assert made.batches_per_point == per_point
    assert (n > 20) * 10 <= len(columns["time"]) <= 20
    assert columns["batches"][:-1] == [per_point] * (len(columns["batches"]) - 1)
    assert sum(columns["batches"]) == n
    assert sum(columns["samples"]) == 100 * n
    assert columns["batch_index"] == list(range(0, n, per_point))
    assert {len(column) for column in columns["ratios"].values()} <= {len(columns["time"])}


def test_a_point_says_what_its_batches_say_together() -> None:
    n = 1500
    _, columns = curve_of(n, 100)
    begin = 0
    for place, batches in enumerate(columns["batches"]):
        part = [history.event(index) for index in range(begin, begin + batches)]
        begin += batches
        rates = [one["inlier_rate"] for one in part if one["inlier_rate"] is not None]
        assert columns["inlier_rate_low"][place] == min(rates, default=None)
        if rates:
            assert columns["inlier_rate"][place] == pytest.approx(sum(rates) / len(rates))
        else:
            assert columns["inlier_rate"][place] is None
        ratios = [one["statistic"] / one["threshold"] for one in part if one["threshold"]]
        assert columns["ratio"][place] == max(ratios, default=None)
        assert columns["ratios"]["fused"][place] == max(ratios, default=None)
        known = [one["labelled"] for one in part if one["prequential_accuracy"] is not None]
        assert columns["labelled"][place] == sum(known)
        assert columns["set_aside"][place] == sum(one["kind"] == "batch_set_aside" for one in part)
        assert columns["sub_task"][place] == part[-1]["sub_task"]
    # The alarms of single batches are there however many share a point.
    assert sum(ratio > 1.9 for ratio in columns["ratio"] if ratio is not None) == 3


def test_what_no_batch_knows_is_null() -> None:
    _, columns = curve_of(10, 20)
    assert columns["inlier_rate"] == columns["ratio"] == [None] * 10
    assert columns["accuracy"][0] is None
    assert columns["accuracy"][1] == pytest.approx(0.95)


def test_the_route_reads_all_that_is_kept(settings: Callable[..., Settings]) -> None:
    long = settings()
    assert long.redis_url is not None
    history.write(long.redis_url.get_secret_value(), long.model, 2300)
    with serving(long) as client:
        answer = client.get("/drift/curve", params={"points": 50}).json()
        assert answer["last_id"] == history.event(2299)["entry_id"]
        assert sum(answer["points"]["batches"]) == 2300
        assert len(answer["points"]["time"]) <= 50
        since = history.FIRST_S + 2200
        newest = client.get("/drift/curve", params={"since": since}).json()
        assert newest["points"]["batch_index"] == list(range(2200, 2300))
        assert newest["points"]["start_time"][0] == since


def test_without_batches_it_is_empty_and_odd_questions_are_refused(blank: httpx2.Client) -> None:
    answer = blank.get("/drift/curve").json()
    assert (answer["last_id"], answer["points"]["time"]) == ("0", [])
    for points in (9, 2001):
        found = problem(blank.get(f"/drift/curve?points={points}"), 422, "out-of-range")
        assert (found["low"], found["high"]) == (10, 2000)
    problem(blank.get("/drift/curve?since=-1"), 422, "invalid-request")
    problem(blank.get("/drift/curve?since=1e300"), 422, "invalid-request")

"""Tests for what Grafana is given: a data source, and dashboards of metrics that exist."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import pytest
import yaml

from deploy.grafana.description import queries
from deploy.grafana.generate import texts
from tests.deploy.grafana_choice import (
    DASHBOARDS,
    begins_with,
    expressions,
    load,
    panels,
    variables,
)
from tests.deploy.metric_names import series

GRAFANA = Path(__file__).parents[2] / "deploy" / "grafana"
SELECTOR = re.compile(r"\b(gmr[_:][\w:]+|up)\b(?:\{([^}]*)\})?")
"""A metric in a query, and what it is narrowed to."""


def names(query: str) -> list[str]:
    """Our metrics. (What is recorded of them is of one job.)"""
    return re.findall(r"\bgmr[_:][\w:]+", query)


def test_dashboards_are_what_their_description_makes() -> None:
    made = texts()
    assert {path.name: path.read_text("utf-8") for path in DASHBOARDS} == made, (
        "Run python -m deploy.grafana.generate."
    )
    assert made.keys() == {
        f"{name}.json" for name in ("overview", "drift", "trainer", "http", "redis")
    }


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_every_metric_in_it_exists(path: Path) -> None:
    used = {name for query in expressions(path) for name in names(query)}
    assert used - series() == set()


def test_drift_is_shown_whole() -> None:
    text = " ".join(expressions(GRAFANA / "dashboards" / "drift.json"))
    for name in (
        "gmr_inlier_rate",
        "gmr_inlier_rate_mean",
        "gmr_drift_statistic",
        "gmr_drift_threshold",
        "gmr_drift_ert_samples",
        "gmr_drift_ert_achieved_samples",
        "gmr_drift_ert_achieved_low_samples",
        "gmr_drift_ert_achieved_high_samples",
        "gmr_boundaries_total",
        "gmr_outlier_bursts_total",
        "gmr_log_likelihood_mean",
        "gmr_prequential_accuracy",
    ):
        assert re.search(rf"\b{name}\b", text), name


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_every_panel_says_what_it_shows_and_where_from(path: Path) -> None:
    sources = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yml").read_text())
    uids = {source["uid"] for source in sources["datasources"]}
    for panel in panels(path):
        assert panel["title"]
        assert panel["description"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["datasource"]["uid"] in uids
        for target in panel["targets"]:
            assert target["datasource"]["uid"] in uids


OF_ALL = {
    "up",
    "gmr_http_requests_total",
    "gmr_http_request_duration_seconds_bucket",
    "gmr_models",
    "gmr_api_models",
    "gmr_bucket_works",
}
"""What a process tells of all models together."""


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_every_query_is_of_the_chosen_job_and_model(path: Path) -> None:
    assert "$job" in queries.CHOSEN
    assert "$model" in queries.CHOSEN
    assert "$job" in queries.OF_ALL
    for query in expressions(path):
        narrowed = SELECTOR.findall(query)
        assert narrowed, query
        for name, to in narrowed:
            of = queries.OF_ALL if name in OF_ALL else queries.CHOSEN
            assert f"{to}, ".startswith(f"{of}, "), query


def test_every_dashboard_begins_with_the_service_s_own_model_and_hands_the_choice_on() -> None:
    for path in DASHBOARDS:
        assert begins_with(path) == {"job": "gmr", "model": "()"}
        assert [link["includeVars"] for link in load(path)["links"]] == [True]
        for one in variables(path).values():
            assert not one["multi"]
            assert not one["includeAll"]


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_panels_have_ids_of_their_own_and_do_not_overlap(path: Path) -> None:
    everything = load(path)["panels"]
    ids = [panel["id"] for panel in everything]
    assert len(ids) == len(set(ids))
    for one, other in combinations([panel["gridPos"] for panel in everything], 2):
        apart = (
            one["x"] + one["w"] <= other["x"]
            or other["x"] + other["w"] <= one["x"]
            or one["y"] + one["h"] <= other["y"]
            or other["y"] + other["h"] <= one["y"]
        )
        assert apart, (one, other)
    assert all(grid["x"] + grid["w"] <= 24 for grid in (panel["gridPos"] for panel in everything))


def test_dashboards_are_read_from_where_they_are_mounted() -> None:
    root = GRAFANA.parents[1]
    compose = yaml.safe_load((root / "docker-compose.yml").read_text("utf-8"))
    volumes = compose["services"]["grafana"]["volumes"]
    providers = yaml.safe_load((GRAFANA / "provisioning/dashboards/gmr.yml").read_text("utf-8"))
    path = providers["providers"][0]["options"]["path"]
    assert f"./deploy/grafana/dashboards:{path}:ro" in volumes
    home = compose["services"]["grafana"]["environment"]
    assert home["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == f"{path}/overview.json"

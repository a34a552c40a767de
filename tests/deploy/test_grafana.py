"""Tests for what Grafana is given: a data source, and dashboards of metrics that exist."""

from __future__ import annotations

import json
import re
import runpy
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.metric_names import series

GRAFANA = Path(__file__).parents[2] / "deploy" / "grafana"
DASHBOARDS = sorted((GRAFANA / "dashboards").glob("*.json"))


def load(path: Path) -> dict[str, Any]:
    dashboard: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return dashboard


def names(query: str) -> list[str]:
    """Our metrics, and what is recorded of them."""
    return re.findall(r"\bgmr[_:][\w:]+", query)


def recorded() -> set[str]:
    """Names under which Prometheus keeps expressions."""
    rules = yaml.safe_load((GRAFANA.parent / "prometheus" / "recording.yml").read_text("utf-8"))
    return {rule["record"] for group in rules["groups"] for rule in group["rules"]}


def panels(path: Path) -> list[dict[str, Any]]:
    return [panel for panel in load(path)["panels"] if panel["type"] != "row"]


def expressions(path: Path) -> list[str]:
    queries = [target["expr"] for panel in panels(path) for target in panel["targets"]]
    return queries + [note["expr"] for note in load(path)["annotations"]["list"]]


def test_dashboards_are_what_their_description_makes() -> None:
    texts = runpy.run_path(str(GRAFANA / "generate.py"))["texts"]()
    assert {path.name: path.read_text("utf-8") for path in DASHBOARDS} == texts, (
        "Run python deploy/grafana/generate.py."
    )
    assert texts.keys() == {
        f"{name}.json" for name in ("overview", "drift", "trainer", "http", "redis")
    }


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_every_metric_in_it_exists(path: Path) -> None:
    used = {name for query in expressions(path) for name in names(query)}
    assert used - series() - recorded() == set()


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
            assert 'job="gmr"' in target["expr"] or target["expr"] in recorded()


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

"""A table with hours of operation: its change is found once `gmr encoding` has left these out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from typer.testing import CliRunner

from clients.commands.cli import app
from tests.service.api.stack import (
    make_settings,
    of_model,
    redis_server,
    serving,
    training,
    wait_until,
)

N, CHANGE = 4000, 2500


def gmr(*arguments: object) -> str:
    result = CliRunner().invoke(app, [*map(str, arguments)])
    assert result.exit_code == 0, result.output
    return result.stderr


def sent(service: httpx2.Client, name: str, *arguments: object) -> tuple[dict[str, Any], list[int]]:
    """GET /drift of a new model that has learned a file, and where its boundaries begin."""
    service.put(f"/models/{name}").raise_for_status()
    with of_model(service, name) as model:
        gmr("ingest", *arguments, "--wait", "--url", str(model.base_url).rstrip("/"))
        found = model.get("/drift/boundaries").json()["boundaries"]
        return model.get("/drift").json(), [one["estimated_start_sample"] for one in found]


def test_the_change_of_a_pump_is_found_without_its_hours_of_operation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "300")
    x = np.random.default_rng(0).normal(size=(N, 5))
    x[CHANGE:, 2] += 10
    hours = 10_000 + np.arange(N) / 6  # a row each ten minutes
    path, encoding = tmp_path / "pump.csv", tmp_path / "pump.json"
    table = np.column_stack([x, hours])
    np.savetxt(path, table, delimiter=",", header="a,b,c,d,e,hours", comments="")
    assert "hours: left out, it never falls" in gmr("encoding", path, "--out", encoding)
    with redis_server(tmp_path) as redis:
        settings = make_settings(redis.url, tmp_path, warm_up=1000)
        with training(settings), serving(settings) as service:
            drift, starts = sent(service, "without", path, "--encoding", encoding)
            assert (drift["armed"], starts) == (True, [pytest.approx(CHANGE, abs=5)])
            assert "\ngmr_drift_dependence 0.0\n" in service.get("/models/without/metrics").text
            drift, starts = sent(service, "kept", path)
            assert (drift["unarmed_reason"], drift["armed_in"], starts) == ("dependence", None, [])
            with of_model(service, "kept") as model:
                wait_until(lambda: "\ngmr_drift_dependence 1.0\n" in model.get("/metrics").text)

"""Tests for `gmr sample --encoding` against a real service."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from clients.commands.cli import app
from clients.http.answers import Samples
from clients.http.client import GMRClient
from tests.service.api.stack import make_settings, redis_server, serving, training

SHOPS = {"corner": 5.0, "market": 80.0}
"""Kinds of shops, which are classes, and what is usually paid there."""


def sales(path: Path, n: int) -> Path:
    """A table in which what is paid depends on the shop, and is missing now and then."""
    rng = np.random.default_rng(0)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["shop", "paid", "by", "kind"])
        for row in range(n):
            shop = [*SHOPS][row % 2]
            paid = "" if row % 7 == 0 else f"{SHOPS[shop] + rng.normal():.4f}"
            writer.writerow([shop, paid, "card" if row % 3 else "cash", shop[0]])
    return path


def test_rows_of_the_table_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    table, kept = sales(tmp_path / "sales.csv", 1500), tmp_path / "sales.json"

    def gmr(*typed: object, status: int = 0) -> Result:
        result = CliRunner().invoke(app, [*map(str, typed)])
        assert result.exit_code == status, result.output
        return result

    gmr("encoding", table, "--label-column", "kind", "--out", kept)
    with redis_server(tmp_path) as redis:
        settings = make_settings(redis.url, tmp_path, preset="flat", n_components=12)
        with training(settings), serving(settings) as http:
            url = ("--url", http.base_url)
            gmr("ingest", table, "--label-column", "kind", "--encoding", kept, "--wait", *url)
            draw = ("sample", "--n", 100, "--seed", 3, "--encoding", kept)
            rows = list(csv.DictReader(io.StringIO(gmr(*draw, *url).stdout)))
            document = json.loads(gmr(*draw, "--json", *url).stdout)
            said = gmr("sample", "--encoding", kept, "--out", "a.npz", *url, status=2).stderr
    assert len(rows) == 100
    assert [*rows[0]] == ["label", "shop", "paid", "by"]
    usual = [row for row in rows if row["paid"] and row["shop"]]
    assert len(usual) >= 70
    near = [abs(float(row["paid"]) - SHOPS[row["shop"]]) < 10 for row in usual]
    assert np.mean(near) > 0.9
    assert {row["by"] for row in rows} <= {"card", "cash", ""}
    assert np.mean([row["label"] == row["shop"][0] for row in usual]) > 0.9
    # The same draw as a document.
    assert [row["shop"] or "" for row in document["rows"]] == [row["shop"] for row in rows]
    assert len(document["features"][0]) > len(document["rows"][0])
    assert "Rows of a table cannot be saved as a.npz." in " ".join(said.split())


def test_what_falls_short_is_told_of_as_many_samples_as_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """How many are drawn is the service's to say, where the command does not."""
    drawn = Samples(
        model_version=1,
        features=np.zeros((3, 2), np.float32),
        labels=np.array(["a", "a", "a"]),
        log_likelihoods=np.zeros(3),
        probabilities=np.full(3, 0.5, np.float32),
        short=np.array([True, False, True]),
        seed=1,
    )
    monkeypatch.setattr(GMRClient, "sample", lambda *_, **__: drawn)
    monkeypatch.setattr(GMRClient, "feature_names", lambda _: None)
    result = CliRunner().invoke(app, ["sample", "--min-probability", "1"])
    assert result.exit_code == 0, result.output
    assert result.stderr.startswith("2 of 3 samples are less probable than was asked for")

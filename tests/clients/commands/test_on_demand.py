"""Tests for `gmr ingest` where the service makes models by their first batch."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from pydantic import SecretStr
from typer.testing import CliRunner

from clients.commands.cli import app
from clients.http.client import GMRClient
from tests.service.api.stack import make_settings, redis_server, serving, training
from tests.service.running import LONGEST_S, wait_until

OPERATOR = "operator-key-of-32-characters-0"

Roles = tuple[str, ...]
SENSOR: Roles = ("ingest",)
TEAM: Roles = ("ingest", "read")
ADMIN: Roles = ("admin",)


@pytest.fixture(scope="module")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with redis_server(tmp_path_factory.mktemp("redis")) as redis:
        yield redis.url


def served(redis_url: str, directory: Path, *, on_demand: bool) -> Iterator[str]:
    settings = make_settings(
        redis_url, directory, models_on_demand=on_demand, admin_key=SecretStr(OPERATOR)
    )
    with training(settings), serving(settings) as http:
        yield str(http.base_url).rstrip("/")


@pytest.fixture(scope="module")
def makes(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a service that makes models by their first batch."""
    yield from served(redis_url, tmp_path_factory.mktemp("makes"), on_demand=True)


@pytest.fixture(scope="module")
def strict(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of one that does not."""
    yield from served(redis_url, tmp_path_factory.mktemp("strict"), on_demand=False)


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "300")


def key_of(url: str, roles: Sequence[str]) -> str:
    with GMRClient(url, api_key=OPERATOR) as client:
        return client.make_api_key("fleet", roles, ["od-*"]).key


def table(path: Path, machines: Sequence[str] = (), n: int = 60) -> Path:
    """Readings, of one machine or of some in turn, with ids."""
    x = np.random.default_rng(0).normal(size=(n, 2)).round(4)
    rows = [f"{a},{b},{i}" for i, (a, b) in enumerate(x)]
    header = "load,speed,id"
    if machines:
        header = f"machine,{header}"
        rows = [f"{machines[i % len(machines)]},{row}" for i, row in enumerate(rows)]
    path.write_text("\n".join([header, *rows]) + "\n", "utf-8")
    return path


def ingest(url: str, key: str, *typed: object, status: int = 0) -> str:
    command = ["ingest", *map(str, typed), "--url", url]
    result = CliRunner(env={"GMR_API_KEY": key}).invoke(app, command)
    assert result.exit_code == status, result.output
    return " ".join(result.output.split())


def known(url: str) -> set[str]:
    with GMRClient(url, api_key=OPERATOR) as client:
        return {model.name for model in client.models()}


def samples_of(url: str, model: str) -> int:
    with GMRClient(url, model=model, api_key=OPERATOR) as client:
        return client.wait_until_learned(LONGEST_S).samples_seen


@pytest.mark.parametrize("roles", [SENSOR, ADMIN])
def test_the_first_batch_of_a_file_makes_the_model(
    makes: str, tmp_path: Path, roles: Roles
) -> None:
    name, path = f"od-file-{roles[0]}", table(tmp_path / "x.csv")
    key = key_of(makes, roles)
    typed = (path, "--model", name, "--drop", "id")
    assert "60 samples in 1 batch, 0 of them there before" in ingest(makes, key, *typed)
    assert samples_of(makes, name) == 60
    with GMRClient(makes, model=name, api_key=key) as client:
        assert client.feature_names() == ("load", "speed")
    assert "was sent completely before" in ingest(makes, key, *typed)
    # Once it was taken down the file is that of a new model.
    with GMRClient(makes, api_key=OPERATOR) as client:
        client.take_down_model(name)
    wait_until(lambda: name not in known(makes))
    assert "60 samples in 1 batch, 0 of them there before" in ingest(makes, key, *typed)


def test_who_waits_may_be_the_first(makes: str, tmp_path: Path) -> None:
    path = table(tmp_path / "x.csv")
    typed = (path, "--model", "od-waits", "--id-column", "id", "--wait")
    assert "60 samples await their label" in ingest(makes, key_of(makes, TEAM), *typed)
    typed = (path, "--model", "od-w", "--drop", "id", "--wait")
    told = ingest(makes, key_of(makes, SENSOR), *typed, status=2)
    assert "--wait needs a key that also has the role read" in told
    assert "od-w" not in known(makes)


@pytest.mark.parametrize("roles", [SENSOR, ADMIN])
def test_the_first_line_that_comes_makes_the_model(
    makes: str, tmp_path: Path, roles: Roles
) -> None:
    name = f"od-live-{roles[0]}"
    lines = table(tmp_path / "x.csv").read_bytes()
    program = "from clients.commands.cli import main; main()"
    command = [sys.executable, "-c", program, "ingest", "-", "--live", "--drop", "id"]
    run = subprocess.run(
        [*command, "--model", name, "--url", makes],
        input=lines,
        capture_output=True,
        timeout=LONGEST_S,
        env={**os.environ, "GMR_API_KEY": key_of(makes, roles)},
        check=False,
    )
    assert run.returncode == 0, run.stderr.decode()
    assert b"60 samples in 1 batch" in run.stdout
    assert samples_of(makes, name) == 60


@pytest.mark.parametrize("roles", [SENSOR, TEAM, ADMIN])
def test_the_first_rows_make_the_models_that_a_table_names(
    makes: str, tmp_path: Path, roles: Roles
) -> None:
    names = [f"od-{'-'.join(roles)}-{i}" for i in range(3)]
    key = key_of(makes, roles)
    path = table(tmp_path / "fleet.csv", names)
    said = ingest(makes, key, path, "--model-column", "machine", "--drop", "id")
    assert "Made" not in said
    for name in names:
        assert f"{name}: 20 samples in 1 batch, 0 of them there before" in said
        assert samples_of(makes, name) == 20


def test_a_name_that_no_model_may_have_is_told_before_anything_is_sent(
    makes: str, tmp_path: Path
) -> None:
    path = table(tmp_path / "fleet.csv", ["od-good", "od-a b"])
    typed = (path, "--model-column", "machine", "--drop", "id")
    said = ingest(makes, OPERATOR, *typed, status=2)
    assert "names 1 model that the service does not have: od-a b. Nothing was sent" in said
    assert "counts for the models od-* alone" in ingest(
        makes, key_of(makes, SENSOR), *typed, status=1
    )
    assert "od-good" not in known(makes)


def test_images_make_a_model(makes: str, tmp_path: Path) -> None:
    for i in range(4):
        shade = np.full((4, 4), 40 * i, np.uint8)
        Image.fromarray(shade).save(tmp_path / f"{i}.png")
    said = ingest(makes, key_of(makes, SENSOR), tmp_path, "--model", "od-images")
    assert "4 samples in 1 batch" in said


@pytest.mark.parametrize("roles", [SENSOR, TEAM, ADMIN])
def test_elsewhere_a_misspelt_name_is_told_before_anything_is_sent(
    strict: str, tmp_path: Path, roles: Roles
) -> None:
    key = key_of(strict, roles)
    path = table(tmp_path / "x.csv")
    said = ingest(strict, key, path, "--model", "od-typo", "--drop", "id", status=2)
    assert "No model has the name 'od-typo'" in said
    path = table(tmp_path / "fleet.csv", ["od-1", "od-2"])
    said = ingest(strict, key, path, "--model-column", "machine", status=2)
    assert "names 2 models that the service does not have: od-1, od-2. Nothing was sent" in said
    assert known(strict) == set()

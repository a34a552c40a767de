"""Tests for docker-compose.yml and its .env: valid, closed by default, consistent."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.settings import Settings

ROOT = Path(__file__).parents[2]
FILES = [
    ROOT / "docker-compose.yml",
    *(ROOT / "deploy" / f"docker-compose.{name}.yml" for name in ("cuda", "webhook")),
]
COMPOSE: dict[str, Any] = yaml.safe_load(FILES[0].read_text("utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = ("trainer", "api")
NO_SETTINGS = ("GMR_IMAGE_TAG", "GMR_PUBLISHED_PORT")
"""Variables that docker-compose.yml reads itself."""

OF_THE_FILE = {"host", "port", "data_dir", "redis_url", "snapshot_store", "log_format"}
"""Settings that docker-compose.yml fixes, whatever .env says."""


def environment(name: str, env_file: dict[str, str]) -> dict[str, str]:
    """What a container is given, as Compose merges it: `environment` over `env_file`."""
    service = SERVICES[name]
    given = {}
    for file in service.get("env_file", []):
        assert file == {"path": ".env", "required": False}
        given |= env_file

    def value(match: re.Match[str]) -> str:
        return env_file.get(match[1]) or match[2]

    for variable, text in service["environment"].items():
        given[variable] = re.sub(r"\$\{(\w+):-([^}]*)\}", value, text)
    return given


def env_example() -> dict[str, str]:
    lines = (ROOT / "deploy" / ".env.example").read_text("utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_file_follows_the_compose_specification(path: Path) -> None:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    result = subprocess.run([*command, str(path)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


def test_a_mistake_would_be_noticed(tmp_path: Path) -> None:
    broken = tmp_path / "docker-compose.yml"
    broken.write_text(FILES[0].read_text("utf-8").replace("cap_drop:", "drop_caps:"), "utf-8")
    with pytest.raises(AssertionError, match="drop_caps"):
        test_the_file_follows_the_compose_specification(broken)


@pytest.mark.parametrize("name", SERVICES)
def test_every_container_has_few_rights_and_a_health_check(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["restart"] == "unless-stopped"
    assert service["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL")
    assert "privileged" not in service


@pytest.mark.parametrize("name", SERVICES)
def test_every_image_is_pinned_or_built_here(name: str) -> None:
    service = SERVICES[name]
    if name in OURS:
        assert service["build"]["context"] == "."
    else:
        assert re.fullmatch(r"[a-z/-]+:v?\d+\.\d+\.\d+(-alpine)?", service["image"])


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_open_to_this_machine_only(name: str) -> None:
    for port in SERVICES[name].get("ports", []):
        assert re.fullmatch(r"127\.0\.0\.1:\$\{\w+:-\d+\}:\d+", port)


def test_nobody_but_the_service_reaches_redis() -> None:
    assert "ports" not in SERVICES["redis"]
    inside = {name for name, service in SERVICES.items() if "inside" in service["networks"]}
    assert inside == {"redis", *OURS}
    assert SERVICES["redis"]["networks"] == ["inside"]
    assert COMPOSE["networks"]["inside"] == {"internal": True}


def test_with_a_webhook_the_trainer_can_reach_it_and_nobody_else_can_do_more() -> None:
    trainer = yaml.safe_load(FILES[2].read_text("utf-8"))["services"].pop("trainer")
    assert trainer["networks"] == ["inside", "outside"]
    names = {name.removeprefix("GMR_").lower() for name in trainer["environment"]}
    assert names == {"webhook_url", "webhook_secret"} <= set(Settings.model_fields)


def test_redis_acknowledges_only_what_is_on_disk_and_drops_nothing() -> None:
    command = " ".join(SERVICES["redis"]["command"])
    assert "--appendonly yes" in command
    assert "--appendfsync always" in command
    assert "--maxmemory-policy noeviction" in command
    assert "redis:/data" in SERVICES["redis"]["volumes"]


def test_the_trainer_alone_writes_the_data() -> None:
    assert SERVICES["trainer"]["volumes"] == ["data:/data"]
    assert SERVICES["api"]["volumes"] == ["data:/data:ro"]
    assert SERVICES["trainer"]["command"] == ["trainer"]
    assert SERVICES["api"]["command"] == ["api"]


def test_the_trainer_has_time_to_drain() -> None:
    seconds = int(SERVICES["trainer"]["stop_grace_period"].removesuffix("s"))
    assert seconds > Settings.model_fields["drain_timeout_s"].default


@pytest.mark.parametrize("name", OURS)
def test_every_variable_is_a_setting_and_may_have_the_value_given(name: str) -> None:
    values = {}
    for variable, value in SERVICES[name]["environment"].items():
        if variable in NO_SETTINGS:
            assert value == ""  # which counts as unset
            continue
        setting = variable.removeprefix("GMR_").lower()
        assert setting in Settings.model_fields, variable
        default = re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value)
        if default:
            values[setting] = default
    settings = Settings(**values)
    assert not settings.snapshots_in_redis


def test_defaults_are_those_of_the_settings() -> None:
    for variable, value in SERVICES["trainer"]["environment"].items():
        if match := re.fullmatch(r"\$\{(\w+):-([^}]*)\}", value):
            assert match[1] == variable
            default = Settings.model_fields[variable.removeprefix("GMR_").lower()].default
            assert match[2] == ("" if default is None else str(default))


def test_the_example_of_an_env_file_names_every_variable_with_its_default() -> None:
    used = {
        match[1]: match[2]
        for path in FILES
        for match in re.finditer(r"\$\{(\w+):-([^}]*)\}", path.read_text("utf-8"))
    }
    assert env_example() == used


@pytest.mark.parametrize("name", OURS)
def test_every_setting_in_the_env_file_reaches_the_service(name: str) -> None:
    variables = [f"GMR_{setting.upper()}" for setting in Settings.model_fields]
    given = environment(name, {variable: f"{variable} of .env" for variable in variables})
    kept = {its for its in variables if given[its] == f"{its} of .env"}
    fixed = OF_THE_FILE | ({"device"} if name == "api" else set())
    assert {its.removeprefix("GMR_").lower() for its in set(variables) - kept} == fixed
    documented = (ROOT / "docs" / "operations.md").read_text("utf-8")
    assert not [variable for variable in variables if f"`{variable}`" not in documented]


@pytest.mark.parametrize("name", OURS)
def test_a_service_starts_with_the_example_of_an_env_file(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = environment(name, env_example() | {"GMR_ERT": "2h", "GMR_PUBLISHED_PORT": "8001"})
    for variable, value in given.items():
        monkeypatch.setenv(variable, value)
    settings = Settings.load()
    assert (settings.port, str(settings.data_dir)) == (8000, "/data")
    assert settings.allowed_hosts == "localhost,127.0.0.1,api"
    assert settings.ert == "2h"


@pytest.mark.parametrize("name", SERVICES)
def test_what_is_mounted_from_the_repository_is_there(name: str) -> None:
    for volume in SERVICES[name].get("volumes", []):
        source = volume.split(":")[0]
        if source.startswith("."):
            assert (ROOT / source).is_dir()
            assert volume.endswith(":ro")
        else:
            assert source in COMPOSE["volumes"]


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_waits_for_the_health_of_those_it_needs(name: str) -> None:
    for needed, condition in SERVICES[name].get("depends_on", {}).items():
        assert needed in SERVICES
        assert condition == {"condition": "service_healthy"}

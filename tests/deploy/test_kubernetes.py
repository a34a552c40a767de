"""Tests for deploy/kubernetes: the schemas of Kubernetes, and the settings that there are.

Nothing here was ever run on a cluster; what can be held without one is.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from service.api.app import create_app
from service.broker.keys import GROUP, Keys
from service.settings import Settings

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
WITHOUT_SCHEMA = ("Kustomization", "ScaledObject", "TriggerAuthentication")
SECRETS = {"admin-key", "redis-password"}


def documents() -> Iterator[tuple[str, dict[str, Any]]]:
    for file in sorted(FOLDER.rglob("*.yaml")):
        for document in yaml.safe_load_all(file.read_text("utf-8")):
            yield f"{file.relative_to(FOLDER)}: {document['kind']}", document


def check(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def containers() -> Iterator[dict[str, Any]]:
    for _, document in documents():
        template = document.get("spec", {}).get("template", {})
        yield from template.get("spec", {}).get("containers", [])


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(document, id=name)
        for name, document in documents()
        if document["kind"] not in WITHOUT_SCHEMA
    ],
)
def test_it_is_what_kubernetes_takes(document: dict[str, Any]) -> None:
    check(document)
    misspelt = copy.deepcopy(document)
    misspelt["spec"]["replikas"] = 1
    with pytest.raises(kubernetes_validate.ValidationError):
        check(misspelt)


def test_every_variable_is_a_setting_and_every_secret_is_one_that_the_head_names() -> None:
    kustomization = (FOLDER / "kustomization.yaml").read_text("utf-8")
    made = yaml.safe_load(kustomization)["configMapGenerator"][0]["literals"]
    named = dict(literal.split("=", 1) for literal in made)
    for container in containers():
        for variable in container.get("env", []):
            named[variable["name"]] = variable.get("value", "")
            secret = variable.get("valueFrom", {}).get("secretKeyRef")
            if secret is not None:
                assert secret["key"] in SECRETS
                assert f"--from-literal={secret['key']}=" in kustomization
    own = {name.removeprefix("GMR_").lower(): value for name, value in named.items()}
    own.pop("redis_password")
    assert set(own) <= set(Settings.model_fields)
    own["admin_key"] = "a" * 32
    loaded = Settings.load({name: value for name, value in own.items() if value})
    assert loaded.standby
    assert loaded.snapshots_in_redis
    loaded.check_exposure()


def test_probes_ask_routes_that_there_are_without_a_key() -> None:
    paths = set(create_app(Settings(redis_url="redis://127.0.0.1:1")).openapi()["paths"])  # type: ignore[arg-type]
    asked = {
        container[kind]["httpGet"]["path"]
        for container in containers()
        for kind in ("startupProbe", "livenessProbe", "readinessProbe")
        if "httpGet" in container.get(kind, {})
    }
    assert asked
    assert asked <= paths
    assert all(path.startswith("/health/") for path in asked)


def test_the_stream_that_is_watched_is_the_one_that_is_read() -> None:
    [scaled] = [one for _, one in documents() if one["kind"] == "ScaledObject"]
    [trigger] = scaled["spec"]["triggers"]
    assert trigger["metadata"]["stream"] == Keys("default").input
    assert trigger["metadata"]["consumerGroup"] == GROUP
    deployments = {one["metadata"]["name"] for _, one in documents() if one["kind"] == "Deployment"}
    assert scaled["spec"]["scaleTargetRef"]["name"] in deployments


def test_what_is_listed_is_there() -> None:
    for folder in (FOLDER, FOLDER / "scale-to-zero"):
        listed = yaml.safe_load((folder / "kustomization.yaml").read_text("utf-8"))["resources"]
        assert all((folder / one).exists() for one in listed)
        files = {one.name for one in folder.glob("*.yaml")} - {"kustomization.yaml"}
        assert files == {one for one in listed if one.endswith(".yaml")}

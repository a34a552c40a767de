"""Tests for deploy/kubernetes: the schemas of Kubernetes, and the settings that there are.

Nothing here was ever run on a cluster; what can be held without one is.
"""

from __future__ import annotations

import copy
import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import orjson
import pytest
import yaml
from pydantic import BaseModel, ConfigDict

from service.api.app import create_app
from service.broker.connection import connect
from service.broker.keys import GROUP, Keys
from service.settings import Settings
from service.supervisor.watchdog import START_S
from tests.service.api.conftest import redis_url  # noqa: F401
from tests.service.api.stack import make_settings, wait_until
from tests.service.forked import TRAINER, forked

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
WITHOUT_SCHEMA = ("Kustomization", "ScaledObject", "TriggerAuthentication", "RayCluster")
CLUSTER = FOLDER / "cluster"
SECRETS = {"admin-key", "redis-password"}
PASSWORDS = {"REDIS_PASSWORD", "LOG_PASSWORD"}
"""Variables that only make up the address of Redis."""


def documents() -> Iterator[tuple[str, dict[str, Any]]]:
    for file in sorted(FOLDER.rglob("*.yaml")):
        for document in yaml.safe_load_all(file.read_text("utf-8")):
            yield f"{file.relative_to(FOLDER)}: {document['kind']}", document


def check(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


def templates(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Of the pods that a document asks for."""
    spec = document.get("spec", {})
    for group in (spec, spec.get("headGroupSpec", {}), *spec.get("workerGroupSpecs", [])):
        if "template" in group:
            yield group["template"]


def containers() -> Iterator[dict[str, Any]]:
    for _, document in documents():
        for template in templates(document):
            yield from template["spec"]["containers"]


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
    named: dict[str, str] = {}
    for text in (kustomization, (CLUSTER / "kustomization.yaml").read_text("utf-8")):
        made = yaml.safe_load(text)["configMapGenerator"][0]["literals"]
        named.update(literal.split("=", 1) for literal in made)
    for container in containers():
        for variable in container.get("env", []):
            named[variable["name"]] = variable.get("value", "")
            secret = variable.get("valueFrom", {}).get("secretKeyRef")
            if secret is not None:
                assert secret["key"] in SECRETS
                assert f"--from-literal={secret['key']}=" in kustomization
    assert {name for name in named if not name.startswith(("GMR_", "RAY_"))} == PASSWORDS
    own = {
        name.removeprefix("GMR_").lower(): value
        for name, value in named.items()
        if name.startswith("GMR_")
    }
    assert set(own) <= set(Settings.model_fields)
    own["admin_key"] = "a" * 32
    loaded = Settings.load({name: value for name, value in own.items() if value})
    assert loaded.standby
    assert loaded.cluster
    assert loaded.checkpoints_in_store
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
    for folder in (FOLDER, FOLDER / "scale-to-zero", CLUSTER):
        listed = yaml.safe_load((folder / "kustomization.yaml").read_text("utf-8"))["resources"]
        assert all((folder / one).exists() for one in listed)
        files = {one.name for one in folder.glob("*.yaml")} - {"kustomization.yaml"}
        assert files == {one for one in listed if one.endswith(".yaml")}


class Given(BaseModel):
    """Part of a document of KubeRay: the fields of its API reference (ray.io/v1) that are used."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Fault(Given):
    redisAddress: str
    redisPassword: dict[str, Any]


class Head(Given):
    rayStartParams: dict[str, str]
    template: dict[str, Any]


class Workers(Head):
    groupName: str
    replicas: int
    minReplicas: int
    maxReplicas: int


class Spec(Given):
    rayVersion: str
    gcsFaultToleranceOptions: Fault
    headGroupSpec: Head
    workerGroupSpecs: list[Workers]


def ray_cluster() -> dict[str, Any]:
    [document] = [one for _, one in documents() if one["kind"] == "RayCluster"]
    return document


def test_the_nodes_of_ray_are_what_kuberay_and_kubernetes_take() -> None:
    document = ray_cluster()
    assert document["apiVersion"] == "ray.io/v1"
    Spec.model_validate(document["spec"])
    for template in templates(document):
        labels = {"app": "ray"}
        check(
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "as-one-of-these"},
                "spec": {
                    "selector": {"matchLabels": labels},
                    "template": {**template, "metadata": {"labels": labels}},
                },
            }
        )


def test_the_probes_of_ray_ask_ports_that_it_listens_on_and_no_host_is_on_the_head() -> None:
    spec = ray_cluster()["spec"]
    head, [workers] = spec["headGroupSpec"], spec["workerGroupSpecs"]
    assert head["rayStartParams"]["num-cpus"] == "0"
    for group, port in (
        (head, 6379),  # Ray's own port of its head, unless it is told another
        (workers, int(workers["rayStartParams"]["node-manager-port"])),
    ):
        [container] = group["template"]["spec"]["containers"]
        for probe in ("livenessProbe", "readinessProbe"):
            assert container[probe]["tcpSocket"]["port"] == port
        # The operator refuses a head that sets it beside its own.
        assert "REDIS_PASSWORD" not in {one["name"] for one in container["env"]}


def test_the_cluster_has_hosts_in_place_of_trainers_and_the_image_for_them() -> None:
    made = yaml.safe_load((CLUSTER / "kustomization.yaml").read_text("utf-8"))
    there = {(one["kind"], one["metadata"]["name"]) for _, one in documents() if "metadata" in one}
    for patch in made["patches"]:
        target, change = patch["target"], yaml.safe_load(patch["patch"])
        assert (target["kind"], target["name"]) in there
        assert (change["kind"], change["metadata"]["name"]) == (target["kind"], target["name"])
        assert change["$patch"] == "delete"
    extra = re.search(r"EXTRAS=(\w+)", (CLUSTER / "kustomization.yaml").read_text("utf-8"))
    root = FOLDER.parents[1]
    assert extra
    extras = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
    assert extra[1] in extras["optional-dependencies"]
    assert "ARG EXTRAS=serve" in (root / "Dockerfile").read_text("utf-8")


def test_no_pod_is_out_of_service_because_the_trainer_is_away() -> None:
    probes = [one["readinessProbe"] for one in containers() if "readinessProbe" in one]
    asked = [probe["httpGet"]["path"] for probe in probes if "httpGet" in probe]
    assert asked
    assert "/health/ready" not in asked


def test_the_probe_of_a_trainer_passes_one_that_works_and_fails_one_that_is_stopped(
    redis_url: str,  # noqa: F811
    tmp_path: Path,
) -> None:
    [container] = [one for one in containers() if one["name"] == "trainer"]
    probe = container["livenessProbe"]
    python, *arguments = probe["exec"]["command"]
    assert python == "python"
    # Whoever takes over has as long as under `gmr serve` until it first reports.
    assert probe["periodSeconds"] * probe["failureThreshold"] >= START_S
    settings = make_settings(redis_url, tmp_path)
    variables = {**os.environ, **settings.environment()}
    key = Keys(settings.model).status

    def probed() -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, *arguments],
            env=variables,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stderr.strip()

    assert probed() == (0, "")  # one that starts, or stands by
    with (
        connect(redis_url) as client,
        forked(TRAINER, variables=settings.environment(), output=tmp_path / "log") as trainer,
    ):
        wait_until(lambda: client.get(key) is not None)
        assert probed() == (0, "")
        trainer.send_signal(signal.SIGSTOP)
        status = orjson.loads(str(client.get(key), "utf-8"))  # type: ignore[arg-type]
        client.set(key, orjson.dumps({**status, "time": status["time"] - 60}))  # a minute later
        code, told = probed()
        assert (code, told.startswith("the trainer last reported ")) == (1, True), told
        trainer.send_signal(signal.SIGCONT)
        wait_until(lambda: probed() == (0, ""))

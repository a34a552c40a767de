"""Tests for the OpenAPI document: complete, stable, and true."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import orjson
import pytest
from jsonschema import Draft202012Validator

from service.api.app import create_app
from service.api.routes.events import KINDS
from service.settings import Settings
from tests.service.api.stack import samples, serving

COMMITTED = Path(__file__).parents[3] / "docs" / "openapi.json"

OPERATIONS = {
    "ingest": "post /ingest",
    "ingest_state": "get /ingest",
    "ledger": "get /ledger",
    "batch": "get /batches/{batch_id}",
    "audit": "get /audit",
    "list_keys": "get /keys",
    "key_shares": "get /keys/shares",
    "make_key": "post /keys",
    "revoke_key": "delete /keys/{id}",
    "list_models": "get /models",
    "describe_model": "get /models/{name}",
    "make_model": "put /models/{name}",
    "take_down_model": "delete /models/{name}",
    "begin_session": "post /session",
    "end_session": "delete /session",
    "label": "post /labels",
    "dead_letters": "get /deadletters",
    "dead_letter": "get /deadletters/{id}",
    "requeue_dead_letter": "post /deadletters/{id}",
    "drop_dead_letter": "delete /deadletters/{id}",
    "drop_dead_letters": "delete /deadletters",
    "classify": "post /classify",
    "outliers": "post /outliers",
    "sample": "get /sample",
    "v2_server": "get /v2",
    "v2_live": "get /v2/health/live",
    "v2_ready": "get /v2/health/ready",
    "v2_model": "get /v2/models/{name}",
    "v2_model_ready": "get /v2/models/{name}/ready",
    "v2_model_version": "get /v2/models/{name}/versions/{version}",
    "v2_model_version_ready": "get /v2/models/{name}/versions/{version}/ready",
    "v2_infer": "post /v2/models/{name}/infer",
    "v2_infer_version": "post /v2/models/{name}/versions/{version}/infer",
    "drift": "get /drift",
    "boundaries": "get /drift/boundaries",
    "boundary": "get /drift/boundaries/{id}",
    "curve": "get /drift/curve",
    "add_note": "post /drift/boundaries/{id}/notes",
    "set_ert": "put /drift/ert",
    "set_mode": "put /model/mode",
    "settings": "get /model/settings",
    "change_settings": "patch /model/settings",
    "quarantine": "get /drift/quarantine",
    "proposals": "get /drift/proposals",
    "history": "get /drift/history",
    "declare_boundary": "post /drift/boundary",
    "events": "get /events",
    "model": "get /model",
    "model_versions": "get /model/versions",
    "feature_names": "get /model/feature-names",
    "name_features": "put /model/feature-names",
    "forget_feature_names": "delete /model/feature-names",
    "rollback": "post /model/rollback",
    "rename_class": "post /model/rename-class",
    "merge_classes": "post /model/merge-classes",
    "release": "post /model/release",
    "download_checkpoint": "get /model/checkpoint",
    "upload_checkpoint": "put /model/checkpoint",
    "metrics": "get /metrics",
    "live": "get /health/live",
    "startup": "get /health/startup",
    "ready": "get /health/ready",
}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    settings = Settings(redis_url="redis://127.0.0.1:1")  # type: ignore[arg-type]
    return create_app(settings).openapi()


def operations(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        operation["operationId"]: {**operation, "where": f"{method} {path}"}
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def test_the_committed_document_is_the_one_that_is_served(
    document: dict[str, Any], tmp_path: Path
) -> None:
    # The version is that of the installed distribution, and changes with every release.
    served = {**document, "info": {**document["info"], "version": "any"}}
    wanted = orjson.dumps(served, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n"
    if COMMITTED.read_bytes() != wanted:
        (tmp_path / "openapi.json").write_bytes(wanted)
        pytest.fail(f"The API has changed. If that is meant: cp {tmp_path}/openapi.json docs/")


def test_the_document_that_is_served_names_its_own_place_as_the_server() -> None:
    with serving(Settings(redis_url="redis://127.0.0.1:1", port=0)) as client:  # type: ignore[arg-type]
        served = client.get("/openapi.json").json()
        assert [one["url"] for one in served["servers"]] == ["."]
        assert client.get("/models/pump/openapi.json").json() == served


def test_every_kind_of_event_is_named(document: dict[str, Any]) -> None:
    told = operations(document)["events"]["description"]
    assert [kind for kind in KINDS if f"`{kind}`" not in told] == []


@pytest.mark.parametrize(
    ("name", "status"),
    [("v2_model_version", "409"), ("v2_model", "503"), ("v2_infer", "503")],
)
def test_what_a_route_of_the_protocol_may_refuse_is_described(
    document: dict[str, Any], name: str, status: str
) -> None:
    assert status in operations(document)[name]["responses"]


def test_operation_ids_do_not_change(document: dict[str, Any]) -> None:
    found = operations(document)
    assert {id: operation["where"] for id, operation in found.items()} == OPERATIONS


def test_every_operation_says_what_it_does_and_how_it_fails(document: dict[str, Any]) -> None:
    for name, operation in operations(document).items():
        assert operation["summary"], name
        assert operation["tags"], name
        for status, response in operation["responses"].items():
            assert response["description"], (name, status)
            if status[0] in "45":
                form = "application/json" if name.startswith("v2_") else "application/problem+json"
                assert list(response["content"]) == [form], (name, status)


def test_every_body_has_a_schema_for_each_of_its_forms(document: dict[str, Any]) -> None:
    for name in ("ingest", "classify", "outliers"):
        content = operations(document)[name]["requestBody"]["content"]
        assert list(content) == ["application/json", "application/vnd.safetensors"]
        schema = content["application/json"]["schema"]
        Draft202012Validator.check_schema(schema)
        Draft202012Validator(schema).validate(content["application/json"]["example"])


def test_labels_have_a_schema_that_their_examples_fit(document: dict[str, Any]) -> None:
    content = operations(document)["label"]["requestBody"]["content"]["application/json"]
    Draft202012Validator.check_schema(content["schema"])
    for example in content["examples"].values():
        Draft202012Validator(content["schema"]).validate(example["value"])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("classify", {"json": {"features": samples(2).tolist()}}),
        ("outliers", {"json": {"features": samples(2).tolist()}}),
        ("sample", {}),
        ("drift", {}),
        ("boundaries", {}),
        ("history", {}),
        ("proposals", {}),
        ("model", {}),
        ("model_versions", {}),
        ("live", {}),
        ("ready", {}),
    ],
)
def test_answers_are_as_the_document_says(
    taught: httpx2.Client, document: dict[str, Any], name: str, options: dict[str, Any]
) -> None:
    operation = operations(document)[name]
    method, path = operation["where"].split()
    response = taught.request(method, path, **options)
    assert response.status_code == 200
    content = operation["responses"]["200"]["content"]["application/json"]
    # References point into the document, so it is the schema's root.
    Draft202012Validator({**document, **content["schema"]}).validate(response.json())

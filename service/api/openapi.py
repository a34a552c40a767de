"""What OpenAPI says of bodies and errors, for routes that read and write bytes themselves.

The routes that carry samples are not described by function signatures: their bodies
come in two forms, and their answers in up to four. These helpers say so, once.
"""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI, Response
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from service.api import answers
from service.api.negotiation import JSON, SAFETENSORS
from service.api.problems import FRAMEWORK, PROBLEM_JSON, PROBLEMS
from service.wire import MAX_SAMPLE_ID_LENGTH

PATH: Final = "/openapi.json"

SERVERS: Final = [{"url": ".", "description": "The service that this document comes from."}]
"""Relative to the address of the document: a proxy may serve it below any path, and a named model
has one of its own."""

PROBLEM_SCHEMA: Final = "Problem"

TAGS: Final = [
    {"name": "stream", "description": "Send samples to learn from."},
    {"name": "model", "description": "Ask what has been learned; keep and restore it."},
    {"name": "inference", "description": "The Open Inference Protocol (V2)."},
    {"name": "drift", "description": "Where the stream changes."},
    {"name": "operations", "description": "Metrics, health, documentation."},
]

BINARY: Final = {"schema": {"type": "string", "format": "binary"}}

FEATURES: Final[dict[str, Any]] = {
    "type": "array",
    "description": "N rows of D finite numbers.",
    "minItems": 1,
    "items": {"type": "array", "minItems": 1, "items": {"type": "number"}},
}
LABEL: Final[dict[str, Any]] = {"anyOf": [{"type": "integer"}, {"type": "string", "minLength": 1}]}
SAMPLE_ID: Final[dict[str, Any]] = {
    "anyOf": [
        {"type": "integer"},
        {"type": "string", "minLength": 1, "maxLength": MAX_SAMPLE_ID_LENGTH},
    ]
}
SAMPLE_IDS: Final[dict[str, Any]] = {
    "type": "array",
    "description": "One integer, string or null per row, each once. A sample with an id and no "
    "label waits for its label, which POST /labels brings, before it is learned.",
    "items": {"anyOf": [*SAMPLE_ID["anyOf"], {"type": "null"}]},
}
LABELS: Final[dict[str, Any]] = {
    "type": "array",
    "description": "One integer, string or null per row; a new value becomes a new class.",
    "items": {"anyOf": [*LABEL["anyOf"], {"type": "null"}]},
}


def samples_body(
    example: dict[str, Any], properties: dict[str, Any] | None = None
) -> dict[str, Any]:
    """`openapi_extra` of a route whose body holds samples, as JSON or safetensors.

    Arguments:
        example: A JSON body.
        properties: Schemas of the fields beside `features`.
    """
    schema = {
        "type": "object",
        "required": ["features"],
        "additionalProperties": False,
        "properties": {"features": FEATURES, **(properties or {})},
    }
    binary = {
        **BINARY["schema"],
        "description": "Tensors `features` (N, D) of float32, float16 or uint8 (k means k/255) and "
        "optionally `labels` (N,) of integers. Other fields are metadata strings; with "
        "`vocabulary`, a JSON list, labels are positions in it, -1 for none. Ids of samples are a "
        "tensor `sample_ids` (N,) of integers, or metadata `sample_ids`, a JSON list.",
    }
    content = {
        JSON: {"schema": schema, "example": example},
        SAFETENSORS: {"schema": binary},
    }
    return {"requestBody": {"required": True, "content": content}}


def json_body(asked: type[BaseModel], *, required: bool = True) -> dict[str, Any]:
    """`openapi_extra` of a route whose body is a JSON object."""
    content = {JSON: {"schema": asked.model_json_schema()}}
    return {"requestBody": {"required": required, "content": content}}


def binary_body(description: str, *media_types: str) -> dict[str, Any]:
    """`openapi_extra` of a route whose body is a file."""
    schema = {**BINARY["schema"], "description": description}
    return {
        "requestBody": {
            "required": True,
            "content": {media_type: {"schema": schema} for media_type in media_types},
        }
    }


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """`responses` of a route: the errors it answers with, by status."""
    documented: dict[int | str, dict[str, Any]] = {}
    for status in statuses:
        titles = [row.title for row in PROBLEMS.values() if row.status == status]
        response: dict[str, Any] = {
            "description": "; ".join(dict.fromkeys(titles)),
            "content": {
                PROBLEM_JSON: {"schema": {"$ref": f"#/components/schemas/{PROBLEM_SCHEMA}"}}
            },
        }
        if status in (429, 503):
            response["headers"] = {
                "Retry-After": {
                    "description": "Seconds to wait before asking again.",
                    "schema": {"type": "integer"},
                }
            }
        documented[status] = response
    return documented


def protocol_errors(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """`responses` of a route of the Open Inference Protocol, whose errors have its own form."""
    schema = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
    return {
        status: {**response, "content": {JSON: {"schema": schema}}}
        for status, response in problems(*statuses).items()
    }


def forms(*media_types: str) -> dict[str, Any]:
    """`content` of an answer that also comes in other forms than JSON."""
    return dict.fromkeys(media_types, BINARY)


def install(app: FastAPI) -> None:
    """Give `app` the OpenAPI document of this module's making, and the route that serves it."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _document(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # the documented way

    # The framework's own route names a root without the path of a proxy, which it cannot know.
    @app.get(PATH, include_in_schema=False)
    async def served() -> Response:
        return answers.json({**openapi(), "servers": SERVERS})


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title,
        version=app.version,
        summary=app.summary,
        description=app.description,
        routes=app.routes,
        tags=TAGS,
    )
    names = sorted({row.name for row in (*PROBLEMS.values(), *FRAMEWORK.values())})
    document["components"]["schemas"][PROBLEM_SCHEMA] = {
        "type": "object",
        "title": PROBLEM_SCHEMA,
        "description": "What went wrong (RFC 9457), with the numbers that help as further members.",
        "required": ["type", "title", "status", "detail", "instance"],
        "properties": {
            "type": {
                "type": "string",
                "format": "uri-reference",
                "description": f"`/problems/` and one of: {', '.join(names)}.",
            },
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {
                "type": "string",
                "description": "What happened, what was expected, what to do.",
            },
            "instance": {"type": "string", "format": "uri-reference"},
        },
    }
    return document

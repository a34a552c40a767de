"""/v2: the Open Inference Protocol, by which clients of KServe, Triton and MLServer ask.

Rules of this module:

1. What the model says here is what POST /classify and POST /outliers say of the same samples.
2. Errors have the protocol's form, `{"error": "..."}`, with the statuses of all other routes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from core.errors import InvalidRequest, ModelNotReady
from core.snapshot import Classification, OutlierScores, Snapshot
from service.api import answers
from service.api.admission import check_shape
from service.api.bodies import beside, charge, media_type, read_body, to_tensor
from service.api.errors import Unavailable, UnknownModel, VersionNotServed
from service.api.false_positive_rates import rate_of
from service.api.flags import flag_of
from service.api.negotiation import JSON, OCTETS
from service.api.openapi import BINARY, protocol_errors
from service.api.parts import Parts, parts_of, snapshot_of
from service.api.query import StrictRoute
from service.api.routes.health import reasons_against
from service.api.services import services_of
from service.wire import Limits
from service.wire.inference import (
    InferenceRequest,
    OutputTensor,
    parse_inference,
    write_inference,
)

router = APIRouter(prefix="/v2", tags=["inference"], route_class=StrictRoute)

JSON_LENGTH: Final = "Inference-Header-Content-Length"

INPUT: Final = "features"
OUTPUTS: Final[Mapping[str, str]] = {
    "label": "BYTES",
    "probabilities": "FP32",
    "classes": "BYTES",
    "log_likelihood": "FP64",
    "inlier": "BOOL",
    "p_value": "FP64",
    "unknown": "BOOL",
}
"""Name -> datatype."""

OF_CLASSES: Final = ("label", "probabilities", "classes")
USUAL: Final = (*OF_CLASSES, "log_likelihood", "inlier")
PARAMETERS: Final = ("unknown_rate", "p_values", "binary_data_output")
OF_OTHERS: Final = (
    "content_type",
    "headers",
    "priority",
    "timeout",
    "sequence_id",
    "sequence_start",
    "sequence_end",
)
"""Parameters that clients of other servers add, and that change nothing here."""


class Server(BaseModel):
    """What answers."""

    name: str = Field(examples=["gmr-stream"])
    version: str
    extensions: list[str] = Field(examples=[["binary_tensor_data"]])


class Live(BaseModel):
    """The process is there."""

    live: bool


class Ready(BaseModel):
    """Requests can be sent."""

    ready: bool


class ModelIsReady(BaseModel):
    """The model can be asked."""

    name: str
    ready: bool


class TensorDescription(BaseModel):
    """A tensor of a request or an answer."""

    name: str
    datatype: str
    shape: list[int] = Field(description="-1 where a size is free.")


class ModelDescription(BaseModel):
    """What the model takes and gives."""

    name: str
    versions: list[str] = Field(description="The one that answers; it changes as samples come.")
    platform: str
    inputs: list[TensorDescription]
    outputs: list[TensorDescription]


class Tensor(BaseModel):
    """A tensor with its values."""

    name: str
    datatype: str
    shape: list[int]
    parameters: dict[str, Any] | None = None
    data: list[Any] | None = Field(None, description="Absent where it follows as binary data.")


class Inferred(BaseModel):
    """An answer."""

    model_name: str
    model_version: str
    id: str | None = None
    parameters: dict[str, Any]
    outputs: list[Tensor]


BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            JSON: {
                "schema": {
                    "type": "object",
                    "required": ["inputs"],
                    "additionalProperties": False,
                    "properties": {
                        "id": {"type": "string"},
                        "parameters": {
                            "type": "object",
                            "properties": {
                                "unknown_rate": {"type": "number"},
                                "p_values": {"type": "boolean"},
                                "binary_data_output": {"type": "boolean"},
                            },
                        },
                        "inputs": {
                            "type": "array",
                            "minItems": 1,
                            "maxItems": 1,
                            "items": {"$ref": "#/components/schemas/Tensor"},
                        },
                        "outputs": {
                            "type": "array",
                            "items": {"type": "object", "required": ["name"]},
                        },
                    },
                },
                "example": {
                    "inputs": [
                        {
                            "name": INPUT,
                            "shape": [2, 2],
                            "datatype": "FP32",
                            "data": [0.0, 0.5, 1.0, 0.25],
                        }
                    ]
                },
            },
            OCTETS: {
                "schema": {
                    **BINARY["schema"],
                    "description": "The JSON, of as many bytes as the header "
                    "Inference-Header-Content-Length says, and the tensor's raw bytes behind it.",
                }
            },
        },
    }
}


@router.get("", operation_id="v2_server", summary="What answers", response_model=Server)
async def server(request: Request) -> Response:
    """The server's metadata."""
    version = request.app.version
    extensions = ["binary_tensor_data"]
    return answers.json({"name": "gmr-stream", "version": version, "extensions": extensions})


@router.get("/health/live", operation_id="v2_live", summary="Is it there?", response_model=Live)
async def live() -> Response:
    """Answers as long as the process can answer anything."""
    return answers.json({"live": True})


@router.get(
    "/health/ready",
    operation_id="v2_ready",
    summary="Can requests be sent?",
    response_model=Ready,
    responses=protocol_errors(503),
)
async def ready(request: Request) -> Response:
    """As GET /health/ready."""
    if reasons := await reasons_against(parts_of(request), services_of(request)):
        raise Unavailable(f"{' '.join(reasons)} Expected none of this. See docs/operations.md.")
    return answers.json({"ready": True})


@router.get(
    "/models/{name}",
    operation_id="v2_model",
    summary="What the model takes and gives",
    response_model=ModelDescription,
    responses=protocol_errors(404, 422, 503),
)
async def model(request: Request, name: str) -> Response:
    """Sizes are -1 as long as nothing was learned."""
    return await _description(request, name, None)


@router.get(
    "/models/{name}/versions/{version}",
    operation_id="v2_model_version",
    summary="What a version of the model takes and gives",
    response_model=ModelDescription,
    responses=protocol_errors(404, 409, 422, 503),
)
async def model_version(request: Request, name: str, version: str) -> Response:
    """Only the version that is served answers."""
    return await _description(request, name, version)


@router.get(
    "/models/{name}/ready",
    operation_id="v2_model_ready",
    summary="Can the model be asked?",
    response_model=ModelIsReady,
    responses=protocol_errors(404, 409, 422, 503),
)
async def model_ready(request: Request, name: str) -> Response:
    """Once anything was learned."""
    await _served(await _parts(request, name), None)
    return answers.json({"name": name, "ready": True})


@router.get(
    "/models/{name}/versions/{version}/ready",
    operation_id="v2_model_version_ready",
    summary="Can a version of the model be asked?",
    response_model=ModelIsReady,
    responses=protocol_errors(404, 409, 422, 503),
)
async def model_version_ready(request: Request, name: str, version: str) -> Response:
    """Only the version that is served can."""
    await _served(await _parts(request, name), version)
    return answers.json({"name": name, "ready": True})


_INFER: Final[dict[str, Any]] = {
    "response_model": Inferred,
    "responses": {
        200: {"content": {OCTETS: BINARY}},
        **protocol_errors(404, 409, 413, 415, 422, 503),
    },
    "openapi_extra": BODY,
}


@router.post(
    "/models/{name}/infer",
    operation_id="v2_infer",
    summary="Classify and score samples",
    **_INFER,
)
async def infer(request: Request, name: str) -> Response:
    """Outputs: `label`, `probabilities`, `classes`, `log_likelihood`, `inlier`; by name or by the
    parameters `p_values` and `unknown_rate` also `p_value` and `unknown`."""
    return await _infer(request, name, None)


@router.post(
    "/models/{name}/versions/{version}/infer",
    operation_id="v2_infer_version",
    summary="Classify and score samples by a version",
    **_INFER,
)
async def infer_version(request: Request, name: str, version: str) -> Response:
    """As without a version, and refused where another one is served meanwhile."""
    return await _infer(request, name, version)


async def _infer(request: Request, name: str, version: str | None) -> Response:
    parts = await _parts(request, name)
    length = _json_length(request)
    if length is None and request.headers.get("content-type"):
        media_type(request, (JSON,))
    elif request.headers.get("content-encoding"):
        media_type(request, (JSON, OCTETS))
    body = await read_body(request, parts.settings.max_body_bytes)
    limits = Limits(parts.settings.max_samples, parts.settings.max_features)
    asked = await beside(request, body, lambda: parse_inference(body, length, limits))
    charge(request, "samples", len(asked.batch))
    rate, p_values, binary = _parameters(asked.parameters)
    snapshot = await _served(parts, version)  # the newest, however long the body took to come
    wanted = _wanted(asked, snapshot, rate, p_values)
    check_shape(parts, asked.batch)
    x = to_tensor(asked.batch)
    by_name = p_values or "p_value" in wanted

    by_class = bool(wanted.keys() & {*OF_CLASSES})

    def work(x: torch.Tensor) -> Classification | OutlierScores:
        if by_class:
            return snapshot.classify(x, rate, p_values=by_name)
        return snapshot.outliers(x, None, rate)

    # Questions of POST /classify and POST /outliers with the same parameters are the same.
    question = ("classify", rate, by_name) if by_class else ("outliers", None, rate, False)
    found = await parts.micro_batches.ask(snapshot, x, question, work)
    tensors = _tensors(found, snapshot, rate)
    outputs = []
    for output, choice in wanted.items():
        if output not in tensors:
            if asked.outputs is None:
                continue
            raise ModelNotReady(
                f"The output `{output}` needs p-values, for which too few samples were learned so "
                f"far. Expected some hundreds. Send more, or ask without it."
            )
        outputs.append(
            OutputTensor(output, tensors[output](), binary if choice is None else choice)
        )
    document: dict[str, object] = {
        "model_name": name,
        "model_version": str(snapshot.version),
        **({} if asked.id is None else {"id": asked.id}),
        "parameters": {"score": found.score, "calibration": found.calibration},
    }
    content, json_length = write_inference(document, outputs)
    headers = {answers.VERSION_HEADER: str(snapshot.version)}
    if json_length is not None:
        headers[JSON_LENGTH] = str(json_length)
    return Response(content, 200, headers, JSON if json_length is None else OCTETS)


def _json_length(request: Request) -> int | None:
    text = request.headers.get(JSON_LENGTH)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise InvalidRequest(
            f"The header {JSON_LENGTH} is no number. Expected how many bytes the JSON has."
        )
    return int(text)


def _parameters(parameters: Mapping[str, object]) -> tuple[float | None, bool, bool]:
    """The rate for unknowns, whether p-values are wanted, and whether outputs go binary."""
    if unknown := sorted(parameters.keys() - {*PARAMETERS, *OF_OTHERS}):
        raise InvalidRequest(
            f"The request has a parameter {unknown[0][:40]!r}; expected "
            f"{', '.join(PARAMETERS)}. Correct the name or leave it out."
        )
    rate = rate_of("unknown_rate", parameters.get("unknown_rate"))
    p_values = flag_of("p_values", parameters.get("p_values", False))
    binary = flag_of("binary_data_output", parameters.get("binary_data_output", False))
    return rate, p_values, binary


def _wanted(
    asked: InferenceRequest, snapshot: Snapshot, rate: float | None, p_values: bool
) -> dict[str, bool | None]:
    """Name of each output -> whether it goes binary; None: as all do."""
    if asked.outputs is None:
        names = [name for name in USUAL if snapshot.answers or name not in OF_CLASSES]
        names += ["p_value"] if p_values or rate is not None else []
        names += ["unknown"] if rate is not None else []
        return dict.fromkeys(names)
    for output in asked.outputs:
        if output.name not in OUTPUTS:
            raise InvalidRequest(
                f"There is no output {output.name[:40]!r}; expected some of {', '.join(OUTPUTS)}."
            )
        if output.name == "unknown" and rate is None:
            raise InvalidRequest(
                "The output `unknown` needs the parameter `unknown_rate`: the share of inliers "
                "that may be called unknown, like 0.01."
            )
    return {output.name: output.binary for output in asked.outputs}


def _tensors(
    found: Classification | OutlierScores, snapshot: Snapshot, rate: float | None
) -> dict[str, Callable[[], Any]]:
    """Name of an output -> what makes its values; those that are known."""
    tensors: dict[str, Callable[[], Any]] = {
        "log_likelihood": lambda: answers.numpy(found.log_likelihoods.double()),
        "inlier": lambda: answers.numpy(found.inliers),
    }
    p_values = found.p_values
    if p_values is not None:
        tensors["p_value"] = lambda: answers.numpy(p_values.double())
        if rate is not None:
            tensors["unknown"] = lambda: ~answers.numpy(found.inliers)
    if isinstance(found, Classification):
        classes = [str(label) for label in snapshot.answers]
        codes, unknown = found.codes, found.unknown
        if unknown is not None:
            codes = codes.masked_fill(unknown, -1)
        tensors["label"] = lambda: [
            "" if code < 0 else classes[code] for code in answers.numpy(codes).tolist()
        ]
        tensors["probabilities"] = lambda: answers.numpy(found.probabilities.float())
        tensors["classes"] = lambda: classes
    return tensors


async def _parts(request: Request, name: str) -> Parts:
    """The parts of a model: of the one that the request is for, or of one that is named.

    Raises:
        UnknownModel, ModelLeaving: There is none of this name.
    """
    parts = parts_of(request)
    own = request.scope["state"].get("model", parts.settings.model)
    if name == own:
        return parts
    services = services_of(request)
    if services is None:
        raise UnknownModel.among(name, [own], on_demand=False)
    return await services.parts(name, request.state.caller)


async def _served(parts: Parts, version: str | None) -> Snapshot:
    """The model that answers.

    Raises:
        ModelNotReady: Nothing was learned yet.
        VersionNotServed: Another version is served.
    """
    snapshot = await snapshot_of(parts)
    if version is not None and version != str(snapshot.version):
        raise VersionNotServed.of(version, snapshot.version)
    return snapshot


async def _description(request: Request, name: str, version: str | None) -> Response:
    parts = await _parts(request, name)
    served = parts.follower.current
    snapshot = None if served is None else served.snapshot
    if version is not None:
        snapshot = await _served(parts, version)
    features = -1 if snapshot is None else snapshot.info.features
    classes = len(snapshot.answers) if snapshot is not None and snapshot.answers else -1
    shapes = {"probabilities": [-1, classes], "classes": [classes]}
    document = {
        "name": name,
        "versions": [] if snapshot is None else [str(snapshot.version)],
        "platform": "gmr",
        "inputs": [{"name": INPUT, "datatype": "FP32", "shape": [-1, features]}],
        "outputs": [
            {"name": output, "datatype": datatype, "shape": shapes.get(output, [-1])}
            for output, datatype in OUTPUTS.items()
        ],
    }
    return answers.json(document)

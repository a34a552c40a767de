"""The doors of a server: where a batch is sent, as which bytes, and how the answer is read."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load, save

Samples = NDArray[Any]
Labels = list[int]

BINARY: Final = "binary"
JSON: Final = "JSON"

_BOUNDARY: Final = "gmr-bench-boundary"


@dataclass(frozen=True)
class Door:
    """One way into a server.

    Arguments:
        body: BINARY or JSON.
        path: Where it is.
        content_type: Of what is sent.
        write: Samples, with shape (N, D), as a body.
        read: The positions of the classes in an answer, N of them.
        accept: What is asked for.
    """

    body: str
    path: str
    content_type: str
    write: Callable[[Samples], bytes]
    read: Callable[[bytes], Labels]
    accept: str = "*/*"

    @property
    def headers(self) -> dict[str, str]:
        """Of each request."""
        return {"Content-Type": self.content_type, "Accept": self.accept}


def as_json(path: str) -> Door:
    """`{"features": [[...], ...]}` in, `{"labels": [...], ...}` out.

    Where the answer lists its `classes`, labels are these, else their positions.
    """

    def read(body: bytes) -> Labels:
        answer = json.loads(body)
        classes = {label: position for position, label in enumerate(answer.get("classes", ()))}
        return [classes.get(label, label) for label in answer["labels"]]

    def write(x: Samples) -> bytes:
        return json.dumps({"features": x.tolist()}).encode()

    return Door(JSON, path, "application/json", write, read)


def as_floats(path: str) -> Door:
    """The float32 themselves in, safetensors out."""
    return Door(BINARY, path, "application/octet-stream", _floats, _labels)


def as_form(path: str) -> Door:
    """The float32 as a file of a form in, safetensors out."""
    return Door(BINARY, path, f"multipart/form-data; boundary={_BOUNDARY}", _form, _labels)


def as_safetensors(path: str) -> Door:
    """Safetensors in and out: ours."""
    kind = "application/vnd.safetensors"
    return Door(BINARY, path, kind, lambda x: save({"features": x}), _labels, kind)


def as_open_inference(path: str) -> Door:
    """The Open Inference Protocol in JSON, in and out."""

    def write(x: Samples) -> bytes:
        tensor = {"name": "x", "shape": list(x.shape), "datatype": "FP32"}
        return json.dumps({"inputs": [{**tensor, "data": x.ravel().tolist()}]}).encode()

    def read(body: bytes) -> Labels:
        outputs = {one["name"]: one["data"] for one in json.loads(body)["outputs"]}
        return list(np.ravel(outputs["labels"]).tolist())

    return Door(JSON, path, "application/json", write, read)


def _floats(x: Samples) -> bytes:
    return x.astype(np.float32).tobytes()


def _form(x: Samples) -> bytes:
    out = io.BytesIO()
    out.write(f"--{_BOUNDARY}\r\n".encode())
    out.write(b'Content-Disposition: form-data; name="file"; filename="x.f32"\r\n')
    out.write(b"Content-Type: application/octet-stream\r\n\r\n")
    out.write(_floats(x))
    out.write(f"\r\n--{_BOUNDARY}--\r\n".encode())
    return out.getvalue()


def _labels(body: bytes) -> Labels:
    return list(load(body)["labels"].tolist())

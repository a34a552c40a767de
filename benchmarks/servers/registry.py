"""The servers that are compared, each with its release, its module and its doors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from benchmarks.servers.door import Door, as_floats, as_form, as_json, as_open_inference

COMMON: Final = ("numba", "safetensors", "scikit-learn", "cattrs")
"""What the scorer needs beside torch."""


@dataclass(frozen=True)
class Server:
    """A server that is not ours.

    Arguments:
        name: As the tables say it.
        requirements: What pip is asked for, releases pinned.
        module: Below `benchmarks.servers`, run as a script with `--port`.
        ready: A path that answers 200 once requests are served.
        doors: JSON first.
    """

    name: str
    requirements: tuple[str, ...]
    module: str
    ready: str
    doors: tuple[Door, ...]


SERVERS: Final = (
    Server(
        "FastAPI",
        ("fastapi==0.165.0", "uvicorn[standard]==0.54.0"),
        "plain",
        "/docs",
        (as_json("/classify"), as_floats("/classify_bytes")),
    ),
    Server(
        "LitServe",
        ("litserve==0.2.19", "python-multipart"),
        "lit",
        "/health",
        (as_json("/classify"), as_form("/classify")),
    ),
    Server(
        "MLServer",
        ("mlserver==1.7.1",),
        "ml",
        "/v2/health/ready",
        (as_open_inference("/v2/models/mixture/infer"),),
    ),
    Server(
        "BentoML",
        ("bentoml==1.4.40",),
        "bento",
        "/readyz",
        (as_json("/classify"), as_form("/classify_bytes")),
    ),
)

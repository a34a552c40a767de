"""FastAPI as its documentation teaches it: a pydantic model in, a dictionary out.

Beside it the same by bytes: a body of float32 in, safetensors out.
"""

from __future__ import annotations

import argparse

import numpy as np
import uvicorn
from fastapi import FastAPI, Request, Response
from pydantic import BaseModel
from safetensors.numpy import save

from benchmarks.servers.scorer import Scorer


class Samples(BaseModel):
    """N samples of D features."""

    features: list[list[float]]


def main() -> None:
    """Serve until a signal comes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port
    scorer = Scorer.from_environment()
    app = FastAPI()

    def classify(samples: Samples) -> dict[str, list[object]]:
        return scorer.lists(np.asarray(samples.features, dtype=np.float32))

    async def classify_bytes(request: Request) -> Response:
        body = await request.body()
        x = np.frombuffer(body, dtype=np.float32).reshape(-1, scorer.snapshot.info.features)
        return Response(save(scorer.answer(x.copy())), media_type="application/octet-stream")

    app.post("/classify")(classify)
    app.post("/classify_bytes")(classify_bytes)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main()

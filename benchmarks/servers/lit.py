"""LitServe: one worker process behind its server, JSON in, or a file in a form.

LitServe looks at annotations while it runs, so that they stay objects here.
"""

import argparse
from typing import Any

import litserve
import numpy as np
from fastapi import Request, Response
from numpy.typing import NDArray
from safetensors.numpy import save

from benchmarks.servers.scorer import Scorer


class Mixture(litserve.LitAPI):  # type: ignore[misc]
    """What a user of LitServe writes."""

    scorer: Scorer

    def setup(self, device: str) -> None:
        """Load the model, in the worker."""
        self.scorer = Scorer.from_environment()

    def decode_request(self, request: Request) -> tuple[NDArray[Any], bool]:
        """JSON, or the bytes of a form's file."""
        fields: Any = request
        if "file" in fields:
            body = fields["file"].file.read()
            x = np.frombuffer(body, dtype=np.float32)
            return x.reshape(-1, self.scorer.snapshot.info.features).copy(), True
        return np.asarray(fields["features"], dtype=np.float32), False

    def predict(self, x: tuple[NDArray[Any], bool]) -> Any:
        """Score."""
        samples, as_bytes = x
        return save(self.scorer.answer(samples)) if as_bytes else self.scorer.lists(samples)

    def encode_response(self, output: Any) -> Any:
        """Bytes as they are, all else as JSON."""
        if isinstance(output, bytes):
            return Response(output, media_type="application/octet-stream")
        return output


def main() -> None:
    """Serve until a signal comes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port
    server = litserve.LitServer(Mixture(api_path="/classify"), accelerator="cpu")
    server.run(host="127.0.0.1", port=port, generate_client_file=False, log_level="warning")


if __name__ == "__main__":
    main()

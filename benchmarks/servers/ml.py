"""MLServer: a runtime of one's own behind its Open Inference Protocol, scored in its process."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse

from benchmarks.servers.scorer import Scorer


class Mixture(MLModel):  # type: ignore[misc]
    """What a user of MLServer writes."""

    scorer: Scorer

    async def load(self) -> bool:
        """Load the model."""
        self.scorer = Scorer.from_environment()
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Score the first input."""
        x = NumpyCodec.decode_input(payload.inputs[0])
        answers = self.scorer.answer(x)
        outputs = [NumpyCodec.encode_output(name, values) for name, values in answers.items()]
        return InferenceResponse(model_name=self.name, outputs=outputs)


def main() -> None:
    """Serve until a signal comes: its own command, with the two files that it reads."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "host": "127.0.0.1",
            "http_port": port,
            "grpc_port": port + 1,
            "metrics_port": port + 2,
            # In its own process: a worker would have every request pickled twice.
            "parallel_workers": 0,
            "debug": False,
            "use_structured_logging": False,
        }
        model = {"name": "mixture", "implementation": "benchmarks.servers.ml.Mixture"}
        Path(folder, "settings.json").write_text(json.dumps(settings), encoding="utf-8")
        Path(folder, "model-settings.json").write_text(json.dumps(model), encoding="utf-8")
        command = [str(Path(sys.executable).with_name("mlserver")), "start", folder]
        sys.exit(subprocess.call(command))


if __name__ == "__main__":
    main()

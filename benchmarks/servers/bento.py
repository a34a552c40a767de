"""BentoML: a service whose types say what comes in and goes out; by bytes as a file in a form.

BentoML looks at annotations while it runs, so that they stay objects here.
"""

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

import bentoml
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from benchmarks.servers.scorer import Scorer


@bentoml.service(workers=1)
class Mixture:
    """What a user of BentoML writes."""

    def __init__(self) -> None:
        self.scorer = Scorer.from_environment()

    @bentoml.api  # type: ignore[untyped-decorator]
    def classify(self, features: NDArray[np.float32]) -> dict[str, Any]:
        """Score JSON."""
        return self.scorer.lists(features)

    @bentoml.api  # type: ignore[untyped-decorator]
    def classify_bytes(self, file: Path, ctx: bentoml.Context) -> bytes:
        """Score the float32 of a file."""
        x = np.fromfile(file, dtype=np.float32)
        return save(self.scorer.answer(x.reshape(-1, self.scorer.snapshot.info.features)))


def main() -> None:
    """Serve until a signal comes: its own command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    port = parser.parse_args().port
    command = [str(Path(sys.executable).with_name("bentoml")), "serve"]
    command += ["benchmarks.servers.bento:Mixture", "--host", "127.0.0.1", "--port", str(port)]
    sys.exit(subprocess.call(command))


if __name__ == "__main__":
    main()

"""An engine and where it stands in its stream, as one object that can be copied and kept.

Rules of this module:

1. Asking changes nothing of what is learned next. Where answers are to be those of a quiet stream,
   what waits in windows, or is set aside because it looks like a change, is learned for the answer
   alone.
2. A copy holds plain values and the bytes of a checkpoint, which are numbers
   and text with a checksum: reading them runs no code.
"""

from __future__ import annotations

import torch

from core.batch import Batch
from core.config import EngineConfig
from core.engine import checkpoint
from core.engine.engine import Engine
from core.events import Event
from core.snapshot import Snapshot


class OnlineModel:
    """Learns batches in order; answers as the model stands.

    Arguments:
        config: Settings of the engine.
        device: Where it computes.
        quiet: Whether the stream is taken to pause when it is asked. Answers then know of every
            sample, and take longer where questions and batches alternate. Otherwise they are
            those of the model as it stands, once there is one.
    """

    def __init__(
        self, config: EngineConfig, device: torch.device | str = "cpu", *, quiet: bool
    ) -> None:
        self.quiet = quiet
        self.engine = Engine(config, device)
        self.state = self.engine.start()
        self._snapshot: Snapshot | None = None

    def learn(self, batch: Batch) -> list[Event]:
        """Take the next batch; what happened, in order.

        Raises:
            InvalidBatch: It cannot be used, and nothing has changed.
        """
        self.state, events = self.engine.step(self.state, batch)
        self._snapshot = None
        return events

    @property
    def snapshot(self) -> Snapshot:
        """The model that answers; made when it is first asked for after a batch.

        Raises:
            ModelNotReady: Nothing has been learned.
        """
        if self._snapshot is None:
            state = self.state
            if self.quiet or not self._has_model:
                state, _ = self.engine.settle(state)
            self._snapshot = self.engine.snapshot(state)
        return self._snapshot

    @property
    def _has_model(self) -> bool:
        learner = self.state.model.learner
        return learner is not None and self.engine.learner.model(learner) is not None

    def __getstate__(self) -> dict[str, object]:
        data = checkpoint.dump(self.state, self.engine.config, {})
        return {"device": str(self.engine.device), "quiet": self.quiet, "checkpoint": data}

    def __setstate__(self, kept: dict[str, object]) -> None:
        device, quiet, data = kept["device"], kept["quiet"], kept["checkpoint"]
        assert isinstance(device, str)
        assert isinstance(quiet, bool)
        assert isinstance(data, bytes)
        self.quiet = quiet
        self.state, config, _ = checkpoint.load(data, device)
        self.engine = Engine(config, device)
        self._snapshot = None

"""An engine and where it stands in its stream, as one object that can be copied and kept.

Rules of this module:

1. Asking changes nothing of what is learned next. Where answers are to be those of a quiet stream,
   what waits in windows, or is set aside because it looks like a change, is learned for the answer
   alone.
2. A copy holds plain values and the bytes of a checkpoint, which are numbers
   and text with a checksum: reading them runs no code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray

from core.batch import Batch, Label
from core.config import EngineConfig
from core.engine import checkpoint
from core.engine.engine import Engine
from core.errors import InvalidSettings
from core.events import BoundaryDetected, Event
from core.snapshot import Snapshot
from gmr.threads import few_threads

SEEDS: Final = 2**31 - 1
"""Seeds of the engine are drawn below this."""


def seed_of(random: np.random.RandomState) -> int:
    """The next seed of an engine."""
    return int(random.randint(SEEDS))


def device_of(name: torch.device | str) -> torch.device:
    """A device that is there.

    Raises:
        InvalidSettings: It is not, or torch knows none of this name.

    Example:
        >>> device_of("cpu")
        device(type='cpu')
    """
    try:
        device = torch.device(name)
        torch.zeros(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        raise InvalidSettings(
            f"device is {name!r}, which cannot be used here ({str(error).splitlines()[0]}). Choose "
            f"'cpu', or 'cuda' where torch.cuda.is_available() is true."
        ) from error
    return device


class OnlineModel:
    """Learns batches in order; answers as the model stands.

    Arguments:
        config: Settings of the engine.
        device: Where it computes; it must be there.
        quiet: Whether the stream is taken to pause when it is asked. Answers then know of every
            sample, and take longer where questions and batches alternate. Otherwise they are
            those of the model as it stands, once there is one.
    """

    def __init__(
        self, config: EngineConfig, device: torch.device | str = "cpu", *, quiet: bool
    ) -> None:
        self.quiet = quiet
        self.engine = Engine(config, device_of(device))
        self.state = self.engine.start()
        self._snapshot: Snapshot | None = None

    def learn(self, batch: Batch) -> list[Event]:
        """Take the next batch; what happened, in order.

        Raises:
            InvalidBatch: It cannot be used, and nothing has changed.
        """
        with few_threads(batch.features.shape[1]):
            self.state, events = self.engine.step(self.state, batch)
        self._snapshot = None
        return events

    def learn_all(
        self,
        x: NDArray[np.float32],
        labels: Sequence[Label | None] | None,
        batch_size: int,
        *,
        images: bool,
    ) -> list[int]:
        """Take the next samples of the stream, in batches.

        Arguments:
            x: Samples, with shape (N, D).
            labels: Of each, or None; None where none has one.
            batch_size: Samples learned at a time.
            images: Whether they are images.

        Returns:
            Places in the stream at which sub-tasks have begun, as far as that was found now.
        """
        starts = []
        for start in range(0, len(x), batch_size):
            rows = slice(start, start + batch_size)
            named = None if labels is None else list(labels[rows])
            events = self.learn(Batch.of(torch.from_numpy(x[rows]), named, images=images))
            found = [event for event in events if isinstance(event, BoundaryDetected)]
            starts += [event.estimated_start_sample for event in found]
        return starts

    @property
    def snapshot(self) -> Snapshot:
        """The model that answers; made when it is first asked for after a batch.

        Raises:
            ModelNotReady: Nothing has been learned.
        """
        if self._snapshot is None:
            state = self.state
            with few_threads(state.n_features or 0):
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
        device_of(device)  # that of another machine may not be here
        assert isinstance(quiet, bool)
        assert isinstance(data, bytes)
        self.quiet = quiet
        self.state, config, _ = checkpoint.load(data, device)
        self.engine = Engine(config, device)
        self._snapshot = None

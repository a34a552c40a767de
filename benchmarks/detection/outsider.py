"""A detector that knows no model: Frouros' maximum mean discrepancy (MMD) on raw features.

Frouros has no streaming multivariate detector that says when to raise an alarm, only the
distance, and its streaming MMD computes that anew for every sample: 7 ms at 200 against 50
samples of 784 features, 36 ms at 500 against 100. So the same MMD (Gretton et al. 2012) is
taken here window by window. Reference and threshold come from the samples after each start,
as for every other detector, and nothing of the future.

Rule: it sees features and nothing else; it costs what it costs, and that is reported.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from benchmarks.detection.record import Record
from benchmarks.detection.stream import DriftStream
from clients.http.errors import InputError

MMD = "mmd"


@dataclass(frozen=True)
class Discrepancy:
    """MMD of windows against a reference, with a Gaussian kernel as wide as the median distance.

    Arguments:
        ert: Samples between false alarms that are asked for.
        warm_up: Samples after a start that are ignored.
        reference: Samples after these that windows are compared with.
        calibration: Samples after these that the threshold is taken from.
        window: Samples compared at a time.
        draws: Windows drawn from the calibration samples.
        seed: Of these draws.
    """

    ert: float = 50_000.0
    warm_up: int = 0
    reference: int = 400
    calibration: int = 600
    window: int = 100
    draws: int = 60
    seed: int = 0

    @property
    def needed(self) -> int:
        """Samples after a start before it can speak."""
        return self.warm_up + self.reference + self.calibration

    def watch(self, stream: DriftStream, batch_size: int) -> Record:
        """What it says of a stream; after an alarm it starts anew."""
        alarms: list[int] = []
        held: list[NDArray[np.float32]] = []
        monitor: _Monitor | None = None
        seen = batches = armed = 0
        seconds = 0.0
        for x, _ in stream.batches(batch_size):
            begun = time.thread_time()
            seen, batches = seen + len(x), batches + 1
            held.append(x)
            if monitor is None and sum(map(len, held)) >= self.needed:
                known = np.concatenate(held)
                monitor, held = _Monitor.fitted(self, known), [known[self.needed :]]
            if monitor is not None:
                armed += len(x)
                waiting = np.concatenate(held)
                whole = len(waiting) // self.window * self.window
                windows = [waiting[i : i + self.window] for i in range(0, whole, self.window)]
                held = [waiting[whole:]]
                if any(monitor.speaks(window) for window in windows):
                    alarms.append(seen)
                    monitor, held = None, []
            seconds += time.thread_time() - begun
        return Record(
            alarms={MMD: alarms},
            events=[],
            batches=batches,
            samples=seen,
            armed_samples=armed,
            set_aside_samples=0,
            prequential=None,
            accuracy=None,
            seconds=seconds,
        )


class _Monitor:
    """A fitted MMD and its threshold."""

    def __init__(self, reference: NDArray[np.float64], width: float) -> None:
        try:
            from frouros.detectors.data_drift import MMD as Library
            from frouros.utils.kernels import rbf_kernel
        except ImportError as error:
            raise InputError(
                "The detector mmd is Frouros', which is not installed. Install it with "
                "pip install 'gmr-stream[bench]', or leave mmd out."
            ) from error
        self._mmd = Library(kernel=partial(rbf_kernel, sigma=width))
        self._mmd.fit(X=reference)
        self.threshold = np.inf

    @classmethod
    def fitted(cls, settings: Discrepancy, known: NDArray[np.float32]) -> _Monitor:
        """From the samples since the start, with shape (N, D), N at least `needed`."""
        rng = np.random.default_rng(settings.seed)
        whole: NDArray[np.float64] = known[settings.warm_up : settings.needed].astype(np.float64)
        reference, rest = whole[: settings.reference], whole[settings.reference :]
        pair = rng.permutation(reference)
        half = len(pair) // 2
        apart = np.linalg.norm(pair[:half] - pair[half : 2 * half], axis=1)
        monitor = cls(reference, max(float(np.median(apart)), 1e-6))
        drawn = [
            monitor.distance(rest[rng.choice(len(rest), settings.window, False)])
            for _ in range(settings.draws)
        ]
        rarity = 1 - min(0.5, settings.window / settings.ert)
        # Windows drawn from the same few samples vary less than fresh ones do.
        spread = float(np.std(drawn)) / np.sqrt(1 - settings.window / settings.calibration)
        monitor.threshold = float(np.mean(drawn)) + NormalDist().inv_cdf(rarity) * spread
        return monitor

    def distance(self, window: NDArray[np.float64]) -> float:
        """Squared MMD, unbiased, of a window (W, D)."""
        return float(self._mmd.compare(X=window)[0].distance)

    def speaks(self, window: NDArray[np.float32]) -> bool:
        """Whether a window is too far from the reference."""
        return self.distance(window.astype(np.float64)) > self.threshold

"""A table as a stream of sub-tasks: twelve sensors of a pump, each on a scale of its own."""

from __future__ import annotations

import httpx2
import numpy as np

from service.wire import RawBatch
from tests.service.api.stack import learned, send

BATCH = 100

SENSORS = {
    "bearing_temp [°C]": (65.0, 2.5),
    "oil_temp [°C]": (48.0, 1.5),
    "vibration [mm/s]": (1.9, 0.6),
    "motor_current [A]": (120.0, 12.0),
    "flow [m³/h]": (240.0, 10.0),
    "p_in [bar]": (2.1, 0.08),
    "p_out [bar]": (8.4, 0.35),
    "speed [rpm]": (1480.0, 3.0),
    "level [m]": (3.2, 0.25),
    "acoustic [mV]": (60.0, 20.0),
    "humidity [%]": (45.0, 7.0),
    "power [kW]": (66.0, 6.0),
}
"""Usual mean and deviation of each."""

NAMES = tuple(SENSORS)
LONG = "w" * 100
CALM, STRANGE = "ok", LONG
"""Classes: usual samples; and those with little pressure at the inlet, whose name is one word."""


class Sensors:
    """Batches of readings, sent one after the other."""

    def __init__(self, seed: int = 0) -> None:
        self._random = np.random.default_rng(seed)

    def batch(
        self, n: int = BATCH, *, labelled: bool = True, unknown: float = 0.0, **shifts: float
    ) -> RawBatch:
        """Some readings.

        Arguments:
            unknown: Share of those that shake, which have no label.
            shifts: By how many deviations sensors lie elsewhere, by the first word of their names.
        """
        mean, deviation = np.array(list(SENSORS.values())).T
        x = self._random.normal(size=(n, len(NAMES)))
        strange, shakes = self._random.random(n) < 0.2, self._random.random(n) < unknown
        x[strange, NAMES.index("p_in [bar]")] -= 6
        x[shakes, NAMES.index("vibration [mm/s]")] += 8
        for word, shift in shifts.items():
            x[:, next(i for i, name in enumerate(NAMES) if name.startswith(word))] += shift
        labels = [
            None if shaking or not labelled else STRANGE if odd else CALM
            for odd, shaking in zip(strange, shakes, strict=True)
        ]
        return RawBatch.of((mean + deviation * x).astype("f4"), labels)

    def send(
        self, client: httpx2.Client, samples: int, unknown: float = 0, **shifts: float
    ) -> None:
        """Send a stretch of the stream, and wait until it is learned."""
        for _ in range(samples // BATCH):
            send(client, self.batch(unknown=unknown, **shifts)).raise_for_status()
        learned(client)

"""What a run time between false alarms, asked for as a time, is in samples.

The detector counts samples, so that reading a stream again gives the same alarms. A time
becomes samples by the rate at which they have come in so far, idle hours included, and the
trainer tells the engine by an entry of the stream whenever that has changed much.
"""

from __future__ import annotations

from typing import Final

MUCH: Final = 1.25
"""Factor between what is asked and what is in force from which on the engine is told."""

SETTLED_S: Final = 30.0
"""Seconds that the rate is watched before it is believed."""

FEWEST_SAMPLES: Final = 2.0
MOST_SAMPLES: Final = 1e16


class RunTimeTarget:
    """Watches the rate of samples.

    Arguments:
        seconds: Run time between false alarms, asked for.
        samples: Of the stream so far.
        moment: Now, in seconds of a steady clock.
    """

    def __init__(self, seconds: float, samples: int, moment: float) -> None:
        self._seconds = seconds
        self._samples = samples
        self._began = moment

    def due(self, ert: float | None, samples: int, moment: float) -> int | None:
        """Samples that the engine should aim at from now on; None while it does.

        Arguments:
            ert: What it aims at; None where it has not been told yet.
            samples: Of the stream so far.
            moment: Now.

        Example:
            >>> aim = RunTimeTarget(3600, samples=0, moment=0)
            >>> aim.due(None, samples=100, moment=10), aim.due(None, samples=6000, moment=60)
            (None, 360000)
            >>> aim.due(360000, samples=12500, moment=120)
        """
        elapsed = moment - self._began
        if elapsed < SETTLED_S or samples <= self._samples:
            return None
        wanted = self._seconds * (samples - self._samples) / elapsed
        wanted = min(max(FEWEST_SAMPLES, wanted), MOST_SAMPLES)
        if ert is not None and ert / MUCH <= wanted <= ert * MUCH:
            return None
        return round(wanted)

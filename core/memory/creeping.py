"""Features that have crept far enough to be told: each once, while a sub-task goes on.

A report may show a feature that drifts whenever somebody looks (`core.memory.feature_drift`). An
event is for those who do not look, so it must come once, and seldom by chance: the stream is
looked at every thousand samples, and a feature is told when it drifts at two looks in a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

LOOK_EVERY: Final = 1000
"""Samples between two looks: as many as a window has, at least."""


@dataclass(frozen=True)
class Creeping:
    """What was seen of features that creep, since the sub-task began.

    Arguments:
        looked_at: Samples of the sub-task by the last look.
        suspected: Features that drifted then, in order.
        told: Features that were told to drift.
    """

    looked_at: int = 0
    suspected: tuple[int, ...] = ()
    told: tuple[int, ...] = ()

    def is_due(self, samples: int) -> bool:
        """Whether it is time to look.

        Arguments:
            samples: Of the sub-task by now.
        """
        return samples - self.looked_at >= LOOK_EVERY

    def looked(self, samples: int, drifting: Sequence[int]) -> tuple[Creeping, tuple[int, ...]]:
        """What is known after a look, and the features that are to be told.

        Arguments:
            samples: Of the sub-task by now.
            drifting: Features that drift at this look, in order.

        Example:
            >>> creeping, news = Creeping().looked(1000, [2, 5])
            >>> news, creeping.looked(2000, [2, 3])[1]
            ((), (2,))
        """
        before = frozenset(self.suspected) - frozenset(self.told)
        news = tuple(feature for feature in drifting if feature in before)
        return Creeping(samples, tuple(drifting), (*self.told, *news)), news

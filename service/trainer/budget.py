"""What models that share a process may spend on the same chore while others wait to learn."""

from __future__ import annotations

from typing import Final

SHARE: Final = 0.1
"""Of the time, for one chore of all models together."""


class Budget:
    """How far apart the rounds of a chore are, so that those of all models take their share.

    Arguments:
        share: Of the time, in (0, 1].

    Example:
        >>> budget = Budget(share=0.1)
        >>> budget.took("one", 0.02), budget.took("two", 0.03)
        (None, None)
        >>> budget.interval_s
        0.5
    """

    def __init__(self, share: float = SHARE) -> None:
        self._share = share
        self._took: dict[str, float] = {}  # by model, its last round
        self._all = 0.0

    @property
    def interval_s(self) -> float:
        """Seconds between two rounds of a model, at least."""
        return self._all / self._share

    def took(self, model: str, seconds: float) -> None:
        """How long the newest round of a model was."""
        self._took[model] = seconds
        self._all = sum(self._took.values())

    def left(self, model: str) -> None:
        """A model is let go."""
        self._took.pop(model, None)
        self._all = sum(self._took.values())

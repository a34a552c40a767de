"""Listeners to the progress of an evaluation."""

from __future__ import annotations

from typing import Protocol

from clients.data.tasks import SubTask
from clients.evaluation.results import Milestone


class ProgressListener(Protocol):
    """Is told how a run goes on; a progress display, say."""

    def starting(self, seed: int) -> None:
        """A private service is being started."""

    def warned(self, message: str) -> None:
        """Before anything is sent: what will not be found, and what to do."""

    def began(self, seed: int, sub_task: SubTask) -> None:
        """A sub-task is about to be streamed."""

    def sent(self, samples: int) -> None:
        """A batch was accepted."""

    def saw(self, inlier_rate: float, boundaries: int) -> None:
        """The latest known inlier rate, and how many boundaries were reported so far."""

    def measured(self, milestone: Milestone) -> None:
        """A sub-task was learned and tested."""


class Silent:
    """A listener that shows nothing."""

    def starting(self, seed: int) -> None:
        """Nothing."""

    def warned(self, message: str) -> None:
        """Nothing."""

    def began(self, seed: int, sub_task: SubTask) -> None:
        """Nothing."""

    def sent(self, samples: int) -> None:
        """Nothing."""

    def saw(self, inlier_rate: float, boundaries: int) -> None:
        """Nothing."""

    def measured(self, milestone: Milestone) -> None:
        """Nothing."""

"""What a demo hears of its service on GET /events, as a part of its story."""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from clients.commands.screen import CHANGE, Found, Screen, Story
from clients.evaluation.scores import BoundaryScore, Position, match_boundaries
from clients.http.answers import ServiceEvent
from clients.http.client import GMRClient
from clients.http.errors import ClientError

BATCH_SIZE = 100
TOLERANCE_SAMPLES = 1000
EVENTS_S = 20.0


@dataclass
class Heard:
    """What the service said of the stream."""

    rates: dict[int, float] = field(default_factory=dict)  # batch -> inlier rate
    set_aside: set[int] = field(default_factory=set)
    found: list[Position] = field(default_factory=list)
    score: BoundaryScore = field(default_factory=lambda: BoundaryScore((), (), ()))
    batches: int = 0


class Listener(threading.Thread):
    """Follows GET /events and turns each event into a part of the story."""

    def __init__(
        self,
        url: str,
        heard: Heard,
        changes: list[Position],
        story: Story,
        screen: Screen,
    ) -> None:
        # A daemon: the feed has no end, and nothing is lost when the process goes.
        super().__init__(name="events", daemon=True)
        self._url, self._heard, self._changes = url, heard, changes
        self._story, self._screen = story, screen
        self._heard.score = match_boundaries([], changes, TOLERANCE_SAMPLES)
        self._progress = threading.Condition()
        self._failure: ClientError | None = None

    def run(self) -> None:
        """Until the process ends, or the service does."""
        try:
            with GMRClient(self._url) as client:
                for event in client.events("0"):
                    with self._progress:
                        self._hear(event)
                        self._progress.notify_all()
        except ClientError as error:
            with self._progress:
                self._failure = error
                self._progress.notify_all()

    def wait_for_batches(self, n: int) -> None:
        """Wait until every one of `n` batches was heard of; raise what broke the feed."""
        with self._progress:
            complete = self._progress.wait_for(
                lambda: self._failure is not None or self._heard.batches >= n, EVENTS_S
            )
            if self._failure is not None:
                raise self._failure
            if not complete:
                raise ClientError(
                    f"The service reported {self._heard.batches} of {n} batches on GET /events "
                    f"within {EVENTS_S:.0f} s of the last one being learned; expected all. "
                    f"Look at its log."
                )

    def _hear(self, event: ServiceEvent) -> None:
        data = event.data
        match event.kind:
            case "batch_learned" | "batch_set_aside":
                self._hear_batch(event.kind, data)
            case "boundary":
                self._hear_boundary(data)
            case "replay" if data["reason"] == "boundary":
                self._screen.say(
                    f"replay: {data['components_after']} components stand for "
                    f"{data['samples']:,.0f} earlier samples"
                )
            case "entry_rejected":
                self._screen.say(f"an entry was rejected: {data['detail']}", "bold red")

    def _hear_batch(self, kind: str, data: Mapping[str, Any]) -> None:
        heard, batch = self._heard, int(data["batch_index"])
        heard.batches = max(heard.batches, batch + 1)
        if data["inlier_rate"] is not None:
            heard.rates[batch] = self._story.rates[batch] = float(data["inlier_rate"])
        if kind == "batch_set_aside":
            heard.set_aside.add(batch)

    def _hear_boundary(self, data: Mapping[str, Any]) -> None:
        heard = self._heard
        batch, evidence = int(data["batch_index"]), data["evidence"]
        position = Position(batch + 1, int(data["sample_index"]) + BATCH_SIZE)
        heard.found.append(position)
        heard.score = match_boundaries(heard.found, self._changes, TOLERANCE_SAMPLES)
        delay = next(
            (match.delay_batches for match in heard.score.matches if match.found == position), None
        )
        found = Found(
            batch=batch,
            before=float(evidence.get("inlier_rate_mean", math.nan)),
            after=float(evidence.get("inlier_rate", math.nan)),
            delay_batches=delay,
        )
        self._story.found.append(found)
        verdict = (
            "but nothing had changed: a false alarm"
            if delay is None
            else f"found {delay} batch{'es' if delay > 1 else ''} after the change"
        )
        self._screen.say(
            f"boundary {data['boundary']}: sub-task {data['sub_task']} begins (inlier rate "
            f"{found.before:.2f} -> {found.after:.2f}), {verdict}",
            CHANGE,
        )

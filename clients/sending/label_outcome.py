"""The outcome of labels, as the events of the service tell it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import cast

from clients.http.answers import Labelled, ServiceEvent
from clients.http.async_client import AsyncGMRClient
from clients.http.retry import RetryPolicy
from clients.sending.samples import position

_MATCHED, _REJECTED, _MISSED = "labels_matched", "entry_rejected", "missed"


@dataclass
class Outcome:
    """Counts of labels; grows while it is told of answers and events.

    Attributes:
        matched: Labels that met their sample.
        waiting: Labels whose sample has not come yet.
        unmatched: Labels that met none, by reason.
        refused: Labels of requests that the model could not use.
        reason: Why the last of these could not be used.
        untold: Labels whose events are kept no more, or did not come in time.
        accuracy: Running mean of the prequential accuracy afterwards, 0 to 1, if known.
        awaiting: Samples that still await a label afterwards, if known.
    """

    matched: int = 0
    waiting: int = 0
    unmatched: Counter[str] = field(default_factory=Counter)
    refused: int = 0
    reason: str = ""
    untold: int = 0
    accuracy: float | None = None
    awaiting: int | None = None
    _pending: dict[str, int] = field(default_factory=dict)

    @property
    def n_pending(self) -> int:
        """Requests whose events have yet to be read."""
        return len(self._pending)

    def expect(self, answer: Labelled) -> None:
        """A request was acknowledged."""
        if answer.rejected is not None:
            self.refused += answer.labels
            self.reason = f"{answer.rejected}."
            return
        self._pending[answer.entry_id] = answer.labels

    def told(self, event: ServiceEvent) -> None:
        """An event came, in the order of the stream."""
        data = event.data
        if event.kind == _MISSED:
            self._give_up(position(str(data.get("oldest", "0-0")))[0], -1)
            return
        entry = str(data["entry_id"])
        # Events come in the order of their entries: those of earlier ones are kept no more.
        self._give_up(*position(entry))
        labels = self._pending.pop(entry, None)
        if labels is None:
            return
        if event.kind == _REJECTED:
            self.refused += labels
            self.reason = str(data["detail"])
            return
        self.matched += data["matched"]
        self.waiting += data["kept"]
        self.unmatched.update(data["unmatched"])
        self.accuracy = data["prequential_accuracy_mean"]
        self.awaiting = data["awaiting"]

    def close(self) -> None:
        """No more will be told."""
        self.untold += sum(self._pending.values())
        self._pending.clear()

    def before_all(self) -> str:
        """Id of an event, from which on all those that are expected come."""
        return f"{min(position(entry)[0] for entry in self._pending) - 1}-0"

    def _give_up(self, *place: int) -> None:
        for entry in [entry for entry in self._pending if position(entry) < place]:
            self.untold += self._pending.pop(entry)


def follow(url: str, outcome: Outcome, policy: RetryPolicy, patience_s: float) -> None:
    """Read events until everything that `outcome` expects was told.

    Arguments:
        url: Where the service listens.
        outcome: Is told.
        policy: How long the service may be away.
        patience_s: Seconds without any of these events after which it is left at that.

    Raises:
        ClientError: the service was away for too long.
    """
    if outcome.n_pending:
        asyncio.run(_follow(url, outcome, policy, patience_s))


async def _follow(url: str, outcome: Outcome, policy: RetryPolicy, patience_s: float) -> None:
    async with AsyncGMRClient(url, retry=policy) as client:
        feed = client.events(outcome.before_all(), kinds=(_MATCHED, _REJECTED))
        async with aclosing(cast("AsyncGenerator[ServiceEvent]", feed)) as events:
            while outcome.n_pending:
                try:
                    event = await asyncio.wait_for(anext(events), patience_s)
                except TimeoutError:
                    outcome.close()
                    return
                outcome.told(event)

"""What a writer looks after besides learning: reports, what is served, what is kept, what is asked.

Rules of this module:

1. It changes no model. What time alone brings on becomes an entry of the stream (`own_entries`).
2. Rounds are kept apart by the pace, except where somebody waits for what was learned last.
"""

from __future__ import annotations

import logging
import time

from core.errors import GMRError, InvalidCheckpoint, UnknownVersion
from service.archive.writer import Archive
from service.broker.feed import Feed
from service.broker.fenced import LeaseLost
from service.broker.records import Refusal
from service.settings import Settings
from service.store.kept import StoreUnavailable
from service.trainer.checkpoint_schedule import CheckpointSchedule
from service.trainer.gatekeeper import Gatekeeper
from service.trainer.heartbeat import Pulse
from service.trainer.own_entries import OwnEntries
from service.trainer.pace import NEVER, Pace
from service.trainer.publish_schedule import PublishSchedule
from service.trainer.reporter import Reporter
from service.trainer.saver import Checkpoint, Saver
from service.trainer.standing import Standing

logger = logging.getLogger(__name__)


class Housekeeping:
    """Looks after one model.

    Arguments:
        settings: Of the model.
        pace: How often.
        pulse: Which knows whether another trainer has taken over.
        own_entries: Appends what time has brought on.
        gatekeeper: Says what may be served and kept.
        publishing: When a model is published.
        checkpoints: When it is written down.
        feed: By which readers ask.
        saver: Makes the bytes of what they ask for.
        archive: Whose errors are told; None without one.
        reporter: Tells how the model stands.
    """

    def __init__(
        self,
        settings: Settings,
        pace: Pace,
        pulse: Pulse,
        own_entries: OwnEntries,
        gatekeeper: Gatekeeper,
        publishing: PublishSchedule,
        checkpoints: CheckpointSchedule,
        feed: Feed,
        saver: Saver,
        archive: Archive | None,
        reporter: Reporter,
    ) -> None:
        self._model, self._ledger_length = settings.model, settings.ledger_length
        self._pace = pace
        self._pulse = pulse
        self._own_entries = own_entries
        self._gatekeeper = gatekeeper
        self._publishing = publishing
        self._checkpoints = checkpoints
        self._feed = feed
        self._saver = saver
        self._archive = archive
        self._reporter = reporter
        self._rung = True  # something may have been wanted before
        self._looked_at = NEVER

    def ring(self) -> None:
        """Say that readers want something."""
        self._rung = True

    def is_time_to_publish(self, now: Standing, *, quiet: bool) -> bool:
        """Whether the model should be published as it stands.

        Arguments:
            now: Where it stands.
            quiet: Whether the stream is.
        """
        good, instead = self._gatekeeper.good(now), self._gatekeeper.instead
        return self._publishing.is_due(good, quiet=quiet, instead=instead)

    def look(
        self, now: Standing, *, quiet: bool, stopping: bool, at_once: bool, crowded: bool
    ) -> Standing:
        """Report, publish, write down: whatever is due.

        Arguments:
            now: Where the model stands.
            quiet: Whether the stream is.
            stopping: Whether the end has begun, at which nothing new is brought on.
            at_once: Whether the pace does not count.
            crowded: Whether entries of any model wait.

        Returns:
            The same without what need not be remembered any more.

        Raises:
            LeaseLost: Another trainer has taken over.
        """
        if self._pulse.lost:
            raise LeaseLost(
                "Another trainer works on this model now; this one was away for too long. "
                "Expected one at a time; it stops, and changes nothing more."
            )
        moment, house = time.monotonic(), self._pace.house
        since = moment - self._looked_at
        if crowded and not self._rung and house is not None and since < house.interval_s:
            return now
        if not at_once and since < self._pace.house_s:
            return now
        self._looked_at = moment
        if self._checkpoints.let_go():
            self._reporter.versions()
        if not stopping:
            self._bring_on(now)
        publish = self.is_time_to_publish(now, quiet=quiet)
        self._reporter.proposals(now.state)
        now = self._reported(now, at_once=at_once or publish)
        if publish:
            good, instead = self._gatekeeper.good(now), self._gatekeeper.instead
            self._publishing.publish(good, quiet=quiet, instead=instead)
        self._checkpoints.save_if_due(self._gatekeeper.good(now), crowded=crowded)
        self._answer_requests(now)
        if house is not None:
            house.took(self._model, time.monotonic() - moment)
        return now

    def _bring_on(self, now: Standing) -> None:
        """Append what time has brought on."""
        self._own_entries.aim(now.state)
        self._own_entries.expire(now.state)
        self._own_entries.roll_back(now.gate)
        if self._gatekeeper.wants_check(now.state) and not self._publishing.is_recent:
            self._own_entries.check()

    def _reported(self, now: Standing, *, at_once: bool) -> Standing:
        if not (at_once or self._reporter.is_due(now.position)):
            return now
        now = now.pruned(self._ledger_length)
        self._reporter.report(
            now,
            self._publishing.error,
            at_once=at_once,
            archive_error=None if self._archive is None else self._archive.error,
        )
        return now

    def _answer_requests(self, now: Standing) -> None:
        if not (self._pace.asks or self._rung):
            return
        self._rung = False
        for request in self._feed.requests.new():
            what, _, rest = request.partition(" ")
            request_id, _, version = rest.partition(" ")
            if what == "checkpoint" and request_id and not version:
                checkpoint = self._checkpoints.checkpoint(now)
                self._feed.requests.answer(request_id, self._to_send(checkpoint))
            elif what == "checkpoint" and request_id and version.isdecimal():
                self._answer_with(request_id, int(version))
            else:
                logger.warning("unknown request %r", request[:80])

    def _to_send(self, checkpoint: Checkpoint) -> bytes:
        """A state with what people call its features."""
        names = self._feed.feature_names.kept(checkpoint.state.n_features)
        return self._saver.dump(checkpoint, names)

    def _answer_with(self, request_id: str, version: int) -> None:
        """Send a reader the state of a kept version, or why there is none."""
        try:
            data = self._to_send(self._saver.find(version))
        except StoreUnavailable as error:
            detail = f"Version {version} cannot be read for the moment: {error}. Ask again."
            self._feed.requests.refuse(request_id, Refusal(detail, None))
        except (UnknownVersion, InvalidCheckpoint, OSError) as error:
            others = {one["version"] for one in self._saver.versions()} - {version}
            told = str(error)
            detail = told if isinstance(error, GMRError) else f"{told}. Choose another version."
            refusal = Refusal(detail, sorted(others, reverse=True))
            self._feed.requests.refuse(request_id, refusal)
        else:
            self._feed.requests.answer(request_id, data)

"""What the trainer tells the world: events as records, and its own state as a status.

`Journal.write` is the only way out for events: it stamps each with the entry that
caused it, sorts it into the streams where readers look, counts it, and passes it to
the metrics. What must outlive the process for that are its `totals`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

import orjson

from core.batch import UNLABELLED, Batch
from core.engine.explanation import HEAVY
from core.errors import GMRError
from core.events import (
    BatchLearned,
    BatchPassed,
    BatchScored,
    BatchSetAside,
    BoundaryDetected,
    ChangeDetected,
    ClassesMerged,
    ClassRenamed,
    DeadLettersDropped,
    EntriesLost,
    EntryRejected,
    Event,
    HoldEnded,
    ModeChanged,
    ModelRestored,
    OutlierBurst,
    RunTimeChanged,
    SettingsChanged,
    VersionHeld,
)
from core.memory.awaiting_samples import REASONS
from core.running import Running
from service.broker.entries import LAST_REPORT, Entry
from service.broker.feed import Feed
from service.trainer import class_accuracies, detector_table
from service.trainer.metrics import TrainerMetrics
from service.trainer.totals import LATEST, Totals
from service.wire import REQUEUED_FROM, Control, read_entry, samples_of

logger = logging.getLogger(__name__)


class Journal:
    """Where events go.

    Arguments:
        feed: Takes the records.
        totals: To go on from.
        metrics: Follows every event.
        outbox: Kinds of events that a webhook is to be told of.
    """

    def __init__(
        self,
        feed: Feed,
        totals: Totals,
        metrics: TrainerMetrics,
        outbox: frozenset[str] = frozenset(),
    ) -> None:
        self.totals = totals
        self._outbox = outbox
        self._feed = feed
        self._metrics = metrics
        metrics.resume(
            samples=totals.samples_learned,
            batches=totals.batches_learned,
            boundaries=totals.boundaries,
            replayed=totals.replayed,
            rejected=totals.rejected,
            labels_matched=totals.labels_matched,
            labels_unmatched=totals.labels_unmatched,
            proposals=totals.proposals,
            recurrences=totals.recurrences,
            prior_shifts=totals.prior_shifts,
            continued=totals.continued,
            repetitions=totals.repetitions,
            bursts=totals.bursts,
            quarantined=totals.quarantined,
            passed_batches=totals.passed_batches,
            passed_samples=totals.passed_samples,
            changes_detected=totals.changes_detected,
            letters_dropped=totals.letters_dropped,
            entries_lost=totals.entries_lost,
        )
        metrics.show_latest(totals.latest)
        metrics.show_newest_sample(totals.newest_sample)

    def write(
        self,
        entry_id: str,
        events: Sequence[Event],
        first: int = 0,
        by: str | None = None,
        began: str | None = None,
    ) -> None:
        """Report the events of one entry, or of several that were applied as one.

        Arguments:
            entry_id: Of the entry that caused them; the last of several.
            events: In order; all that the entry caused, or the rest.
            first: Index of the first among all events of the entry.
            by: Name of the key that sent the entry, of a batch; None without one.
            began: The first of several entries; None for one.
        """
        now = time.time()
        keys, began = self._feed.keys, began or entry_id
        for index, event in enumerate(events, first):
            self.totals.count(event, by)
            self._metrics.observe(event)
            # Not `to_dict`, which copies what is about to become bytes anyway.
            record = {"kind": event.kind, **vars(event), "entry_id": entry_id, "time": now}
            if isinstance(event, BoundaryDetected):
                record |= self._boundary(event, began)
                heavy = {name: part for name, part in event.explanation.items() if name in HEAVY}
                if heavy:
                    self._feed.reports.add(keys.explanations, entry_id, index, orjson.dumps(heavy))
            elif isinstance(event, ChangeDetected):
                record |= {"explanation": _light(event.explanation)}
            elif isinstance(event, BatchScored):
                self.totals.remember(event.batch_index, began)
                self.totals.came(entry_id)
                self._metrics.show_newest_sample(self.totals.newest_sample)
            data = orjson.dumps(record)
            self._feed.reports.add(keys.events, entry_id, index, data)
            if isinstance(event, BatchLearned | BatchSetAside | BatchPassed):
                self._feed.reports.add(keys.history, entry_id, index, data)
            if isinstance(event, BoundaryDetected):
                self._feed.reports.add(keys.boundaries, entry_id, index, data)
            if event.kind in self._outbox:
                self._feed.reports.add(keys.outbox, entry_id, index, data)
            _log(event, entry_id)

    def went_back(self, kept: Totals | None, prequential: Running) -> None:
        """Say what is known of the model that took another's place, once that is written.

        Arguments:
            kept: What was counted when the version was kept; None for one from elsewhere.
            prequential: Accuracy of the model by then.
        """
        if kept is not None:
            self.totals.went_back(kept)
        if prequential.weight:
            self.totals.latest["prequential_accuracy_mean"] = prequential.mean
            self._metrics.show_latest(self.totals.latest)

    def _boundary(self, event: BoundaryDetected, began: str) -> dict[str, object]:
        """What a boundary's record says otherwise, or beside: where it began, and why in short."""
        start = self.totals.entry_of(event.estimated_start_batch)
        if event.estimated_start_batch == event.batch_index and event.detector != "declared":
            start = began  # the batch that decided it is reported after it
        return {"estimated_start_entry_id": start, "explanation": _light(event.explanation)}

    def quarantine(self, entry_id: str, batches: Sequence[Batch]) -> None:
        """Keep the outliers of a burst where people can look at them.

        Arguments:
            entry_id: Of the entry by which the burst was over.
            batches: The outliers, in stream order.
        """
        now, index = time.time(), 0
        for batch in batches:
            codes = [UNLABELLED] * len(batch) if batch.codes is None else batch.codes.tolist()
            for row, code in zip(batch.features.tolist(), codes, strict=True):
                if index > LAST_REPORT:
                    return
                label = None if code == UNLABELLED else batch.vocabulary[code]
                record = {"features": row, "label": label, "entry_id": entry_id, "time": now}
                self._feed.reports.quarantine(entry_id, index, orjson.dumps(record))
                index += 1

    def reject(self, entry: Entry, reason: str, detail: str) -> int:
        """Report an entry that could not be used, and keep it among the dead letters.

        Returns:
            Samples that it brought, as far as it can be read.
        """
        kind, samples = _outline(entry)
        batch_id = entry.text("id")
        self.write(entry.id, [EntryRejected(entry.id, reason, detail, batch_id)])
        facts = {
            "entry_id": entry.id,
            "time": time.time(),
            "reason": reason,
            "detail": detail,
            "kind": kind,
            "batch_id": batch_id,
            "samples": samples,
            "requeued_from": entry.text(REQUEUED_FROM),
        }
        self._feed.reports.flush()  # whoever finds the letter has been told of it
        letters, nbytes = self._feed.dead_letters.bury(entry, reason, facts)
        if letters:
            self.write(entry.id, [DeadLettersDropped(letters, nbytes)], first=1)
        return samples or 0 if kind == "batch" else 0

    def status(self, facts: Mapping[str, object]) -> dict[str, object]:
        """The trainer's state, for GET /drift: the given facts, and what events told."""
        totals = self.totals
        unknown: dict[str, object] = dict.fromkeys(LATEST)
        return {
            **unknown,
            "statistics": {},
            "thresholds": {},
            "armed": False,
            **totals.latest,
            "class_accuracies": class_accuracies.told(totals.class_accuracies),
            "detectors": detector_table.told(totals.detectors, totals.latest),
            "boundaries": totals.boundaries,
            "bursts": totals.bursts,
            "quarantined": totals.quarantined,
            "probe_samples": totals.probe_samples,
            "probe_alarms": totals.probe_alarms,
            "batches_since_boundary": totals.batches_since_boundary,
            "samples_since_boundary": totals.samples_since_boundary,
            "labels_matched": totals.labels_matched,
            "labels_unmatched": dict.fromkeys(REASONS, 0) | totals.labels_unmatched,
            "rejected": totals.rejected,
            "dead_letters_dropped": totals.letters_dropped,
            "entries_lost": totals.entries_lost,
            "newest_sample_time": totals.newest_sample,
            **facts,
        }


def encode_status(status: Mapping[str, object]) -> bytes:
    """The status as JSON, stamped with the time, which makes it the heartbeat."""
    return orjson.dumps({**status, "time": time.time()})


def _outline(entry: Entry) -> tuple[str | None, int | None]:
    """The kind of an entry, and its number of samples or labels; None where that is not known."""
    kind = entry.text("kind")
    try:
        asked = read_entry(entry.fields)
    except GMRError:
        return kind, samples_of(entry.fields) if kind == "batch" else None
    return kind, None if isinstance(asked, Control) else len(asked)


def _light(explanation: Mapping[str, object]) -> dict[str, object]:
    return {name: part for name, part in explanation.items() if name not in HEAVY}


def _log(event: Event, entry_id: str) -> None:
    match event:
        case BoundaryDetected():
            logger.info(
                "boundary: sub-task %d begins at batch %d (entry %s, %s)",
                event.sub_task,
                event.batch_index,
                entry_id,
                event.detector,
            )
        case ModeChanged():
            logger.info(
                "mode %s after %s, by %s (entry %s): %s",
                event.mode,
                event.mode_before,
                event.by or "somebody",
                entry_id,
                event.reason or "no reason given",
            )
        case ChangeDetected():
            logger.info(
                "a change at batch %d is told and not crossed, in mode detect_only (entry %s)",
                event.batch_index,
                entry_id,
            )
        case RunTimeChanged():
            logger.info(
                "run time between false alarms: %g samples after %g, by %s (entry %s)",
                event.ert,
                event.ert_before,
                event.by or "the settings",
                entry_id,
            )
        case SettingsChanged():
            logger.info(
                "settings, by %s (entry %s): %s",
                event.by or "somebody",
                entry_id,
                ", ".join(f"{name} = {value}" for name, value in event.settings.items()),
            )
        case ClassesMerged():
            logger.info(
                "class %r has become part of class %r, by %s (entry %s)",
                event.label_before,
                event.label,
                event.by or "somebody",
                entry_id,
            )
        case ClassRenamed():
            logger.info(
                "class %r is called %r, by %s (entry %s)",
                event.label_before,
                event.label,
                event.by or "somebody",
                entry_id,
            )
        case OutlierBurst():
            logger.info(
                "outlier burst: %d samples from sample %d on are quarantined (entry %s)",
                event.samples,
                event.estimated_start_sample,
                entry_id,
            )
        case VersionHeld():
            logger.warning(
                "version %d is held back: of sub-task %d it retains %.3f of %.3f, and %g may be "
                "lost; version %d goes on answering (entry %s)",
                event.model_version,
                event.past_sub_task,
                event.accuracy_now,
                event.accuracy_before,
                event.max_forgetting,
                event.served_version,
                entry_id,
            )
        case HoldEnded():
            logger.info(
                "version %d is served after %d (%s, by %s, entry %s): %s",
                event.model_version,
                event.served_version,
                event.reason,
                event.by or "itself",
                entry_id,
                event.note or "no reason given",
            )
        case EntryRejected():
            logger.warning(
                "entry %s is a dead letter (%s): %s", entry_id, event.reason, event.detail
            )
        case DeadLettersDropped():
            logger.warning(
                "%d dead letters (%d bytes) made room for that of entry %s; for more, raise "
                "GMR_DEAD_LETTERS_LENGTH or GMR_DEAD_LETTERS_MIB",
                event.letters,
                event.bytes,
                entry_id,
            )
        case EntriesLost():
            logger.error(
                "%d entries (%s to %s) are given up; their batches can be sent again",
                event.entries,
                event.first_entry_id,
                event.last_entry_id,
            )
        case ModelRestored():
            logger.info(
                "version %d takes the place of %d (%s)",
                event.model_version,
                event.replaced_version,
                event.source,
            )

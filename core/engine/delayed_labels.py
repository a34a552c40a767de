"""Delayed labels: samples that await their label are held back, matched, or given up.

The engine's part for `core.memory.awaiting_samples`, which has the rules; how a batch is learned is
handed in. Whatever happens here while a change is suspected is put off until that is decided,
because nothing that the next batches are compared with may move.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from core.batch import UNLABELLED, Batch, Label, SampleId, distinct
from core.config import EngineConfig
from core.engine.class_accuracy import by_class
from core.engine.learning import Learning
from core.engine.naming import Naming
from core.engine.state import EngineState, joined
from core.events import Event, LabelsMatched, LabelsMissed, SetAsideReleased
from core.learners.learner import Scores
from core.memory.awaiting_samples import DUPLICATE, REASONS, UNKNOWN, Match, Rows
from core.memory.reliability import bins_of

LearnLate = Callable[[EngineState, Batch, Sequence[int]], tuple[EngineState, int, list[Event]]]
"""A way to learn samples that were held back: see `DelayedLabels.learn_late`."""


@dataclass(frozen=True)
class DelayedLabels:
    """Joins `core.memory.awaiting_samples` to the learning of an engine.

    Arguments:
        config: Holds the limits.
        learning: Teaches the model.
        naming: Asks experts beside the model what samples are called, and tells them.
    """

    config: EngineConfig
    learning: Learning
    naming: Naming

    def match(
        self, state: EngineState, ids: Sequence[SampleId], labels: Sequence[Label]
    ) -> tuple[EngineState, list[Event]]:
        """Match labels with the samples that await them, and learn those; see `Engine.label`."""
        awaiting, match = state.pending.awaiting.matched(
            zip(ids, labels, strict=True),
            state.stream.samples,
            state.in_force(self.config).awaiting_limit,
        )
        state, report = self._tested(state.with_pending(awaiting=awaiting), match)
        batch = Batch.of(match.rows.features, list(match.labels))
        state = self.taught(state, batch)
        state, learned, events = self.learn_late(state, batch, match.rows.arrived)
        voted: list[Event] = []
        if len(match.behind):
            surrogates = Batch.of(match.behind.features, list(match.behind_labels))
            state, voted = self.vote(state, surrogates, torch.ones(len(surrogates)))
        return state, [*events, *voted, self._matched(state, samples_learned=learned, **report)]

    def expire(
        self, state: EngineState, before: int, learn: LearnLate
    ) -> tuple[EngineState, list[Event]]:
        """End the wait of samples that arrived before a place in the stream.

        Arguments:
            before: Samples of the stream before that place.
            learn: Learns them without a label.
        """
        limit = state.in_force(self.config).awaiting_limit
        state = state.with_pending(awaiting=state.pending.awaiting.without_behind(before, limit))
        return self._give_up(state, before, "time", learn)

    def claim(self, state: EngineState, batch: Batch) -> tuple[EngineState, Batch, list[Event]]:
        """Give the samples of a batch the labels that came before them."""
        if batch.sample_ids is None or not (
            state.pending.awaiting.early or batch.codes is not None
        ):
            return state, batch, []
        labels = batch.plain_labels
        awaiting, found, duplicates = state.pending.awaiting.claimed(
            batch.sample_ids,
            [label is not None for label in labels],
            state.in_force(self.config).awaiting_limit,
        )
        state = state.with_pending(awaiting=awaiting)
        if not found and not duplicates:
            return state, batch, []
        for row, label in found.items():
            labels[row] = label
        # The batch's own report says how well they were guessed.
        event = self._matched(state, matched=len(found), unmatched={DUPLICATE: duplicates})
        return state, batch.labelled(labels), [event]

    def hold_back(
        self, state: EngineState, batch: Batch, scores: Scores | None
    ) -> tuple[EngineState, Batch, Tensor]:
        """Part with the samples that await their label.

        The class that the model of before names for each is remembered.

        Returns:
            The state, the rest, which is to be learned, and its rows in the batch.
        """
        everything = torch.arange(len(batch))
        if batch.sample_ids is None:
            return state, batch, everything
        taken = state.pending.awaiting.awaiting_ids()
        rows: list[int] = []
        for row, (id, label) in enumerate(zip(batch.sample_ids, batch.plain_labels, strict=True)):
            if id is not None and label is None and id not in taken:
                taken.add(id)
                rows.append(row)
        if not rows:
            return state, replace(batch, sample_ids=None), everything
        guesses, bins = [UNLABELLED] * len(batch), [UNLABELLED] * len(batch)
        if scores is not None and state.model.classes:
            probabilities, advice = self.naming.probabilities(state, batch.features, scores)
            if state.ready:
                sure, _ = self.naming.confidence(state, scores, probabilities, advice)
                bins = bins_of(sure).tolist()
            # A class that the model has yet to learn has no code that would stay.
            guesses = probabilities[:, : len(state.model.classes)].argmax(-1).tolist()
        begin = state.stream.samples - len(batch)
        index = torch.tensor(rows)
        awaiting_rows = Rows(
            tuple(batch.sample_ids[row] for row in rows),  # type: ignore[misc]  # none is None
            tuple(begin + row for row in rows),
            tuple(guesses[row] for row in rows),
            batch.features[index.to(batch.features.device)],
            tuple(bins[row] for row in rows),
        )
        rest = torch.ones(len(batch), dtype=torch.bool)
        rest[index] = False
        state = state.with_pending(awaiting=state.pending.awaiting.joined(awaiting_rows))
        left = rest.nonzero()[:, 0]
        return state, batch.select(left), left

    def learn_late(
        self, state: EngineState, batch: Batch, arrived: Sequence[int]
    ) -> tuple[EngineState, int, list[Event]]:
        """Learn samples that were held back, once nothing is suspected.

        Arguments:
            batch: Of the current sub-task, N samples.
            arrived: Samples of the stream before each.

        Returns:
            The state, how many samples were learned at once, and what happened.
        """
        if not len(batch):
            return state, 0, []
        since = state.pending.awaiting.suspect_since
        if since is None:
            state, events = self.learning.learn(state, batch, None)
            return state, len(batch), events
        # Nothing that the next batches are compared with may move meanwhile.
        places = torch.tensor(arrived)
        batch, suspect = replace(batch, places=places), places >= since
        due = joined(state.pending.awaiting.due, batch.select((~suspect).nonzero()[:, 0]))
        aside = joined(state.pending.set_aside, batch.select(suspect.nonzero()[:, 0]))
        state = state.with_pending(
            awaiting=replace(state.pending.awaiting, due=due), set_aside=aside
        )
        return state, 0, []

    def vote(
        self, state: EngineState, batch: Batch, weights: Tensor
    ) -> tuple[EngineState, list[Event]]:
        """Let labels of samples that are no more fall on the components that learned them.

        Arguments:
            batch: Means of the model's, all labelled, M of them.
            weights: Whole numbers of samples that each stands for, with shape (M,).
        """
        state, events = self.learning.discover(state, batch)
        standardiser = state.standardiser
        codes = state.model.codes_of(batch)
        x = standardiser.apply(batch.features)
        learner = self.learning.learner.vote(
            state.model.learner, x, codes.to(self.learning.device), weights.to(self.learning.device)
        )
        voted = state.changed(
            learner=learner,
            class_counts=state.model.counted(codes.repeat_interleave(weights.cpu().long())),
        )
        return voted, events

    def _tested(self, state: EngineState, match: Match) -> tuple[EngineState, dict[str, Any]]:
        """What was guessed of samples when they came, against their labels."""
        rows = (match.rows, match.behind)
        guesses = [guess for part in rows for guess in part.guesses]
        places = [place for part in rows for place in part.arrived]
        codes = {distinct(label): code for code, label in enumerate(state.model.classes)}
        truths = [codes.get(distinct(one)) for one in (*match.labels, *match.behind_labels)]
        tested = [
            (guess == truth, truth)
            for guess, truth in zip(guesses, truths, strict=True)
            if guess != UNLABELLED
        ]
        hits = [hit for hit, _ in tested]
        report: dict[str, Any] = {
            "matched": len(guesses),
            "unmatched": match.unmatched,
            "kept": match.kept,
        }
        if hits:
            known = [(hit, truth) for hit, truth in tested if truth is not None]
            report["class_accuracies"] = by_class(
                torch.tensor([truth for _, truth in known], dtype=torch.int64),
                torch.tensor([hit for hit, _ in known], dtype=torch.bool),
                state.model.classes,
            )
            accuracy = report["prequential_accuracy"] = sum(hits) / len(hits)
            state = state.with_stream(
                prequential=state.stream.prequential.updated(len(hits), accuracy)
            )
            state = _reliable(
                state, [bin for part in rows for bin in part.known_bins], guesses, truths
            )
        if places:
            delays = [state.stream.samples - place for place in places]
            report["delay_samples_mean"] = sum(delays) / len(delays)
            report["delay_samples_max"] = max(delays)
        return state, report

    def taught(self, state: EngineState, batch: Batch) -> EngineState:
        """Tell the experts beside the model labels that came late.

        Answers change by that, even where the samples are learned later, when it is decided about a
        suspected change.
        """
        if state.model.panel is None or not len(batch):
            return state
        x, advice = batch.features, None
        scores = self.learning.learner.score(state.model.learner, state.standardiser.apply(x))
        if scores is not None and self.naming.labels(state):
            _, advice = self.naming.probabilities(state, x, scores)
        taught = self.naming.taught(state, batch, advice)
        put_off = state.pending.awaiting.suspect_since is not None
        changed = taught.model.panel is not state.model.panel
        return taught.changed() if put_off and changed else taught

    def _matched(self, state: EngineState, **report: Any) -> LabelsMatched:
        """The event, as far as `report` does not say otherwise about nothing at all."""
        prequential = state.stream.prequential
        nothing: dict[str, Any] = {
            "matched": 0,
            "kept": 0,
            "samples_learned": 0,
            "prequential_accuracy": None,
            "delay_samples_mean": None,
            "delay_samples_max": None,
        }
        unmatched = dict.fromkeys(REASONS, 0) | report.pop("unmatched")
        return LabelsMatched(
            **nothing | report,
            unmatched=unmatched,
            prequential_accuracy_mean=prequential.mean if prequential.weight else None,
            awaiting=state.pending.awaiting.samples,
            sub_task=state.sub_task.number,
            model_version=state.model.version,
        )

    def overdue(self, state: EngineState, learn: LearnLate) -> tuple[EngineState, list[Event]]:
        """End the wait of what has waited for too long, or is too much.

        Arguments:
            learn: Learns samples without a label.
        """
        awaiting, limit = state.pending.awaiting, state.in_force(self.config).awaiting_limit
        if not (awaiting.held or awaiting.behind or awaiting.early):
            return state, []
        oldest = state.stream.samples - state.in_force(self.config).label_wait_samples
        awaiting, n_lost = awaiting.expired(oldest, limit)
        state = state.with_pending(awaiting=awaiting)
        state, missed = self._give_up(state, oldest, "samples", learn)
        state, more = self._give_up(state, state.pending.awaiting.surplus(limit), "limit", learn)
        lost = [self._matched(state, unmatched={UNKNOWN: n_lost})] if n_lost else []
        return state, [*missed, *more, *lost]

    def _give_up(
        self, state: EngineState, before: int, reason: str, learn: LearnLate
    ) -> tuple[EngineState, list[Event]]:
        """Learn the samples that arrived before a place in the stream without a label."""
        awaiting, rows = state.pending.awaiting.released(
            before, state.in_force(self.config).awaiting_limit
        )
        if not len(rows):
            return state, []
        state = state.with_pending(awaiting=awaiting)
        state, learned, events = learn(state, Batch(rows.features), rows.arrived)
        return state, [*events, self._missed(state, rows, reason, learned)]

    def _missed(self, state: EngineState, rows: Rows, reason: str, learned: int) -> LabelsMissed:
        return LabelsMissed(
            len(rows),
            reason,
            learned,
            state.pending.awaiting.samples,
            state.sub_task.number,
            state.model.version,
        )

    def leave(self, state: EngineState, first: int) -> tuple[EngineState, Rows, list[Event]]:
        """Learn what still awaits a label from the sub-task that ends, without one.

        Arguments:
            first: Samples of the stream before the next sub-task.

        Returns:
            The state, the samples that awaited their label, and what happened.
        """
        awaiting, events = state.pending.awaiting, list[Event]()
        rest, rows = awaiting.crossing(first)
        state = state.with_pending(awaiting=rest)
        for batch in awaiting.due:
            state, learned = self.learning.learn(state, batch, None)
            events += learned
        if awaiting.due:
            n_due = sum(map(len, awaiting.due))
            count = len(awaiting.due)
            events.append(
                SetAsideReleased(count, n_due, state.sub_task.number, state.model.version)
            )
        if len(rows):
            state, learned = self.learning.learn(state, Batch(rows.features), None)
            events += [*learned, self._missed(state, rows, "boundary", len(rows))]
        return state, rows, events

    def left_behind(self, state: EngineState, rows: Rows) -> EngineState:
        """Let the samples of an ended sub-task wait on as means of the model's."""
        if not len(rows):
            return state
        means = self.learning.learner.surrogates(
            state.model.learner, state.standardiser.apply(rows.features)
        )
        surrogates = None if means is None else state.standardiser.invert(means)
        limit = state.in_force(self.config).awaiting_limit
        awaiting = state.pending.awaiting.left_behind(rows, surrogates, limit).trimmed(limit)
        return state.with_pending(awaiting=awaiting)


def _reliable(
    state: EngineState, bins: list[int], guesses: list[int], truths: list[int | None]
) -> EngineState:
    """Learn how reliable answers are from those whose label came late."""
    pairs = [
        (bin, guess == truth)
        for bin, guess, truth in zip(bins, guesses, truths, strict=True)
        if bin >= 0 and truth is not None
    ]
    if not pairs:
        return state
    tested, hits = (torch.tensor(column) for column in zip(*pairs, strict=True))
    return state.with_stream(reliability=state.stream.reliability.tested(tested, hits))

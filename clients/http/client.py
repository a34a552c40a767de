"""The Python client; `async_client.py` has the same methods, awaited.

What is sent stands in `calls`, how replies are read in `replies.py`, when something is sent
again in `retry.py`, how it is sent in `blocking.py` and `awaited.py`. Here are only the methods.

Example:
    with GMRClient("http://127.0.0.1:8000") as client:
        for features, labels in batches:
            client.ingest(features, labels)
        client.wait_until_learned()
        print(client.classify(test_features).labels)
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from numpy.typing import ArrayLike, NDArray

from clients.http import calls, waiting
from clients.http.address import DEFAULT_URL
from clients.http.answers import (
    ApiKey,
    AuditedAction,
    BatchFate,
    Boundary,
    Classification,
    DeadLetter,
    DeadLetters,
    DriftState,
    HistoryPoint,
    Ingested,
    IngestState,
    KeyShares,
    Label,
    Labelled,
    Ledger,
    ListedModel,
    ModelInfo,
    ModelVersion,
    NamedModel,
    NamedModelSummary,
    NewApiKey,
    Note,
    Outlier,
    OutlierScores,
    Proposal,
    Readiness,
    Requeued,
    Restored,
    Samples,
    ServiceEvent,
    Setting,
)
from clients.http.blocking import Blocking
from clients.http.errors import RequestRefused
from clients.http.feature_order import columns_of
from clients.http.missing import Column
from clients.http.replacing import check_another, check_empty, taken_along
from clients.http.retry import RetryPolicy
from clients.http.subscription import Feed, position

__all__ = ["DEFAULT_URL", "GMRClient", "RetryPolicy"]

Labels = Sequence[Label | None] | NDArray[Any] | Column

SampleIds = Sequence[int | str | None] | NDArray[Any] | Column


class GMRClient(Blocking):
    """Talks to a running service. Safe to share between threads.

    Arguments:
        url: Where the service listens; by default `GMR_URL`, or http://127.0.0.1:8000.
        model: Name of the model that is asked and taught; by default the service's own.
        timeout: Seconds that one answer may take.
        retry: How patient to be; see `clients/http/retry.py`.
        api_key: Says who asks, where the service wants to know; by default `GMR_API_KEY`.
        headers: Sent with every request.
        transport: Sends the requests in place of the network, for tests.

    Every method may raise `ServiceError` (the service refused), `ServiceUnreachable`
    (no answer came) and `InvalidBatch` (samples that cannot be sent at all).

    The first samples of float64 or integers of which float32 loses what varies in a column are
    told, once per client, by the warning `PrecisionLost`.
    """

    # Samples

    def ingest(
        self,
        features: ArrayLike,
        labels: Labels | None = None,
        *,
        batch_id: str | None = None,
        sample_ids: SampleIds | None = None,
    ) -> Ingested:
        """Put a batch into the stream; when this returns, it is durable.

        A broken connection is no danger: the batch carries an id, and the service learns
        an id once.

        Arguments:
            features: Samples, with shape (N, D). uint8 (k means k/255), float16 and float32
                travel as they are, anything else as float32. Of a DataFrame the columns are
                taken by the names that the model keeps, if it keeps any.
            labels: One integer, string or None per sample; a list, an array or a column of
                pandas. NaN and pandas' NA are None.
            batch_id: Name it yourself to make sending it again safe across restarts.
            sample_ids: One integer, string or None per sample, each once, in such a form, too. A
                sample with an id and no label waits for its label (see `label`) before it is
                learned.
        """
        rows = self._rounding.looked_at(features)
        call = partial(calls.ingest, labels=labels, batch_id=batch_id, sample_ids=sample_ids)
        return self._drive(self._order.sent(call, rows, columns_of(features)))

    def ingest_state(self) -> IngestState:
        """What a sender has to know: shape of samples, backlog, and where the model stands.

        A key of any role may ask that.
        """
        return self.send(calls.ingest_state())

    def label(
        self, sample_ids: SampleIds, labels: Labels, *, batch_id: str | None = None
    ) -> Labelled:
        """Send labels for samples that were, or will be, ingested with these ids.

        In any order; the event `labels_matched` tells what became of them.

        Arguments:
            sample_ids: N ids, each once.
            labels: The label of each, an integer or a string.
            batch_id: Name the request yourself to make sending it again safe across restarts.
        """
        return self.send(calls.label(sample_ids, labels, batch_id))

    def name_proposal(
        self, proposal: int, label: Label | None, *, batch_id: str | None = None
    ) -> Labelled:
        """Say what the samples of a proposed class are; see `proposals`.

        Arguments:
            proposal: Its number.
            label: A class, new or known; None dismisses it: they are learned without a label.
            batch_id: As for `label`.
        """
        return self.send(calls.name_proposal(proposal, label, batch_id))

    def classify(
        self, features: ArrayLike, *, unknown_rate: float | None = None, p_values: bool = False
    ) -> Classification:
        """The most probable class of each sample.

        Arguments:
            features: Samples, with shape (N, D), as for `ingest`.
            unknown_rate: Share of inliers, above 0 and below 1, that may be called unknown;
                without it nothing is.
            p_values: Whether to answer p-values; a rate does so, too. They take longer than the
                classes.

        Raises:
            NotLearnedYet: no class is known.
        """
        rows = self._rounding.looked_at(features)
        call = partial(calls.classify, unknown_rate=unknown_rate, p_values=p_values)
        return self._drive(self._order.sent(call, rows, columns_of(features)))

    def outliers(
        self,
        features: ArrayLike,
        c: float | None = None,
        *,
        false_positive_rate: float | None = None,
    ) -> OutlierScores:
        """How typical each sample is of what has been learned.

        Arguments:
            features: Samples, with shape (N, D), as for `ingest`.
            c: Standard deviations of the log-likelihood below its running mean at which
                outliers begin.
            false_positive_rate: Instead of `c`, share of inliers, above 0 and below 1, that
                may be called outliers, by their p-values. With neither: the service's own.
        """
        rows = self._rounding.looked_at(features)
        call = partial(calls.outliers, c=c, false_positive_rate=false_positive_rate)
        return self._drive(self._order.sent(call, rows, columns_of(features)))

    def sample(
        self,
        n: int | None = None,
        classes: Sequence[Label] | None = None,
        seed: int | None = None,
        *,
        min_probability: float | None = None,
        noise: bool = True,
    ) -> Samples:
        """Draw samples. The same seed, options and model version give the same ones.

        Arguments:
            n: How many; None: the service's own number, 25 where it allows as many.
            classes: A list: only of these classes; None draws from everything known.
            seed: Of the draw; None: a new one each time, which the answer names.
            min_probability: What the model itself must give a sample's class, 0 to 1. What
                falls short is drawn again, up to a limit: `Samples.short` says which stayed
                so. None: the service's own rule where classes are named; 0 otherwise.
            noise: Add the noise of single features; without it samples look cleaner.

        Raises:
            InvalidRequest: The classes are no list.
            RequestRefused: One of them was never seen.
        """
        return self.send(calls.sample(n, classes, seed, min_probability, noise))

    def sample_image(
        self,
        n: int | None = None,
        classes: Sequence[Label] | None = None,
        seed: int | None = None,
        shape: tuple[int, ...] | None = None,
        *,
        min_probability: float | None = None,
        noise: bool = True,
    ) -> bytes:
        """Draw samples as one PNG.

        Arguments:
            n: How many; None: the service's own number, 25 where it allows as many.
            classes: A list: only of these classes; one row each.
            seed: Of the draw; None: a new one each time.
            shape: (H, W) or (H, W, 3) of a sample; None where the service knows it, or for squares.
            min_probability, noise: See `sample`.
        """
        return self.send(calls.sample_image(n, classes, seed, shape, min_probability, noise))

    # Dead letters

    def ledger(self) -> Ledger:
        """What became of all samples that were accepted, as counts that add up."""
        return self.send(calls.ledger())

    def batch(self, batch_id: str) -> BatchFate:
        """What became of one batch.

        Arguments:
            batch_id: As it was sent, or answered.

        Raises:
            RequestRefused: No batch with this id is remembered.
        """
        return self.send(calls.batch(batch_id))

    def dead_letters(
        self,
        since: str | int | float | None = None,
        *,
        limit: int = 100,
        batch_id: str | None = None,
    ) -> DeadLetters:
        """Entries that were accepted and could not be used, oldest first.

        Arguments:
            since: Only those after this letter, or since this time (Unix seconds); `next` of the
                page before.
            limit: At most so many, up to 1000.
            batch_id: Only those of this batch.
        """
        return self.send(calls.dead_letters(since, limit, batch_id))

    def dead_letter(self, id: str) -> DeadLetter:
        """One of them; what it holds stands in `raw`: features, labels, sample_ids, ...

        Raises:
            RequestRefused: No dead letter has this id (any more).
        """
        return self.send(calls.dead_letter(id))

    def dead_letter_batch(self, id: str) -> bytes:
        """The batch of one of them as the binary body of POST /ingest (safetensors).

        Raises:
            RequestRefused: No dead letter has this id, or it holds no samples.
        """
        return self.send(calls.dead_letter_batch(id))

    def requeue_dead_letter(self, id: str) -> Requeued:
        """Send one again, once, as a new entry.

        Raises:
            RequestConflict: It was sent again before, or was not kept whole.
        """
        return self.send(calls.requeue_dead_letter(id))

    def drop_dead_letter(self, id: str) -> None:
        """Forget one; its batch may then be sent again under its id."""
        self.send(calls.drop_dead_letters(id))

    def drop_dead_letters(self) -> int:
        """Forget all that there are; returns how many."""
        return self.send(calls.drop_dead_letters(None))

    # Keys

    def audit(self, last: int = 100) -> tuple[AuditedAction, ...]:
        """What administrators did last, oldest first."""
        return self.send(calls.audit(last))

    def api_keys(self) -> tuple[ApiKey, ...]:
        """The keys by which others may ask, oldest first, without their secrets."""
        return self.send(calls.api_keys())

    def key_shares(self) -> KeyShares:
        """How much of the newest samples learned, and of their outliers, each key has sent."""
        return self.send(calls.key_shares())

    def make_api_key(
        self, name: str, roles: Sequence[str], models: Sequence[str] | None = None
    ) -> NewApiKey:
        """Make a key; its `key` is told this once.

        Arguments:
            name: Whose it is, for people.
            roles: What it may do: some of "ingest", "read" and "admin".
            models: For which it counts: names, or beginnings of names that end in "*" ("pump-*");
                None for all.

        Raises:
            RequestRefused: The name, a role or a model will not do.
        """
        return self.send(calls.make_api_key(name, roles, models))

    def revoke_api_key(self, id: str) -> None:
        """Let a key count no more.

        Raises:
            RequestRefused: No key has this id.
        """
        self.send(calls.revoke_api_key(id))

    # Named models

    def models(self, *, detail: bool = False) -> tuple[ListedModel, ...]:
        """The named models of the service, beside its own, oldest first.

        Arguments:
            detail: Whether to ask what the trainer says of each, too: `ListedModel.detail`.
        """
        return self.send(calls.models(detail))

    def named_model(self, name: str) -> NamedModelSummary:
        """A named model, and where it stands.

        Raises:
            RequestRefused: No model has this name.
        """
        return self.send(calls.named_model(name))

    def make_model(self, name: str, settings: Mapping[str, Any] | None = None) -> NamedModel:
        """Make a named model; the same again changes nothing.

        Arguments:
            name: 1 to 64 letters, digits, dots, underscores and hyphens.
            settings: Its own; the rest is as for the service's own model.

        Raises:
            RequestRefused: A setting will not do, or the model has others.
        """
        return self.send(calls.make_model(name, settings or {}))

    def copy_model(
        self,
        source: str | None,
        name: str,
        *,
        replace: bool = False,
        settings: Mapping[str, Any] | None = None,
        version: int | None = None,
    ) -> NamedModel:
        """Make a named model that begins where another one stands, or stood.

        What was asked of the source while it ran (`change_settings`) holds for the copy, too.

        Arguments:
            source: A named model; None for the service's own, whose settings the copy has, too.
            name: Of the copy.
            replace: Replace the state of a model of that name that has learned or accepted
                samples; they are dropped from it. False: refuse.
            settings: Those that the copy has otherwise than the source, as `make_model` takes
                them.
            version: A kept version of the source, to begin there; None for where it stands.

        Raises:
            InputError: The copy would be one of itself.
            HasLearned: The copy is there, and holds something that would be replaced.
            RequestRefused: There is no source, its version is not kept, or its state does not fit
                the settings, as of another preset; no new model is left then.
            RequestConflict: The copy is there with other settings.
        """
        check_another(source, name)
        of_source = {} if source is None else self.named_model(source).settings
        there = {model.name for model in self.models()}
        made = self.make_model(name, {**of_source, **(settings or {})})
        if not replace:  # looked at once it is there, so that nothing is between
            ledger = self.send(calls.of_model(name, calls.ledger()))
            check_empty(self.named_model(name), ledger)
        try:
            in_force = self.send(calls.of_model(source, calls.settings()))
            if asked := taken_along(in_force, settings or ()):
                change = calls.change_settings(asked, "taken along by a copy", None)
                self.send(calls.of_model(name, change))  # first: they may let the state in
            data = self.send(calls.of_model(source, calls.checkpoint(version)))
            self.send(calls.of_model(name, calls.restore(data)))
        except RequestRefused:
            if name not in there:  # or it would be in the way of the next attempt
                self.take_down_model(name)
            raise
        names = self.send(calls.of_model(source, calls.feature_names()))
        if names is not None:
            self.send(calls.of_model(name, calls.name_features(names)))
        return made

    def take_down_model(self, name: str) -> None:
        """Let the service take a model down, with all that is kept of it.

        Raises:
            RequestRefused: No model has this name.
        """
        self.send(calls.take_down_model(name))

    # Drift

    def drift(self) -> DriftState:
        """State of the boundary detector."""
        return self.send(calls.drift())

    def boundaries(self, since: str | int | float | None = None) -> tuple[Boundary, ...]:
        """Boundaries found so far, oldest first.

        Arguments:
            since: Only those after it, as GET /drift/boundaries takes it.
        """
        return self.send(calls.boundaries(since))

    def boundary(self, id: str) -> Boundary:
        """One boundary with its whole explanation, prototypes of the new data included.

        Arguments:
            id: `Boundary.id`.

        Raises:
            RequestRefused: No boundary has this id; `context["known"]` lists the newest.
        """
        return self.send(calls.boundary(id))

    def boundary_image(self, id: str, shape: tuple[int, ...] | None = None) -> bytes:
        """The prototypes of a boundary's new data, and where they differ, as one PNG.

        Arguments:
            id: `Boundary.id`.
            shape: (H, W) or (H, W, 3) of a sample; None where the service knows it, or for squares.
        """
        return self.send(calls.boundary_image(id, shape))

    def history(self, last: int | None = None) -> tuple[HistoryPoint, ...]:
        """What was said of each of the last batches, oldest first.

        Arguments:
            last: So many, at most; None: 1,000, or as many as the service keeps.
        """
        return self.send(calls.history(last))

    def quarantine(self, last: int = 25) -> tuple[Outlier, ...]:
        """The newest outliers of bursts, oldest first: neither learned nor lost."""
        return self.send(calls.quarantine(last))

    def proposals(self) -> tuple[Proposal, ...]:
        """Proposed classes that nobody has named or dismissed yet, oldest first."""
        return self.send(calls.proposals())

    def add_note(self, id: str, text: str, *, by: str | None = None) -> Note:
        """Say something about a boundary.

        Arguments:
            id: Of the boundary: `Boundary.id`.
            text: Up to 2,000 characters.
            by: Who says it, where no keys are required.
        """
        return self.send(calls.add_note(id, text, by))

    def declare_boundary(self, note: str | None = None, *, by: str | None = None) -> str:
        """Say that a sub-task ends here; returns the id of the entry.

        Arguments:
            note: Becomes the first note of the boundary.
            by: Who says so, where no keys are required.

        Raises:
            RequestConflict: No sample has come since the last boundary.
        """
        return self.send(calls.declare_boundary(note, by))

    def events(
        self, last_event_id: str | None = None, *, kinds: Sequence[str] | None = None
    ) -> Iterator[ServiceEvent]:
        """Events as they happen, without end; a broken connection is resumed where it broke.

        Arguments:
            last_event_id: Begin after this event; None begins with the next one.
            kinds: Only these, for example ("boundary",). Beside them comes `missed`, where
                events were dropped before they could be read.

        Raises:
            ServiceUnreachable: the service was away for longer than the policy's patience.
        """
        feed = Feed(self._retry, last_event_id, kinds)
        yield from self._heard(feed, feed.received)

    def kept_events(
        self, last_event_id: str = "0", *, kinds: Sequence[str] | None = None
    ) -> Iterator[ServiceEvent]:
        """Events that the service keeps, oldest first; ends with the newest there is at the start.

        Arguments:
            last_event_id: Begin after this event; "0" begins with the oldest.
            kinds: As for `events`.
        """
        until = self._newest_event(kinds)
        if position(last_event_id) >= position(until):
            return
        # The newest may be of another kind, so that only all of them tell where to end.
        for event in self.events(last_event_id):
            if kinds is None or event.kind in (*kinds, "missed"):
                yield event
            if event.id and position(event.id) >= position(until):
                return

    # The model

    def model(self) -> ModelInfo:
        """The model that is served, and how far it is behind the stream."""
        return self.send(calls.model())

    def versions(self) -> tuple[ModelVersion, ...]:
        """The versions that are kept."""
        return self.send(calls.versions())

    def rollback(self, version: int) -> Restored:
        """Serve a kept version again.

        Like everything that changes the model it has its place in the stream: what was
        accepted before is learned first. `wait_until_learned` waits where it took long.
        """
        return self.send(calls.rollback(version))

    def release(self, reason: str | None = None, *, by: str | None = None) -> Restored:
        """Serve what is learned, which the gate holds back because it has forgotten.

        What was lost counts as accepted; further losses are counted from there.

        Arguments:
            reason: Why; told with the event `hold_ended`.
            by: Who asks, where no keys are required.

        Raises:
            RequestRefused: Nothing is held back, or there is no gate.
        """
        return self.send(calls.release(reason, by))

    def merge_classes(
        self, label: Label, into: Label, *, reason: str | None = None, by: str | None = None
    ) -> Restored:
        """Let two classes be one from here in the stream on; what was learned of both stays.

        Samples that come later with the label that is no more are another class. It is not asked
        twice: after an answer that was lost look at `model().labels`.

        Arguments:
            label: Of the class that becomes part of the other.
            into: Label of the other, and of both from now on.
            reason: Why; told with the event `classes_merged`.
            by: Who asks, where no keys are required.

        Raises:
            RequestRefused: No class goes by one of these labels, or they are the same.
            RequestConflict: The model is at rest.
        """
        return self.send(calls.merge_classes(label, into, reason, by))

    def rename_class(
        self, label: Label, to: Label, *, reason: str | None = None, by: str | None = None
    ) -> Restored:
        """Call a class otherwise from here in the stream on; all that was learned of it stays.

        Samples that come later with the old label are another class. It is not asked twice: after
        an answer that was lost look at `model().labels`.

        Arguments:
            label: Of the class.
            to: Its label from now on, which no other class has.
            reason: Why; told with the event `class_renamed`.
            by: Who asks, where no keys are required.

        Raises:
            RequestRefused: No class goes by this label, or the new one is none.
            RequestConflict: Another class has the new label.
        """
        return self.send(calls.rename_class(label, to, reason, by))

    def freeze(self, reason: str | None = None, *, by: str | None = None) -> Restored:
        """Learn nothing any more: batches that come are scored, counted and told, nothing else.

        What passes by is never learned; `thaw` goes on from the state of before. A request for
        the mode that is in force changes nothing.

        Arguments:
            reason: Why; told with the event `mode_changed`.
            by: Who asks, where no keys are required.
        """
        return self.send(calls.set_mode("frozen", reason, by))

    def detect_only(self, reason: str | None = None, *, by: str | None = None) -> Restored:
        """Find changes and tell them, but learn nothing and cross no boundary; see `freeze`."""
        return self.send(calls.set_mode("detect_only", reason, by))

    def thaw(self, reason: str | None = None, *, by: str | None = None) -> Restored:
        """Learn again; see `freeze`."""
        return self.send(calls.set_mode("learn", reason, by))

    def set_ert(self, samples: int | None, *, by: str | None = None) -> Restored:
        """Ask for another run time between false alarms.

        Arguments:
            samples: From 2 on; None: what the settings say.
            by: Who asks, where no keys are required.
        """
        return self.send(calls.set_ert(samples, by))

    def settings(self) -> Mapping[str, Setting]:
        """The settings that can be changed while the model runs, by name."""
        return self.send(calls.settings())

    def change_settings(
        self,
        settings: Mapping[str, float | int | None],
        *,
        reason: str | None = None,
        by: str | None = None,
    ) -> Restored:
        """Change settings from here in the stream on, until somebody asks again.

        Arguments:
            settings: Values by name; None: what the service's settings say.
            reason: Why; told with the event `settings_changed`.
            by: Who asks, where no keys are required.

        Raises:
            RequestRefused: One cannot be changed while the model runs, or not to this.
        """
        return self.send(calls.change_settings(settings, reason, by))

    def feature_names(self) -> tuple[str, ...] | None:
        """What the features are called, in their order; None where they have no names."""
        return self.send(calls.feature_names())

    def name_features(self, names: Sequence[str] | None) -> None:
        """Say what the features are called, so that a boundary tells it of those that changed.

        Names change no model, and count at once.

        Arguments:
            names: D texts, in the order of the features; None: they have numbers only.

        Raises:
            RequestConflict: It is not known yet how many features there are.
            RequestRefused: They are not D texts.
        """
        self.send(calls.name_features(names))
        self._order.forget()

    def checkpoint(self, version: int | None = None) -> bytes:
        """The whole state, to be kept or restored elsewhere.

        Arguments:
            version: A kept one, of `versions`; None for the state of now.

        Raises:
            RequestRefused: The version is not kept.
        """
        return self.send(calls.checkpoint(version))

    def restore(self, data: bytes) -> Restored:
        """Go on from a checkpoint."""
        return self.send(calls.restore(data))

    # Operations

    def metrics(self) -> str:
        """Prometheus text."""
        return self.send(calls.metrics())

    def ready(self) -> Readiness:
        """Whether the service takes requests; never waits and never tries again."""
        return self.send(calls.ready())

    def wait_until_ready(self, timeout: float = 60.0) -> None:
        """Wait for a service that is starting.

        Raises:
            WaitTimeout: it was not ready in time.
        """
        self._drive(waiting.until_ready(time.monotonic, timeout, 0.1))

    def wait_until_learned(self, timeout: float = 600.0) -> ModelInfo:
        """Wait until everything accepted is learned and served, samples set aside included.

        Raises:
            WaitTimeout: it was not in time.
        """
        return self._drive(waiting.until_learned(time.monotonic, timeout, 0.1))

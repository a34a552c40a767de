"""The names of everything that one model keeps in Redis.

All keys of a model share a hash tag, so that a cluster keeps them on one node and
scripts may touch several of them at once. Each name below says what its key holds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

GROUP: Final = "trainer"
"""The consumer group of the input stream, and its only consumer."""

QUARANTINE_LENGTH: Final = 1000
"""Outliers of bursts that are kept, at most."""


@dataclass(frozen=True)
class Keys:
    """Key names of one model.

    Example:
        >>> keys = Keys("default")
        >>> keys.input, keys.batch("7f")
        ('{gmr:default}:in', '{gmr:default}:batch:7f')
    """

    model: str

    def named(self, name: str) -> Keys:
        """The keys of a named model of the service whose own model this is.

        Example:
            >>> Keys("default").named("pump-7").input
            '{gmr:default/pump-7}:in'
        """
        return Keys(f"{self.model}/{name}")

    @property
    def prefix(self) -> str:
        """What every key of the model begins with."""
        return f"{{gmr:{self.model}}}:"

    def _key(self, name: str) -> str:
        return self.prefix + name

    @property
    def models(self) -> str:
        """Hash of the named models: name -> `service.broker.registry`, as JSON."""
        return self._key("models")

    @property
    def model_states(self) -> str:
        """How the trainer has the named models, as JSON."""
        return self._key("model-states")

    @property
    def doorbell(self) -> str:
        """Stream of names of models that the trainer should look at, though no entry came."""
        return self._key("doorbell")

    @property
    def input(self) -> str:
        """The input stream: every batch, and every other thing that changes the model."""
        return self._key("in")

    def batch(self, batch_id: str) -> str:
        """What is remembered of a batch id: `service.broker.append`."""
        return self._key(f"batch:{batch_id}")

    @property
    def ids(self) -> str:
        """Stream of the senders' batch ids that are remembered: `service.broker.remembered_ids`."""
        return self._key("ids")

    @property
    def features(self) -> str:
        """D, once the first batch or a setting has fixed it."""
        return self._key("features")

    @property
    def feature_names(self) -> str:
        """What people call the features, D texts in order, as JSON."""
        return self._key("feature-names")

    @property
    def feature_names_from(self) -> str:
        """The newest upload whose names of features were taken over: its entry."""
        return self._key("feature-names-from")

    @property
    def applied(self) -> str:
        """How many entries had been removed in all when the input stream was last trimmed."""
        return self._key("applied")

    @property
    def starts(self) -> str:
        """How often in a row trainers have begun without getting further, as JSON."""
        return self._key("starts")

    @property
    def applying(self) -> str:
        """Which entries the trainer is applying, and how often it has died by them, as JSON."""
        return self._key("applying")

    @property
    def api_keys(self) -> str:
        """Hash of the API keys: id -> what is kept of one, as JSON."""
        return self._key("api_keys")

    @property
    def counts(self) -> str:
        """Hash of what the API processes count together: batches accepted and refused."""
        return self._key("counts")

    @property
    def samples(self) -> str:
        """Stream beside the input stream: for each of its entries, under the same id, `n` samples
        that it brings, and `again`, the entry that it repeats where it was a dead letter."""
        return self._key("samples")

    @property
    def samples_applied(self) -> str:
        """What `applied` is, in samples: since which entry they are counted, and how many."""
        return self._key("samples_applied")

    @property
    def ledger(self) -> str:
        """What became of samples, as the trainer counts them, as JSON."""
        return self._key("ledger")

    @property
    def fates(self) -> str:
        """Hash from entries that are not simply learned to what became of their samples."""
        return self._key("fates")

    @property
    def audit(self) -> str:
        """Stream of what administrators did: `service.broker.audit_trail`."""
        return self._key("audit")

    @property
    def replicated(self) -> str:
        """Nothing; written after an entry that replicas are waited for with."""
        return self._key("replicated")

    @property
    def published(self) -> str:
        """Stream of short notices, one per published snapshot."""
        return self._key("published")

    @property
    def proposals(self) -> str:
        """The open proposals of new classes."""
        return self._key("proposals")

    @property
    def snapshot(self) -> str:
        """The latest snapshot's bytes, where snapshots travel through Redis."""
        return self._key("snapshot")

    @property
    def events(self) -> str:
        """Stream of every event."""
        return self._key("events")

    @property
    def history(self) -> str:
        """Stream of the events of batches only."""
        return self._key("history")

    @property
    def boundaries(self) -> str:
        """Stream of the boundaries only, without the heavy part of their explanations."""
        return self._key("boundaries")

    @property
    def notes(self) -> str:
        """Hash of what people say about boundaries: id -> notes as JSON, one a line."""
        return self._key("notes")

    @property
    def explanations(self) -> str:
        """Stream of that heavy part, for the newest boundaries, under the same ids."""
        return self._key("explanations")

    @property
    def outbox(self) -> str:
        """Stream of the events that a webhook has yet to be told of."""
        return self._key("outbox")

    @property
    def quarantine(self) -> str:
        """Stream of the outliers of bursts, one record per sample, for people to look at."""
        return self._key("quarantine")

    @property
    def dead_letters(self) -> str:
        """Stream of the records of entries that could not be used."""
        return self._key("dead-letters")

    def dead_letter(self, letter_id: str) -> str:
        """Hash of one of these entries, whole."""
        return self._key(f"dead-letter:{letter_id}")

    @property
    def dead_letters_requeued(self) -> str:
        """Hash from those that were sent again to the entry that they were sent as."""
        return self._key("dead-letters-requeued")

    @property
    def dead_letters_bytes(self) -> str:
        """Bytes of the entries among them that are kept whole."""
        return self._key("dead-letters-bytes")

    @property
    def branch(self) -> str:
        """Which entries are no part of the model any more, after rollbacks and uploads, as JSON."""
        return self._key("branch")

    @property
    def restoring(self) -> str:
        """The newest rollback or upload that was accepted: its entry."""
        return self._key("restoring")

    @property
    def status(self) -> str:
        """State of the trainer, as JSON; also its heartbeat."""
        return self._key("status")

    @property
    def trainer_metrics(self) -> str:
        """The trainer's metrics, in Prometheus' text format."""
        return self._key("trainer-metrics")

    @property
    def versions(self) -> str:
        """The kept versions and their lineage, as JSON."""
        return self._key("versions")

    @property
    def kept_versions(self) -> str:
        """Hash from the versions that rollbacks may name: `service.broker.kept_versions`."""
        return self._key("kept-versions")

    @property
    def requests(self) -> str:
        """List of what readers ask of the trainer."""
        return self._key("requests")

    def answer(self, request_id: str) -> str:
        """How many pieces and bytes the trainer's answer to one request has; or, as JSON, why there
        is none."""
        return self._key(f"answer:{request_id}")

    def answer_pieces(self, request_id: str) -> str:
        """The pieces of that answer."""
        return self._key(f"answer-pieces:{request_id}")

    def upload(self, upload_id: str) -> str:
        """The pieces of an uploaded checkpoint."""
        return self._key(f"upload:{upload_id}")

    @property
    def uploads(self) -> str:
        """Hash from an entry of the input stream to the pieces that belong to it."""
        return self._key("uploads")

    @property
    def lease(self) -> str:
        """Which trainer may begin; runs out unless it is renewed."""
        return self._key("lease")

    @property
    def fence(self) -> str:
        """The trainer that began last; what an earlier one still sends is refused."""
        return self._key("fence")

    @property
    def epoch(self) -> str:
        """How often the fence has been taken: `service.broker.pointer`."""
        return self._key("epoch")

    @property
    def checkpoints(self) -> str:
        """Which objects of a store are the model's checkpoints, as JSON."""
        return self._key("checkpoints")

    @property
    def objects(self) -> str:
        """Hash of the objects that are kept in Redis: name -> bytes and time; `service.store`."""
        return self._key("objects")

    def object(self, name: str) -> str:
        """The bytes of one of these."""
        return self._key(f"object:{name}")

    @property
    def cluster(self) -> str:
        """How many buckets a cluster of services has: `service.cluster`."""
        return self._key("cluster")

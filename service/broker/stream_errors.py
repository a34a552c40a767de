"""What the API's end of Redis raises on purpose, besides that Redis is away."""

from __future__ import annotations

from core.errors import GMRError


class BatchConflict(GMRError):
    """A batch_id was used before, for another batch."""


class BacklogFull(GMRError):
    """Too many entries wait to be learned; send more slowly."""


class LetterConflict(GMRError):
    """A dead letter cannot be sent again."""

    @classmethod
    def requeued(cls, id: str, entry_id: str) -> LetterConflict:
        """The error for one that was sent again before."""
        return cls(
            f"The dead letter {id} was sent again before, as entry {entry_id}. Expected one that "
            f"was not. If that entry failed, too, send its own dead letter again.",
            entry_id=entry_id,
        )

    @classmethod
    def repeated(cls, id: str, entry_id: str) -> LetterConflict:
        """The error for one whose sender has sent the batch again."""
        return cls(
            f"The batch of the dead letter {id} was accepted again since, as entry {entry_id}. "
            f"Sending it once more would learn it twice. Drop the letter.",
            entry_id=entry_id,
        )

    @classmethod
    def bare(cls, id: str) -> LetterConflict:
        """The error for one without a payload."""
        return cls(
            f"The dead letter {id} was kept without its payload, which was too large, or a "
            f"checkpoint. Expected one with `whole: true`. Send the original again."
        )


class UnknownLetter(GMRError):
    """No dead letter has this id, or none any more."""

    @classmethod
    def of(cls, id: str) -> UnknownLetter:
        """The error for an id."""
        return cls(
            f"No dead letter has the id {id[:40]!r}. Expected one of GET /deadletters; the oldest "
            f"make room for newer ones. Ask for the list."
        )


class RestorePending(GMRError):
    """Whether a batch was dropped depends on a rollback or upload that is not done yet."""

"""Batches of a sender that ended among the dead letters."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from clients.http.answers import DeadLetter
from clients.http.client import GMRClient
from clients.http.errors import ClientError
from core.counted import counted

PAGE = 1000


class BatchesRejected(ClientError):
    """Batches were accepted, and could not be used when their turn came."""


@dataclass
class Rejected:
    """Batches that were accepted and could not be used.

    Attributes:
        batches: How many.
        samples: Samples, or labels, in them, as far as that is known.
        reasons: Batches by reason.
        detail: Of the last.
    """

    batches: int = 0
    samples: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    detail: str = ""

    def add(self, letter: DeadLetter) -> None:
        """Count one."""
        self.batches += 1
        self.samples += letter.samples or 0
        self.reasons[letter.reason] += 1
        self.detail = letter.detail

    def check(self, what: str) -> None:
        """Say what became of them, where there are any.

        Raises:
            BatchesRejected: There are.
        """
        if not self.batches:
            return
        reasons = ", ".join(f"{n} {reason}" for reason, n in self.reasons.most_common())
        raise BatchesRejected(
            f"{counted(self.batches, 'batch', 'batches')} ({self.samples} {what}) could not be "
            f"used after being accepted ({reasons}). The last: {self.detail} They are kept: "
            f"`gmr deadletters list` shows them; put right what was wrong, then send them again by "
            f"`gmr deadletters requeue`, or forget them by `gmr deadletters drop`."
        )


def rejected(client: GMRClient, prefix: str) -> Rejected:
    """The dead letters of one sender that were not sent again.

    Arguments:
        client: Connected to the service.
        prefix: What the ids of all its batches begin with.
    """
    found, since = Rejected(), None
    while True:
        page = client.dead_letters(since, limit=PAGE)
        for letter in page.letters:
            mine = letter.batch_id is not None and letter.batch_id.startswith(prefix)
            if mine and letter.requeued_as is None:
                found.add(letter)
        if page.next is None:
            return found
        since = page.next

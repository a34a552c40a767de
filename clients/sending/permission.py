"""What a key may not ask: told before anything is sent where it is needed, and else left out.

A sensor's key has the role `ingest` and no other: it sends, and reads nothing of what it has sent.
"""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console

from clients.http.client import GMRClient
from clients.http.errors import InputError, NotAuthorised, RequestRefused
from clients.http.rejected import rejected
from clients.sending.new_model import is_made_by_batch

_NOT_ALLOWED = 403

_OTHER_MODELS = "models"
"""Of a refusal: the key counts for these, and for none that was asked."""


def check_may_read(client: GMRClient, why: str, remedy: str) -> None:
    """Fail at once where what is wanted needs the role `read`.

    Arguments:
        client: Connected to the service.
        why: What needs it, as the begin of a sentence.
        remedy: What to do without it.

    Raises:
        InputError: The key may not read.
        ClientError: The service is away, or knows no such key.
    """
    try:
        client.dead_letters(limit=1)
    except RequestRefused as error:  # which is told to whoever may read
        if not is_made_by_batch(error):
            raise
    except NotAuthorised as error:
        if error.status != _NOT_ALLOWED or _OTHER_MODELS in error.context:
            raise
        raise InputError(
            f"{why} needs a key that also has the role read; nothing was sent. {error.detail} "
            f"{remedy}"
        ) from error


@dataclass
class Verdicts:
    """Looks whether what was sent could be used, and tells once where the key may not know."""

    _told: bool = False

    def check(self, client: GMRClient, prefix: str, what: str, console: Console) -> None:
        """Raise where batches of a sender became dead letters.

        Arguments:
            client: Connected to the service.
            prefix: What the ids of all its batches begin with.
            what: They hold, for messages.
            console: Where it is told that the key may not know.

        Raises:
            BatchesRejected: They are there.
        """
        try:
            found = rejected(client, prefix)
        except NotAuthorised as error:
            if error.status != _NOT_ALLOWED:
                raise
            if not self._told:
                self._told = True
                console.print(
                    f"Whether all {what} could be used is left unchecked: the key has not the role "
                    f"read.",
                    highlight=False,
                    soft_wrap=True,
                )
            return
        found.check(what)

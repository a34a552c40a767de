"""A model that is not there yet, where the service makes models by their first batch.

Whoever sends that batch asks about the model before. Such a service answers 404 and says that a
batch would make it (`on_demand`); where it does not say so, the name is wrong.
"""

from __future__ import annotations

from typing import Final

from clients.http.answers import IngestState
from clients.http.client import GMRClient
from clients.http.errors import RequestRefused

_NOT_FOUND: Final = 404

_NEW: Final = IngestState(features=None, last_entry_id=None, backlog=0)
"""Where a model stands that nothing was sent to."""


def state_for_sender(client: GMRClient) -> IngestState:
    """What a sender has to know of a model, also of one that the first batch makes.

    Raises:
        ClientError: The service is away, or neither has the model nor would make it.
    """
    try:
        return client.ingest_state()
    except RequestRefused as error:
        if not is_made_by_batch(error):
            raise
        return _NEW


def is_made_by_batch(error: RequestRefused) -> bool:
    """Whether a refusal says only that the model's first batch has not come."""
    return error.status == _NOT_FOUND and error.context.get("on_demand") is True

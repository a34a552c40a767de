"""What sending the parts of a table to the models that it names has in common."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from clients.data.parts import Part, Parts
from clients.http.address import address
from clients.http.client import GMRClient
from clients.http.errors import InputError, NotAuthorised, RequestRefused
from clients.http.retry import RetryPolicy
from clients.sending.new_model import is_made_by_batch
from core.counted import counted

_MOST_NAMED: Final = 10
"""Models that a message names."""

_NOT_FOUND: Final = 404


def check_no_model(url: str | None, column: str) -> None:
    """Raise `InputError` where the address is that of one model already.

    Arguments:
        url: Where the service listens; None: where the environment says.
        column: Which says the models.
    """
    if re.search(r"/models/[^/]+$", address(url)):
        raise InputError(
            f"A model was named, and column {column!r} says the models as well. Leave out --model "
            f"or --model-column."
        )


def missing_models(client: GMRClient, named: Sequence[str]) -> list[str]:
    """Those of the named models that the service does not have.

    The service's own model is not asked: a key for these need not count for it.

    Arguments:
        client: Of the service.
        named: The models.

    Raises:
        ClientError: The service is away, which is told at once, knows no such key, or the key does
            not count for one.
    """
    try:
        # Patience is for services that were there.
        with GMRClient(client.url, retry=RetryPolicy(total_s=0)) as impatient:
            there = {model.name for model in impatient.models()}
    except NotAuthorised:  # to list them all, as a sensor's key is not
        return [model for model in named if _refusal(client.url, model) is not None]
    missing = [model for model in named if model not in there]
    for model in missing[:_MOST_NAMED]:
        _check_counts(client, model)
    return missing


def not_made_by_batch(client: GMRClient, missing: Sequence[str]) -> list[str]:
    """Those of the missing models that their first batch would not make.

    Arguments:
        client: Of the service.
        missing: The models.
    """
    refusals = {model: _refusal(client.url, model) for model in missing}
    return [
        model
        for model, refusal in refusals.items()
        if refusal is not None and not is_made_by_batch(refusal)
    ]


def no_such_models(name: str, missing: Sequence[str], remedy: str) -> InputError:
    """The error for a table that names models that are not there.

    Arguments:
        name: What the table is called to the person who sends it.
        missing: The models.
        remedy: What to do.
    """
    first = ", ".join(missing[:_MOST_NAMED])
    return InputError(
        f"{name} names {counted(len(missing), 'model')} that the service does not have: "
        f"{first}{', ...' if len(missing) > _MOST_NAMED else ''}. Nothing was sent. {remedy}"
    )


def of_whole(error: InputError, part: Part, parts: Parts, name: str) -> InputError:
    """An error about a part, as one about the table that the person has.

    Arguments:
        error: It.
        part: The part.
        parts: All of them.
        name: What the table is called to the person who sends it.
    """
    # Lines of the part are nobody's.
    told = re.sub(r" \(line \d+ of the file\)", "", str(error))
    told, row = told.replace(str(part.path), f"{part.model} of {name}"), error.context.get("row")
    if isinstance(row, int) and 0 <= row < len(part.rows):
        place = parts.place(part.rows[row])
        told += f" Row {row} of {part.model} is row {part.rows[row]} of {name}{place}."
    return InputError(told, **error.context)


def some_failed(n: int, name: str) -> InputError:
    """The error for a table that could not be sent whole.

    Arguments:
        n: Models whose rows could not.
        name: What the table is called to the person who sends it.
    """
    return InputError(
        f"The rows of {counted(n, 'model')} in {name} could not be sent whole, as told above. Put "
        f"right what is wrong, and run the same command again: what was sent is not sent twice."
    )


def _check_counts(client: GMRClient, model: str) -> None:
    """Raise where a model may be missing in the list because the key does not count for it."""
    try:
        client.named_model(model)
    except RequestRefused as error:
        if error.status != _NOT_FOUND:
            raise


def _refusal(url: str, model: str) -> RequestRefused | None:
    """What the service says of a model that it does not have; None where it has it."""
    with GMRClient(url, model=model) as client:
        try:
            client.ingest_state()
        except RequestRefused as error:
            if error.status != _NOT_FOUND:
                raise
            return error
        return None

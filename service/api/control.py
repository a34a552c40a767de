"""Routes that ask for something that changes the model: by an entry of the stream, waited for."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

from fastapi import Response
from pydantic import BaseModel, Field

from core.batch import distinct
from core.errors import ClassExists, InvalidRequest, UnknownClass, UnknownVersion
from service.api import answers
from service.api.openapi import json_body, problems
from service.api.parts import Parts
from service.broker.connection import StreamUnavailable, perhaps_done
from service.broker.dead_letters import DeadLetter, DeadLetters
from service.wire import Control

APPLY_TIMEOUT_S: Final = 10.0
POLL_S: Final = 0.05


class Restored(BaseModel):
    """What became of a request to replace the model."""

    entry_id: str = Field(description="Entry of the stream that carries the request.")
    applied: bool = Field(description="Whether the model served already is the restored one.")
    model_version: int = Field(description="Served now.")
    warning: str | None = Field(None, description="What to mind; null where there is nothing.")


def asking_for_control(asked: type[BaseModel], *statuses: int) -> dict[str, Any]:
    """How such a route is declared.

    Arguments:
        asked: Its JSON body.
        statuses: That it may answer besides those which all of them may.
    """
    return {
        "response_model": Restored,
        "responses": {
            202: {"model": Restored, "description": "In the stream; the trainer has yet to do it."},
            **problems(*sorted({403, 413, 415, 422, 429, 503, *statuses})),
        },
        "openapi_extra": json_body(asked),
    }


async def apply(
    parts: Parts,
    control: Control,
    timeout_s: float | None = None,
    *,
    n_features: int | None = None,
    warning: str | None = None,
) -> Response:
    """Put `control` into the stream and wait a while until the served model holds it.

    Arguments:
        parts: Of the process.
        control: What the trainer is to do.
        timeout_s: Longest wait; None for `APPLY_TIMEOUT_S`.
        n_features: D of a checkpoint.
        warning: What to tell with the answer.

    Raises:
        UnknownVersion: It is a rollback, and the trainer does not keep the version any more.
        UnknownClass, ClassExists: It is about classes, and there was no such class any more, or
            another of the new name by then.
        InvalidRequest: The trainer could not do it.
        ShapeMismatch: The stream has another D.
    """
    appended = await parts.stream.append_control(
        control, n_features=n_features, entries_applied=parts.entries_applied
    )
    deadline = time.monotonic() + (APPLY_TIMEOUT_S if timeout_s is None else timeout_s)
    while not (applied := parts.holds(appended.entry_id)) and time.monotonic() < deadline:
        await asyncio.sleep(POLL_S)
    if applied:
        try:
            letter = await DeadLetters(parts.stream).of_entry(appended.entry_id)
        except StreamUnavailable as error:  # it is in the stream all the same
            raise perhaps_done(
                error,
                f"entry {appended.entry_id}, which is in the stream, could be used",
                "Look at GET /model and GET /deadletters in a moment, before you send it again.",
            ) from error
        if letter is not None:
            raise await _refusal(parts, control, letter, appended.entry_id)
    document = {
        "entry_id": appended.entry_id,
        "applied": applied,
        "model_version": parts.model_version,
        "warning": warning,
    }
    return answers.json(document, status=200 if applied else 202, version=parts.model_version)


async def _refusal(
    parts: Parts, control: Control, letter: DeadLetter, entry_id: str
) -> InvalidRequest:
    """Why the trainer could not do it, as the route itself would have said it."""
    reason, detail = letter.facts["reason"], letter.facts["detail"]
    facts: dict[str, Any] = {"entry_id": entry_id}
    if reason == "unknown_version":
        kept = [one["version"] for one in await parts.stream.reports.versions()]
        # The list may be older than the letter.
        versions = [version for version in kept if version != control.version]
        return UnknownVersion(detail, unknown=control.version, known=versions, **facts)
    if reason == "unknown_class" and control.labels is not None:
        served = parts.follower.current
        snapshot = None if served is None else served.snapshot
        known = [] if snapshot is None else list(snapshot.answers)
        names = set(map(distinct, known))
        asked = control.labels if control.kind == "merge" else control.labels[:1]
        unknown = [label for label in asked if distinct(label) not in names]
        return UnknownClass(detail, unknown=unknown, known=known, **facts)
    if reason == "class_exists" and control.labels is not None:
        return ClassExists(detail, label=control.labels[1], **facts)
    return InvalidRequest(detail, **facts)

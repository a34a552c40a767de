"""Calls about entries that could not be used."""

from __future__ import annotations

from urllib.parse import quote

from clients.http import answers, replies
from clients.http.calls.call import JSON, Call, get
from service.wire import MEDIA_TYPE


def dead_letters(
    since: str | int | float | None, limit: int, batch_id: str | None
) -> Call[answers.DeadLetters]:
    """GET /deadletters."""
    query = () if since is None else (("since", str(since)),)
    named = () if batch_id is None else (("batch_id", batch_id),)
    return get("/deadletters", replies.dead_letters, (*query, ("limit", str(limit)), *named))


def dead_letter(id: str) -> Call[answers.DeadLetter]:
    """GET /deadletters/{id}."""
    return get(f"/deadletters/{quote(id, safe='')}", replies.dead_letter)


def dead_letter_batch(id: str) -> Call[bytes]:
    """GET /deadletters/{id} as the body of a request."""
    return Call(
        "GET",
        f"/deadletters/{quote(id, safe='')}",
        lambda reply: reply.body,
        headers={"accept": MEDIA_TYPE},
    )


def requeue_dead_letter(id: str) -> Call[answers.Requeued]:
    """POST /deadletters/{id}. Not repeatable: the second time is refused."""
    return Call(
        "POST",
        f"/deadletters/{quote(id, safe='')}",
        lambda reply: answers.build(answers.Requeued, replies.json(reply)),
        headers={"accept": JSON},
        repeatable=False,
    )


def drop_dead_letters(id: str | None) -> Call[int]:
    """DELETE /deadletters/{id}, or of all. Not repeatable: what came since would go, too."""
    return Call(
        "DELETE",
        "/deadletters" if id is None else f"/deadletters/{quote(id, safe='')}",
        lambda reply: int(replies.field_of(replies.json(reply), "dropped")),
        headers={"accept": JSON},
        repeatable=False,
    )

"""Calls about what the detector sees and found."""

from __future__ import annotations

from urllib.parse import quote

import orjson

from clients.http import answers, replies
from clients.http.calls.call import JSON, Call, get, put


def drift() -> Call[answers.DriftState]:
    """GET /drift."""
    return get("/drift", replies.drift_state)


def boundaries(since: str | int | float | None) -> Call[tuple[answers.Boundary, ...]]:
    """GET /drift/boundaries."""
    query = () if since is None else (("since", str(since)),)
    return get(
        "/drift/boundaries",
        lambda document: tuple(
            replies.boundary(row) for row in replies.rows_of(document, "boundaries")
        ),
        query,
    )


def boundary(id: str) -> Call[answers.Boundary]:
    """GET /drift/boundaries/{id}."""
    return get(f"/drift/boundaries/{quote(id, safe='')}", replies.boundary)


def boundary_image(id: str, shape: tuple[int, ...] | None) -> Call[bytes]:
    """GET /drift/boundaries/{id} as a picture."""
    return Call(
        "GET",
        f"/drift/boundaries/{quote(id, safe='')}",
        lambda reply: reply.body,
        query=() if shape is None else (("shape", ",".join(map(str, shape))),),
        headers={"accept": "image/png"},
    )


def history(last: int | None) -> Call[tuple[answers.HistoryPoint, ...]]:
    """GET /drift/history."""
    return get(
        "/drift/history",
        lambda document: tuple(
            answers.build(answers.HistoryPoint, row) for row in replies.rows_of(document, "history")
        ),
        () if last is None else (("last", str(last)),),
    )


def quarantine(last: int) -> Call[tuple[answers.Outlier, ...]]:
    """GET /drift/quarantine."""
    return get(
        "/drift/quarantine",
        lambda document: tuple(
            answers.build(answers.Outlier, row, features=tuple(replies.field_of(row, "features")))
            for row in replies.rows_of(document, "outliers")
        ),
        (("last", str(last)),),
    )


def proposals() -> Call[tuple[answers.Proposal, ...]]:
    """GET /drift/proposals."""
    return get(
        "/drift/proposals",
        lambda document: tuple(map(replies.proposal, replies.rows_of(document, "proposals"))),
    )


def add_note(id: str, text: str, by: str | None) -> Call[answers.Note]:
    """POST /drift/boundaries/{id}/notes. Not repeatable: it would be there twice."""
    return Call(
        "POST",
        f"/drift/boundaries/{quote(id, safe='')}/notes",
        lambda reply: answers.build(answers.Note, replies.json(reply)),
        headers={"content-type": JSON, "accept": JSON},
        body=orjson.dumps({"text": text, "by": by}),
        repeatable=False,
    )


def declare_boundary(note: str | None, by: str | None) -> Call[str]:
    """POST /drift/boundary. Not repeatable: it would declare a second one."""
    return Call(
        "POST",
        "/drift/boundary",
        lambda reply: str(replies.field_of(replies.json(reply), "entry_id")),
        headers={"content-type": JSON, "accept": JSON},
        body=orjson.dumps({"note": note, "by": by}),
        repeatable=False,
    )


def set_ert(samples: int | None, by: str | None) -> Call[answers.Restored]:
    """PUT /drift/ert."""
    return put("/drift/ert", {"ert": samples, "by": by})

"""Calls about keys, and about what administrators did."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

import orjson

from clients.http import answers, replies
from clients.http.calls.call import JSON, Call, get


def api_keys() -> Call[tuple[answers.ApiKey, ...]]:
    """GET /keys."""
    return get("/keys", replies.api_keys)


def key_shares() -> Call[answers.KeyShares]:
    """GET /keys/shares."""
    return get("/keys/shares", replies.key_shares)


def make_api_key(
    name: str, roles: Sequence[str], models: Sequence[str] | None
) -> Call[answers.NewApiKey]:
    """POST /keys. Not repeatable: there would be two, and nobody would have one of them."""
    asked: dict[str, object] = {"name": name, "roles": list(roles)}
    if models is not None:  # an older service takes no such field
        asked["models"] = [models] if isinstance(models, str) else list(models)
    return Call(
        "POST",
        "/keys",
        lambda reply: replies.new_api_key(replies.json(reply)),
        headers={"accept": JSON, "content-type": JSON},
        body=orjson.dumps(asked),
        repeatable=False,
    )


def revoke_api_key(id: str) -> Call[None]:
    """DELETE /keys/{id}. Not repeatable: the second time there is none."""
    return Call(
        "DELETE",
        f"/keys/{quote(id, safe='')}",
        lambda reply: None,
        headers={"accept": JSON},
        repeatable=False,
    )


def audit(last: int) -> Call[tuple[answers.AuditedAction, ...]]:
    """GET /audit."""
    return get(
        "/audit",
        lambda document: tuple(
            answers.build(answers.AuditedAction, row)
            for row in replies.rows_of(document, "actions")
        ),
        (("last", str(last)),),
    )

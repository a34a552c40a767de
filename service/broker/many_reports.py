"""What trainers report of many models, read together: a few questions for a hundred of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from service.broker.branch import Branch
from service.broker.caller import Caller
from service.broker.feature_names import names_of, tells_features, with_names
from service.broker.keys import Keys

AT_ONCE: Final = 100
"""Models of one question: a few milliseconds of Redis, and a megabyte or two."""


@dataclass(frozen=True)
class ModelReport:
    """What is known of one model.

    Arguments:
        status: What its trainer last said; None where none ever had it.
        boundary: The newest boundary with the names of its features, and whether it is `dropped`
            from the model's past; None without one.
    """

    status: Mapping[str, Any] | None
    boundary: Mapping[str, Any] | None


async def reports_of(redis: Caller, models: Mapping[str, Keys]) -> dict[str, ModelReport]:
    """The reports of models, by name.

    Arguments:
        redis: To ask, of any model.
        models: Keys by names.

    Raises:
        StreamUnavailable: Redis does not tell.
    """
    names, found = list(models), dict[str, ModelReport]()
    for start in range(0, len(names), AT_ONCE):
        page = names[start : start + AT_ONCE]
        reports = await _page(redis, [models[name] for name in page])
        found |= zip(page, reports, strict=True)
    return found


async def _page(redis: Caller, models: Sequence[Keys]) -> list[ModelReport]:
    def told() -> Any:
        piped: Any = redis.client.pipeline(transaction=False)
        for keys in models:
            piped.get(keys.status).get(keys.branch).xrevrange(keys.boundaries, count=1)
        return piped.execute()

    replies = await redis.read(told)
    statuses = [None if text is None else orjson.loads(text) for text in replies[::3]]
    branches = [Branch() if text is None else Branch.from_json(text) for text in replies[1::3]]
    newest = [orjson.loads(rows[0][1][b"data"]) if rows else None for rows in replies[2::3]]
    ids = [rows[0][0].decode() if rows else None for rows in replies[2::3]]
    told_names = await _names(
        redis,
        [
            keys.feature_names
            for keys, row in zip(models, newest, strict=True)
            if row is not None and tells_features(row)
        ],
    )
    found = []
    for keys, status, branch, id, row in zip(models, statuses, branches, ids, newest, strict=True):
        boundary = None
        if row is not None:
            text = told_names.get(keys.feature_names)
            known = None if text is None or status is None else status.get("n_features")
            names = None if text is None else names_of(text, known)
            dropped = branch.drops(row["entry_id"])
            boundary = {**with_names(row, names), "id": id, "dropped": dropped}
        found.append(ModelReport(status, boundary))
    return found


async def _names(redis: Caller, keys: Sequence[str]) -> dict[str, bytes | None]:
    """The texts of keys, asked for only where a boundary needs them: they may be long."""
    if not keys:
        return {}

    def told() -> Any:
        piped: Any = redis.client.pipeline(transaction=False)
        for key in keys:
            piped.get(key)
        return piped.execute()

    return dict(zip(keys, await redis.read(told), strict=True))

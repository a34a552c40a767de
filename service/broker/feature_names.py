"""What people call the features of a model. Redis holds it, beside the model.

Names change no model, so that they are no entry of the stream: they are there at once, also while
no trainer works, and what was found before they came is told with them as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from service.broker.connection import perhaps_done
from service.broker.stream import Stream


class FeatureNames:
    """The names of one model's features.

    Arguments:
        stream: Of the model.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._key = stream.keys.feature_names

    async def kept(self) -> tuple[str, ...] | None:
        """The names, in the order of the features; None where there are none.

        They are none, too, where they were kept for another number of features: a model whose only
        batches were refused may have had one.
        """
        text = await self._stream.read(lambda: self._stream.client.get(self._key))
        return None if text is None else names_of(text, await self._stream.n_features())

    async def keep(self, names: Sequence[str]) -> None:
        """Keep names in place of those that are there.

        Arguments:
            names: As many as there are features.

        Raises:
            StreamUnavailable: Redis is away; they may be kept or not.
        """
        data = orjson.dumps(list(names))
        await self._stream.call(
            lambda: self._stream.client.set(self._key, data),
            away=lambda error: perhaps_done(
                error, "the names are kept", "Send the same once more, which does no harm."
            ),
        )

    async def forget(self) -> None:
        """Let the features have numbers only."""
        await self._stream.call(
            lambda: self._stream.client.delete(self._key),
            away=lambda error: perhaps_done(
                error, "the names are forgotten", "Ask for the same once more, which does no harm."
            ),
        )

    async def in_rows(self, rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Rows about features, each with its place `feature`, with their names."""
        names = await self.kept() if rows else None
        return _named(rows, names)

    async def in_records(self, records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Boundaries, or any events, with the names of features that have changed, JSON-ready.

        Arguments:
            records: As the trainer reported them.
        """
        names = await self.kept() if any(map(tells_features, records)) else None
        return [with_names(record, names) for record in records]


def names_of(text: bytes | str, n_features: int | None) -> tuple[str, ...] | None:
    """The names as they are kept; None where they are of another number of features."""
    names: list[str] = orjson.loads(text)
    return tuple(names) if len(names) == n_features else None


def tells_features(record: Mapping[str, Any]) -> bool:
    """Whether a record says which features have changed, in its explanation or at once."""
    return bool(record.get("features") or (record.get("explanation") or {}).get("features"))


def with_names(record: Mapping[str, Any], names: Sequence[str] | None) -> dict[str, Any]:
    """A record with the names of the features that it says have changed."""
    if not tells_features(record):
        return dict(record)
    if record.get("features"):
        return {**record, "features": _named(record["features"], names)}
    explanation = record["explanation"]
    features = _named(explanation["features"], names)
    return {**record, "explanation": {**explanation, "features": features}}


def _named(rows: Sequence[Mapping[str, Any]], names: Sequence[str] | None) -> list[dict[str, Any]]:
    known = dict(enumerate(names or ()))
    return [{**one, "name": known.get(one["feature"])} for one in rows]

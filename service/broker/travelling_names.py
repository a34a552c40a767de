"""Names of features on their way with a checkpoint: the trainer's end.

The trainer sends the names along, and takes over those of an upload, once it has applied the entry:
so an upload that is refused changes none.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from service.broker.branch import position
from service.broker.feature_names import names_of
from service.broker.fenced import Fenced


class TravellingNames:
    """The names of one model's features, as its trainer has to do with them.

    Arguments:
        redis: Which holds them.
    """

    def __init__(self, redis: Fenced) -> None:
        self._redis = redis

    def kept(self, n_features: int | None) -> tuple[str, ...] | None:
        """The names; None where there are none, or those of another number of features."""
        text = self._redis.get(self._redis.keys.feature_names)
        return None if text is None else names_of(text, n_features)

    def take(self, names: Sequence[str], entry_id: str) -> None:
        """Keep the names of an upload in place of those that are there.

        An entry that is read again after a crash changes nothing: somebody may have named the
        features otherwise since.

        Arguments:
            names: As many as there are features.
            entry_id: Of the upload.

        Raises:
            StreamUnavailable: Redis is away, and is not waited for any longer.
            LeaseLost: Another trainer has begun.
        """
        keys = self._redis.keys
        taken = self._redis.get(keys.feature_names_from)
        if taken is not None and position(entry_id) <= position(taken.decode()):
            return
        self._redis.write(
            [
                ("SET", keys.feature_names, orjson.dumps(list(names))),
                ("SET", keys.feature_names_from, entry_id),
            ]
        )

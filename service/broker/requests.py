"""What readers ask the trainer for, and the large bytes that go between them in pieces.

The trainer's end of `service.broker.transfers`.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from functools import partial

import orjson

from core.errors import InvalidCheckpoint
from service.broker.fenced import Fenced
from service.broker.pieces import ANSWER_S, pieces
from service.broker.records import Refusal
from service.wire import Upload


class Requests:
    """Requests to the trainer of one model.

    Arguments:
        redis: To answer by.
    """

    def __init__(self, redis: Fenced) -> None:
        self._redis = redis
        self._keys = redis.keys

    def new(self) -> list[str]:
        """What readers asked for since the last call."""
        found = []
        while (
            text := self._redis.call(lambda: self._redis.client.lpop(self._keys.requests))
        ) is not None:
            found.append(text.decode("utf-8", "replace"))
        return found

    def answer(self, request_id: str, data: bytes) -> None:
        """Answer a reader; the answer is kept for a minute, and for one more with each piece."""
        key, n_pieces = self._keys.answer_pieces(request_id), 0
        for piece in pieces(data):
            self._redis.write([("HSET", key, n_pieces, piece), ("EXPIRE", key, ANSWER_S)])
            n_pieces += 1
        ready = b"%d %d" % (n_pieces, len(data))
        self._redis.write([("SET", self._keys.answer(request_id), ready, "EX", ANSWER_S)])

    def refuse(self, request_id: str, refusal: Refusal) -> None:
        """Tell a reader why it is answered nothing else."""
        told = orjson.dumps(asdict(refusal))
        self._redis.write([("SET", self._keys.answer(request_id), told, "EX", ANSWER_S)])

    def fetch(self, upload: Upload) -> bytes:
        """The bytes of an uploaded checkpoint.

        Raises:
            InvalidCheckpoint: They are not there any more, or are others.
        """
        key = self._keys.upload(upload.id)
        found = [
            self._redis.call(partial(self._redis.client.hget, key, str(index)))
            for index in range(upload.pieces)
        ]
        data = b"".join(piece for piece in found if piece is not None)
        if len(data) != upload.size or hashlib.sha256(data).hexdigest() != upload.sha256:
            raise InvalidCheckpoint(
                f"Redis has {len(data)} of the {upload.size} bytes of the uploaded checkpoint, or "
                f"others. Expected all of them; upload it again."
            )
        return data

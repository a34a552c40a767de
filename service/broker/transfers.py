"""Checkpoints on their way between the API and the trainer, in pieces: the API's end.

The trainer's is `service.broker.requests`.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, Final

import orjson

from core.errors import GMRError
from service.broker.caller import READ_S, READ_TRIES, Caller
from service.broker.connection import SOCKET_TIMEOUT_S, StreamUnavailable, not_told
from service.broker.keys import Keys
from service.broker.pieces import ANSWER_S, UPLOAD_S
from service.broker.records import Answer, Refusal
from service.broker.registry import DOORBELL_LENGTH

ANSWER_POLL_S: Final = 0.05

PIECE: Final = """
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
redis.call('EXPIRE', KEYS[1], ARGV[3])
"""


class Transfers:
    """Checkpoints of one model.

    Arguments:
        redis: To send them by.
        model: Name of the model; of a named one SERVICE/NAME.
    """

    def __init__(self, redis: Caller, model: str) -> None:
        self._redis = redis
        self._keys = redis.keys
        service, _, name = model.partition("/")
        self._doorbell = (Keys(service).doorbell, name) if name else None
        self._piece = redis.client.register_script(PIECE)

    async def put_piece(self, upload_id: str, index: int, piece: bytes) -> None:
        """Keep one piece of an upload; it goes by itself unless an entry soon names the upload.

        Raises:
            StreamUnavailable: Redis is away or full.
        """
        keys = [self._keys.upload(upload_id)]
        values: list[Any] = [index, piece, UPLOAD_S]
        await self._redis.call(lambda: self._piece(keys=keys, args=values), not_told)

    async def drop_upload(self, upload_id: str) -> None:
        """Let go of the pieces of an upload that no entry names; at once, if Redis is there."""
        with contextlib.suppress(GMRError):
            await self._redis.read(lambda: self._redis.client.unlink(self._keys.upload(upload_id)))

    async def uploads(self) -> int:
        """How many uploads wait to be taken over, or for a checkpoint that contains them."""
        return int(await self._redis.read(lambda: self._redis.client.hlen(self._keys.uploads)))

    async def request_checkpoint(
        self, timeout_s: float, version: int | None = None
    ) -> Answer | Refusal | None:
        """Ask the trainer for its whole state; None when it does not answer in time.

        Arguments:
            timeout_s: Longest wait.
            version: A kept one, whose state is wanted; None for that of now.

        Raises:
            StreamUnavailable: Redis is away.
        """
        request_id = uuid.uuid4().hex
        deadline = time.monotonic() + timeout_s
        request = f"checkpoint {request_id}" + ("" if version is None else f" {version}")
        await self._redis.read(
            lambda: self._redis.client.rpush(self._keys.requests, request), READ_TRIES * READ_S
        )
        if self._doorbell is not None:  # it may have to be loaded first
            stream, name = self._doorbell
            await self._redis.read(
                lambda: self._redis.client.xadd(stream, {"model": name}, maxlen=DOORBELL_LENGTH)
            )
        while time.monotonic() < deadline:
            await asyncio.sleep(ANSWER_POLL_S)
            answer: bytes | None = await self._redis.read(
                lambda: self._redis.client.get(self._keys.answer(request_id))
            )
            if answer is not None:
                if answer.startswith(b"{"):
                    return Refusal(**orjson.loads(answer))
                n_pieces, size = map(int, answer.split())
                return Answer(request_id, n_pieces, size)
        # Nobody waits for it any more.
        await self._redis.read(lambda: self._redis.client.lrem(self._keys.requests, 0, request))
        return None

    async def pieces(self, answer: Answer) -> AsyncIterator[bytes]:
        """The bytes of an answer of the trainer's, some at a time; they are gone afterwards.

        Raises:
            StreamUnavailable: Redis is away, or the pieces were not taken in time.
        """
        key = self._keys.answer_pieces(answer.request_id)
        try:
            for index in range(answer.pieces):
                piece = await self._redis.read(
                    partial(self._redis.client.hget, key, str(index)), SOCKET_TIMEOUT_S
                )
                if piece is None:
                    raise StreamUnavailable(
                        f"Piece {index} of the answer is gone: it was not taken within "
                        f"{ANSWER_S} seconds of the one before. Ask again."
                    )
                await self._redis.read(lambda: self._redis.client.expire(key, ANSWER_S))
                yield piece
        finally:
            with contextlib.suppress(GMRError):
                await self._redis.read(lambda: self._redis.client.unlink(key))

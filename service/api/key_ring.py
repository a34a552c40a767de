"""Whose key a request brings: the keys in Redis, as one API process knows them."""

from __future__ import annotations

import asyncio
import hmac
import math
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from service.broker.api_keys import ApiKey, KeyStore, Role, covers, digest_of, parts_of_key
from service.broker.connection import StreamUnavailable
from service.settings import Settings

FRESH_S: Final = 1.0
"""For so long a list of keys is taken for that of Redis: a revoked key is refused after it."""

AGAIN_S: Final = 0.1
"""Between two readings of the list for keys that are not known, which anybody may bring."""

PATIENCE_S: Final = 0.25
"""For Redis to answer, where a list is there to go on with: questions are answered without it."""


@dataclass(frozen=True)
class Caller:
    """Who asks.

    Arguments:
        name: Of the key.
        roles: What it may do.
        id: Of the key; that of whoever has none is empty.
        models: For which the key counts, as it names them; None for all, and the whole service.
    """

    name: str
    roles: tuple[Role, ...]
    id: str = ""
    models: tuple[str, ...] | None = None

    def counts_for(self, names: Iterable[str] | None) -> bool:
        """Whether models may be asked; None is the whole service.

        Example:
            >>> pump = Caller("pump", ("read",), models=("pump-7",))
            >>> pump.counts_for(["pump-7"]), pump.counts_for(["pump-7", "m"]), pump.counts_for(None)
            (True, False, False)
        """
        limits = self.models
        return limits is None or (names is not None and all(covers(limits, one) for one in names))

    def may(self, role: Role) -> bool:
        """Whether a route of this role answers."""
        return role in self.roles or "admin" in self.roles


class KeyRing:
    """The keys that count, as Redis has them.

    Arguments:
        settings: Hold the key of the operator, which is always one.
        store: Where the others are.
    """

    def __init__(self, settings: Settings, store: KeyStore) -> None:
        self.store = store
        own = settings.admin_key
        self._admin = None if own is None else digest_of(own.get_secret_value())
        self._known: dict[str, ApiKey] | None = None
        self._read_at = -math.inf
        self._reading = asyncio.Lock()

    async def caller(self, key: str) -> Caller | None:
        """Whose key that is; None for nobody's.

        Raises:
            StreamUnavailable: Redis does not tell, and never has.
        """
        if self._admin is not None and hmac.compare_digest(digest_of(key), self._admin):
            return Caller("operator", ("admin",))
        parts = parts_of_key(key)
        if parts is None:
            return None
        known = await self._list(parts[0])
        kept = known.get(parts[0])
        if kept is None or not kept.roles or not kept.fits(key):
            return None
        return Caller(kept.name, kept.roles, kept.id, kept.models)

    async def _list(self, id: str) -> dict[str, ApiKey]:
        """The keys by their ids, read anew where the list is too old to answer for this id.

        A key that is made before it is asked for is in the list: where that was read earlier, the
        question waits for another one. A list that was read before goes on counting while Redis
        is away, or slow to answer.
        """
        came = time.monotonic()
        if self._known is not None and self._is_fresh_for(id, came):
            return self._known
        async with self._reading:
            if self._known is None:
                self._read_at = time.monotonic()
                self._known = {key.id: key for key in await self.store.all()}
                return self._known
            if self._read_at >= came or self._is_fresh_for(id, came):  # somebody else has read it
                return self._known
            if id not in self._known:
                await asyncio.sleep(self._read_at + AGAIN_S - time.monotonic())
            began = time.monotonic()
            try:
                keys = await asyncio.wait_for(self.store.all(), PATIENCE_S)
            except (StreamUnavailable, TimeoutError):
                self._read_at = time.monotonic()  # nobody who waits for this asks in vain again
            else:
                self._known, self._read_at = {key.id: key for key in keys}, began
            return self._known

    def _is_fresh_for(self, id: str, now: float) -> bool:
        return self._known is not None and id in self._known and now - self._read_at < FRESH_S

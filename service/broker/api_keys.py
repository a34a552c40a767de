"""API keys: who may do what. Redis holds their digests, never a key.

A key reads `gmr_ID_SECRET`. Its secret has 256 random bits, so that a plain SHA-256 of it tells
nothing, and needs no salt and no slow hash.

A key counts for all models, or for those that it names, each by its name or by the beginning of it
(`pump-*`).
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Literal, Self, get_args

import orjson

from core.errors import InvalidRequest
from service.broker.caller import Caller
from service.broker.connection import perhaps_done
from service.broker.registry import NAME

Role = Literal["ingest", "read", "admin"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)
"""`ingest` sends samples and labels, `read` asks and sees what happens, `admin` does anything."""

MOST_KEYS: Final = 1000
LONGEST_NAME: Final = 64
MOST_MODELS: Final = 64
"""That one key names."""

ANY: Final = "*"
"""Ends the beginning of a name."""

_PARTS: Final = re.compile(r"gmr_([0-9a-f]{12})_([A-Za-z0-9_-]{43})", re.ASCII)


@dataclass(frozen=True)
class ApiKey:
    """What is kept of a key.

    Arguments:
        id: Public part of the key, by which it is listed and revoked.
        name: Whose it is, for people.
        roles: What it may do.
        digest: SHA-256 of the secret part, in hexadecimal.
        made: When, in seconds since 1970.
        models: For which it counts: names, or beginnings of names that end in `*`; None for all.
    """

    id: str
    name: str
    roles: tuple[Role, ...]
    digest: str
    made: float
    models: tuple[str, ...] | None = None

    @classmethod
    def mint(
        cls, name: str, roles: Iterable[str], models: Iterable[str] | None = None
    ) -> tuple[Self, str]:
        """A new key: what is kept of it, and the key itself, which is shown once.

        Raises:
            InvalidRequest: The name is empty or too long, a role is none, or a model has no name.

        Example:
            >>> kept, key = ApiKey.mint("camera 7", ["ingest"])
            >>> kept.fits(key), kept.fits(key[:-1] + "!"), key in repr(kept)
            (True, False, False)
        """
        if not 0 < len(name) <= LONGEST_NAME or not name.isprintable():
            raise InvalidRequest(
                f"The name of a key has {len(name)} characters, or some that cannot be printed. "
                f"Expected 1 to {LONGEST_NAME} printable ones. Choose another.",
                parameter="name",
            )
        chosen = tuple(role for role in ROLES if role in set(roles))
        if not chosen or set(roles) - set(ROLES):
            raise InvalidRequest(
                f"The roles of a key are {sorted(set(roles))}. Expected one or more of "
                f"{', '.join(ROLES)}. Correct them.",
                parameter="roles",
            )
        limits = None if models is None else tuple(dict.fromkeys(models))
        if limits is not None:
            _check(limits)
        id, secret = secrets.token_hex(6), secrets.token_urlsafe(32)
        kept = cls(id, name, chosen, digest_of(secret), time.time(), limits)
        return kept, f"gmr_{id}_{secret}"

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """The inverse of `to_json`.

        A key of a later release that says more than is known here may be meant to do less. It has
        no roles then, so that it is listed, can be revoked, and does not count.
        """
        values: dict[str, Any] = orjson.loads(data)
        models = values.pop("models", None)
        known = {one.name: values.pop(one.name) for one in fields(cls) if one.name != "models"}
        if models is not None and not _are_legal(models):
            values["models"], models = models, ()
        roles = () if values else tuple(role for role in ROLES if role in known["roles"])
        limits = None if models is None else tuple(models)
        return cls(**{**known, "roles": roles, "models": limits})

    def to_json(self) -> bytes:
        """What Redis holds."""
        values = asdict(self)
        if self.models is None:  # as a release that does not know of them has it, and takes it
            del values["models"]
        return orjson.dumps(values)

    def fits(self, key: str) -> bool:
        """Whether this was made of that key; takes as long whichever way it is."""
        parts = parts_of_key(key)
        return parts is not None and hmac.compare_digest(digest_of(parts[1]), self.digest)


def parts_of_key(key: str) -> tuple[str, str] | None:
    """Id and secret of a key; None where it is none."""
    found = _PARTS.fullmatch(key)
    return None if found is None else (found[1], found[2])


def covers(models: Iterable[str], name: str) -> bool:
    """Whether a key that names these models counts for one; never for what no model can be called.

    Example:
        >>> [covers(["pump-*", "press"], name) for name in ("pump-7", "press", "press-1", "pump-/")]
        [True, True, False, False]
    """
    if not NAME.fullmatch(name):
        return False
    return any(
        name.startswith(one.removesuffix(ANY)) if one.endswith(ANY) else name == one
        for one in models
    )


def _check(models: Sequence[str]) -> None:
    """Raise `InvalidRequest` where no key can name these models."""
    if not 0 < len(models) <= MOST_MODELS:
        raise InvalidRequest(
            f"The key names {len(models)} models. Expected 1 to {MOST_MODELS}, or no `models` for "
            f"a key that counts for all. Name fewer, by what their names begin with: pump-*.",
            parameter="models",
        )
    wrong = next((one for one in models if not _are_legal([one])), None)
    if wrong is not None:
        raise InvalidRequest(
            f"{wrong[:80]!r} names no model. Expected its name, of 1 to 64 letters, digits, dots, "
            f"underscores and hyphens, the first a letter or digit, or the beginning of names and "
            f"a `*`, which may stand at the end only: pump-7, pump-*. Correct it.",
            parameter="models",
        )


def _are_legal(models: Any) -> bool:
    """Whether a key can name these models."""
    return isinstance(models, list) and all(
        isinstance(one, str) and (one == ANY or NAME.fullmatch(one.removesuffix(ANY)))
        for one in models
    )


def digest_of(secret: str) -> str:
    """What is kept of a secret.

    Example:
        >>> len(digest_of("x"))
        64
    """
    return hashlib.sha256(secret.encode("utf-8")).hexdigest()


# Keeps a key, unless there are too many; one that is there already may be kept again.
ADD: Final = """
local keys, id, data, most = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3])
if not redis.call('HGET', keys, id) and redis.call('HLEN', keys) >= most then return 0 end
redis.call('HSET', keys, id, data)
return 1
"""


class KeyStore:
    """What Redis keeps of the keys of the API.

    Arguments:
        redis: To keep it by.
    """

    def __init__(self, redis: Caller) -> None:
        self._redis = redis
        self._key = redis.keys.api_keys
        self._add = redis.client.register_script(ADD)

    async def all(self) -> list[ApiKey]:
        """What is kept of the keys of the API, oldest first."""
        values = await self._redis.read(lambda: self._redis.client.hvals(self._key))
        return sorted(map(ApiKey.from_json, values), key=lambda key: (key.made, key.id))

    async def add(self, key: ApiKey, most: int) -> bool:
        """Let a key count from now on; False where there are as many as there may be."""
        values: list[str | bytes | int] = [key.id, key.to_json(), most]
        added = await self._redis.call(
            lambda: self._add(keys=[self._key], args=values),
            away=lambda error: perhaps_done(
                error, "the key was made", "Look at GET /keys, and revoke it if nobody has it."
            ),
        )
        return bool(added)

    async def drop(self, id: str) -> bool:
        """Let a key count no more; False where there was none."""
        gone = await self._redis.call(
            lambda: self._redis.client.hdel(self._key, id),
            away=lambda error: perhaps_done(error, "the key was revoked", "Revoke it again."),
        )
        return bool(gone)

"""The address of a Redis, as `GMR_REDIS_URL` has it: a server's, a cluster's, or Sentinels'."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit, urlunsplit

from redis.connection import parse_url

from core.errors import InvalidSettings
from service.settings import mask_url

Kind = Literal["server", "cluster", "sentinel"]

SENTINEL_PORT: Final = 26379
CLUSTER_PORT: Final = 6379


@dataclass(frozen=True)
class Address:
    """What an address says.

    Arguments:
        kind: What answers there. A `server` may be a proxy in front of several.
        url: As redis-py reads it, without what says the kind; of one place, or of none.
        places: Host and port of each Sentinel, or of each node of a cluster that is named; nothing
            where one is in the URL.
        primary: The name by which Sentinels know the primary.
        login: What Sentinels themselves are told: `username` and `password`, where they want them.
    """

    kind: Kind
    url: str = field(repr=False)
    places: tuple[tuple[str, int], ...] = ()
    primary: str = ""
    login: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def is_encrypted(self) -> bool:
        """Whether TLS is spoken, with Sentinels too."""
        return self.url.startswith("rediss://")

    def options(self) -> dict[str, Any]:
        """What the URL says beside the place: login, database, and what follows the `?`.

        Raises:
            ValueError: That cannot be read.
        """
        read: Any = parse_url
        found: dict[str, Any] = dict(read(self.url))
        found.pop("connection_class", None)  # other ones are made of it
        return found

    @classmethod
    def of(cls, text: str) -> Address:
        """What is written.

        Arguments:
            text: redis://, rediss://, unix://, redis+cluster://host:port,host:port (of one the same
                as ?cluster=true), redis+sentinel://user:password@host:port,host:port/primary/0.

        Raises:
            InvalidSettings: It cannot be used.

        Example:
            >>> address = Address.of("redis+sentinel://:secret@a,b:26380/orders/1")
            >>> address.url, address.places, address.primary
            ('redis://:secret@/1', (('a', 26379), ('b', 26380)), 'orders')
        """
        try:
            return cls._of(text)
        except ValueError:
            raise bad_address(text) from None

    @classmethod
    def _of(cls, text: str) -> Address:
        parts = urlsplit(text)
        scheme, _, kind = parts.scheme.partition("+")
        query = parse_qsl(parts.query)
        if kind == "sentinel":
            return cls._of_sentinels(parts._replace(scheme=scheme), dict(query))
        if kind != "cluster" and ("cluster", "true") not in query:
            return cls("server", text)
        rest = urlencode([(name, value) for name, value in query if name != "cluster"])
        parts = parts._replace(scheme=scheme, query=rest)
        login, at, places = parts.netloc.rpartition("@")
        if "," not in places:
            return cls("cluster", urlunsplit(parts))
        return cls("cluster", _without_place(parts, f"{login}{at}"), _places(places, CLUSTER_PORT))

    @classmethod
    def _of_sentinels(cls, parts: Any, query: dict[str, str]) -> Address:
        login, at, places = parts.netloc.rpartition("@")
        primary, _, database = parts.path.removeprefix("/").partition("/")
        if not primary:
            raise ValueError("no primary")
        named = {"username": "sentinel_username", "password": "sentinel_password"}
        own = {ours: query.pop(theirs) for ours, theirs in named.items() if theirs in query}
        parts = parts._replace(path=f"/{database}", query=urlencode(query))
        url = _without_place(parts, f"{login}{at}")
        return cls("sentinel", url, _places(places, SENTINEL_PORT), unquote(primary), own)


def bad_address(text: str) -> InvalidSettings:
    """The error for an address that cannot be used."""
    # Without what the parser says: it may quote a part of the password.
    return InvalidSettings(
        f"The Redis address {mask_url(text)} cannot be used. Expected something like "
        f"redis://user:password@host:6379/0, or redis+sentinel://user:password@host:26379,"
        f"host:26379/primary/0, with / ? # @ : in user and password as %2F %3F %23 %40 %3A. "
        f"Correct GMR_REDIS_URL."
    )


def _places(text: str, port: int) -> tuple[tuple[str, int], ...]:
    return tuple(_place(one, port) for one in text.split(","))


def _place(text: str, port: int) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    if not parts.hostname:
        raise ValueError("no host")
    return parts.hostname, port if parts.port is None else parts.port


def _without_place(parts: SplitResult, login: str) -> str:
    url = urlunsplit(parts._replace(netloc=login))
    # Where nothing is left of it, `urlunsplit` leaves the slashes out.
    return url if "//" in url else url.replace(":", "://", 1)

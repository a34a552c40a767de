"""Connections to Redis: from an address to a client, and which failures pass.

The clients made here never repeat a command by themselves. Whether a command may
be repeated depends on what it does: a group read whose answer was lost would skip
entries, an append is safe because batches have ids. So each caller repeats what
it knows to be safe, and counts the failures.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.exceptions import RedisClusterException
from redis.retry import Retry

from core.errors import GMRError, InvalidSettings
from service.settings import mask_url

SyncClient = redis.Redis | redis.RedisCluster
AsyncClient = redis.asyncio.Redis | redis.asyncio.RedisCluster

SOCKET_TIMEOUT_S: Final = 10.0
"""Longest wait for an answer; blocking reads must block for less."""

FIRST_PAUSE_S: Final = 0.02
LONGEST_PAUSE_S: Final = 1.0

TRANSIENT: Final = (
    redis.ConnectionError,  # loading and full connection pools included
    redis.TimeoutError,
    redis.ReadOnlyError,  # a replica that has not been told yet that it is one no more
    redis.exceptions.ClusterError,
    RedisClusterException,
    OSError,
)
"""Failures that pass by waiting: Redis restarts, fails over, or the network is away."""

REFUSALS: Final = (redis.AuthenticationError, redis.exceptions.AuthorizationError)
"""Kinds of ConnectionError that do not pass by waiting."""


class StreamUnavailable(GMRError):
    """Redis cannot be reached or cannot take more; try again later."""


def connect(url: str) -> SyncClient:
    """A client for the trainer. Connects at the first command.

    Arguments:
        url: redis://, rediss://, unix://, or redis+cluster:// (the same as ?cluster=true).
    """
    plain, cluster = _split(url)
    never = Retry(NoBackoff(), 0)
    try:
        if cluster:
            # Opens a connection at once, to learn the cluster's layout.
            return redis.RedisCluster.from_url(plain, retry=never, **_options())
        return redis.Redis.from_url(plain, retry=never, **_options())
    except ValueError as error:
        raise _bad_url(url, error) from None


def connect_async(url: str) -> AsyncClient:
    """A client for the API. Connects at the first command.

    Arguments:
        url: As for `connect`.
    """
    plain, cluster = _split(url)
    never = AsyncRetry(NoBackoff(), 0)
    try:
        if cluster:
            return redis.asyncio.RedisCluster.from_url(plain, retry=never, **_options())
        return redis.asyncio.Redis.from_url(plain, retry=never, **_options())
    except ValueError as error:
        raise _bad_url(url, error) from None


def patiently(operation: Callable[[], Any], failed: Callable[[Exception], None]) -> Any:
    """The operation's result, repeating it while Redis is away, however long that is.

    Arguments:
        operation: Safe to repeat.
        failed: Told of each failure that may pass; may raise, to give up.

    Raises:
        InvalidSettings: Redis answers, but not to us.
    """
    pause = FIRST_PAUSE_S
    while True:
        try:
            return operation()
        except Exception as error:
            if is_refusal(error):
                raise refused(error) from error
            if not is_transient(error):
                raise
            failed(error)
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE_S)


def refused(error: Exception) -> InvalidSettings:
    """The error for a Redis that answers, but not to us."""
    return InvalidSettings(
        f"Redis refuses the connection: {error}. Check user, password and the user's rights in "
        f"GMR_REDIS_URL."
    )


def unavailable(error: Exception) -> StreamUnavailable:
    """The error for a Redis that stayed away for longer than a process can wait."""
    return StreamUnavailable(
        f"Redis cannot be reached ({type(error).__name__}: {error}). Expected it at GMR_REDIS_URL. "
        f"Start it, or correct the address."
    )


def not_told(error: Exception) -> StreamUnavailable:
    """The error for a question that Redis did not answer in time."""
    return StreamUnavailable(
        f"Redis does not answer ({type(error).__name__}), so that this cannot be told now. Ask "
        f"again in a moment; POST /classify, POST /outliers and GET /sample work meanwhile."
    )


def not_known(error: Exception, batch_id: str | None) -> StreamUnavailable:
    """The error for a write whose outcome nobody knows.

    Arguments:
        error: What happened last.
        batch_id: By which a repeat is recognised; None for a request that has none.
    """
    what = f"Redis does not answer ({type(error).__name__}), so that it is not known whether the"
    if batch_id is None:
        return StreamUnavailable(
            f"{what} request was accepted. Look at GET /model and GET /drift/boundaries in a "
            f"moment, before you send it again: it might be carried out twice."
        )
    return StreamUnavailable(
        f"{what} batch was accepted. Send the same again in a moment with the batch_id "
        f"{batch_id!r}: it is learned once in either case.",
        batch_id=batch_id,
    )


def not_checked(error: StreamUnavailable) -> StreamUnavailable:
    """The error for an entry that was not even tried, because what decides on it was not told."""
    return StreamUnavailable(
        f"Redis does not answer ({type(error.__cause__ or error).__name__}), so that it is not "
        f"known whether this can be used now; nothing was accepted. Send the same again in a "
        f"moment."
    )


def perhaps_done(error: Exception, what: str, advice: str) -> StreamUnavailable:
    """The error for a change that may be asked for again, and whose outcome nobody knows.

    Arguments:
        error: What happened last.
        what: What may have been done, as a whole sentence.
        advice: What to do.
    """
    return StreamUnavailable(
        f"Redis does not answer ({type(error).__name__}), so that it is not known whether {what}. "
        f"{advice}"
    )


def is_transient(error: BaseException) -> bool:
    """Whether waiting may help."""
    return isinstance(error, TRANSIENT) and not is_refusal(error)


def is_refusal(error: BaseException) -> bool:
    """Whether Redis answers, but wants another user or password."""
    # The asyncio client wraps it in a plain ConnectionError.
    return isinstance(error, REFUSALS) or isinstance(error.__cause__, REFUSALS)


def is_full(error: BaseException) -> bool:
    """Whether Redis has no memory left for what was asked."""
    # Redis 6.2 reports what a script met as a text within a general error.
    return isinstance(error, redis.exceptions.OutOfMemoryError) or (
        isinstance(error, redis.ResponseError) and "OOM command not allowed" in str(error)
    )


def _options() -> dict[str, Any]:
    return {
        "socket_timeout": SOCKET_TIMEOUT_S,
        "socket_connect_timeout": SOCKET_TIMEOUT_S,
        "protocol": 2,  # the one that every server speaks; answers then have one shape
    }


def _split(url: str) -> tuple[str, bool]:
    """The address as redis-py reads it, and whether it is one of a cluster's nodes."""
    parts = urlsplit(url)
    scheme, plus, _ = parts.scheme.partition("+")
    query = parse_qsl(parts.query)
    if not plus and ("cluster", "true") not in query:
        return url, False
    rest = urlencode([(name, value) for name, value in query if name != "cluster"])
    return urlunsplit(parts._replace(scheme=scheme, query=rest)), True


def _bad_url(url: str, error: Exception) -> InvalidSettings:
    return InvalidSettings(
        f"The Redis address {mask_url(url)} cannot be used: {error}. Expected something like "
        f"redis://user:password@host:6379/0; correct GMR_REDIS_URL."
    )

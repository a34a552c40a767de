"""Connections to Redis: from an address to a client, and which failures pass.

The clients made here never repeat a command by themselves. Whether a command may
be repeated depends on what it does: a group read whose answer was lost would skip
entries, an append is safe because batches have ids. So each caller repeats what
it knows to be safe, and counts the failures.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import redis
import redis.asyncio
from redis.asyncio.cluster import ClusterNode as AsyncNode
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.cluster import ClusterNode
from redis.exceptions import RedisClusterException
from redis.retry import Retry

from core.errors import GMRError, InvalidSettings
from service.broker.address import Address, bad_address
from service.broker.clustered import AsyncCluster, Cluster
from service.broker.durability import End, Examiner, WeakDurability
from service.broker.refusals import refusal_of
from service.broker.sentinel import primary_of, primary_of_async
from service.settings import Settings

SyncClient = redis.Redis | redis.RedisCluster
AsyncClient = redis.asyncio.Redis | redis.asyncio.RedisCluster

SOCKET_TIMEOUT_S: Final = 10.0
"""Longest wait for an answer; blocking reads must block for less."""

SHORT_TIMEOUT_S: Final = 3.0
"""The same where another node takes over from one that hangs."""

LAYOUT_S: Final = 2.0
"""For how long the layout of a cluster is asked for, where a node does not answer."""

NO_LIMIT: Final = 2**31
"""Most connections of one client. An API process holds two for each model that it follows, and a
client of redis-py that is out of them answers nobody; requests are bounded by the server."""

FIRST_PAUSE_S: Final = 0.02
LONGEST_PAUSE_S: Final = 1.0

TRANSIENT: Final = (
    redis.ConnectionError,  # loading and full connection pools included
    redis.TimeoutError,
    redis.ReadOnlyError,  # a replica that has not been told yet that it is one no more
    redis.exceptions.ClusterError,
    redis.exceptions.AskError,  # as is MovedError: the key has gone to another node
    redis.exceptions.TryAgainError,
    RedisClusterException,
    OSError,
)
"""Failures that pass by waiting: Redis restarts, fails over, or the network is away."""

REFUSALS: Final = (
    redis.AuthenticationError,
    redis.exceptions.AuthorizationError,
    WeakDurability,
)
"""What does not pass by waiting."""


@dataclass(frozen=True)
class Identity:
    """Files by which both sides of a TLS connection know each other.

    Arguments:
        authorities: Certificates of those whom the server's may be signed by; None: the system's.
        certificate: Shown to the server; None: none.
        key: Of that certificate.
    """

    authorities: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def options(self) -> dict[str, Any]:
        """What redis-py is told of a connection."""
        files = {
            "ssl_ca_certs": self.authorities,
            "ssl_certfile": self.certificate,
            "ssl_keyfile": self.key,
        }
        return {name: str(path) for name, path in files.items() if path is not None}


NO_IDENTITY: Final = Identity()

DRIVER: Final = redis.DriverInfo()
"""What connections say of themselves. Else redis-py reads its version from a file for each one."""


class StreamUnavailable(GMRError):
    """Redis cannot be reached or cannot take more; try again later."""


def connect(
    url: str,
    examiner: Examiner | None = None,
    identity: Identity = NO_IDENTITY,
    timeout_s: float | None = None,
) -> SyncClient:
    """A client for the trainer. Connects at the first command.

    Arguments:
        url: As `Address.of` takes it.
        examiner: Looks at each new connection.
        identity: Files by which both sides of rediss:// know each other.
        timeout_s: Longest wait for a connection, and for an answer; None: `SOCKET_TIMEOUT_S`, or
            `SHORT_TIMEOUT_S` where another node may take over.

    Raises:
        InvalidSettings: The address cannot be used.
    """
    address = Address.of(url)
    options = _options(address, identity, timeout_s) | {"retry": Retry(NoBackoff(), 0)}
    try:
        if address.kind == "cluster":
            if examiner is not None:
                # The client has introduced itself by then.
                options["redis_connect_func"] = partial(examiner.examine, cluster=True)
            return _cluster(address, options)
        if examiner is not None:
            options["redis_connect_func"] = partial(_introduced, examiner)
        if address.kind == "sentinel":
            return primary_of(address, options)
        return redis.Redis.from_url(address.url, **options)
    except ValueError:
        raise bad_address(url) from None


def connect_async(
    url: str, examiner: Examiner | None = None, identity: Identity = NO_IDENTITY
) -> AsyncClient:
    """A client for the API. Connects at the first command.

    Arguments:
        url: As for `connect`, and so are the others.

    Raises:
        InvalidSettings: The address cannot be used.
    """
    address = Address.of(url)
    options = _options(address, identity) | {"retry": AsyncRetry(NoBackoff(), 0)}
    cluster = address.kind == "cluster"

    async def introduced(connection: Any) -> None:
        await connection.on_connect()
        if examiner is not None:
            await examiner.examine_async(connection, cluster=cluster)

    try:
        if cluster:
            client = _cluster_async(address, options)
            # The client hands these on to nodes, and takes no such function itself.
            for kwargs in (client.connection_kwargs, *_of_nodes(client)):
                kwargs["redis_connect_func"] = introduced
            return client
        options["redis_connect_func"] = introduced
        if address.kind == "sentinel":
            return primary_of_async(address, options)
        return redis.asyncio.Redis.from_url(address.url, **options)
    except ValueError:
        raise bad_address(url) from None


def node_of(client: SyncClient | AsyncClient, key: str) -> Any:
    """The node of a cluster that has a key, for reads of streams.

    redis-py asks a node of its choice, at each of these, which words are keys: when that node dies
    no stream is read, unless the node that has the stream is named.

    Returns:
        A node; None without a cluster, or where the layout does not say: then the next command
        asks for a new one.
    """
    if not isinstance(client, redis.RedisCluster | redis.asyncio.RedisCluster):
        return None
    cluster: Any = client
    try:
        return cluster.get_node_from_key(key)
    except RedisClusterException:
        return None


def read_stream(
    client: SyncClient | AsyncClient, key: str, after: str, block_ms: int, count: int | None = None
) -> Any:
    """What comes to one stream after an id, as `xread` answers, from the node that has it.

    Arguments:
        client: Of an asynchronous one the answer is to be awaited.
        key: Of the stream.
        after: Id of the last record that is known.
        block_ms: Longest wait.
        count: At most so many records.
    """
    node = node_of(client, key)
    most = () if count is None else ("COUNT", count)
    named = {} if node is None else {"target_nodes": node}
    asking: Any = client
    return asking.execute_command("XREAD", *most, "BLOCK", block_ms, "STREAMS", key, after, **named)


def _introduced(examiner: Examiner, connection: Any) -> None:
    connection.on_connect()
    examiner.examine(connection)


def _cluster(address: Address, options: dict[str, Any]) -> redis.RedisCluster:
    """A client of a cluster, which asks for its layout at once.

    It may ask a node that is gone; then it is made again, as long as others may take over.
    """
    deadline = time.monotonic() + LAYOUT_S
    while True:
        try:
            if not address.places:
                return Cluster.from_url(address.url, **options)
            node: Any = ClusterNode
            nodes = [node(host, port) for host, port in address.places]
            return Cluster(startup_nodes=nodes, **_of_several(address), **options)
        except TRANSIENT as error:
            if is_refusal(error) or time.monotonic() > deadline:
                raise
        time.sleep(LONGEST_PAUSE_S / 4)


def _cluster_async(address: Address, options: dict[str, Any]) -> redis.asyncio.RedisCluster:
    if not address.places:
        return AsyncCluster.from_url(address.url, **options)
    made: Any = AsyncCluster
    nodes = [AsyncNode(host, port) for host, port in address.places]
    several = _of_several(address) | options
    client: redis.asyncio.RedisCluster = made(startup_nodes=nodes, **several)
    return client


def _of_several(address: Address) -> dict[str, Any]:
    """Options of a cluster's client where several nodes are named."""
    return address.options() | ({"ssl": True} if address.is_encrypted else {})


def _of_nodes(client: redis.asyncio.RedisCluster) -> list[dict[str, Any]]:
    return [node.connection_kwargs for node in client.startup_nodes]


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
    """The error for a Redis that answers, but not to us, or promises too little."""
    if (weak := weakness_of(error)) is not None:
        return InvalidSettings(
            f"Redis promises less than a 202 does: {weak}. Set it so, or accept that batches "
            f"which were acknowledged may be lost, by GMR_ACCEPT_WEAK_DURABILITY=true."
        )
    known = refusal_of(error)
    if known is None:
        return InvalidSettings(
            f"Redis refuses the connection: {error}. Check user, password and the user's rights "
            f"in GMR_REDIS_URL."
        )
    code, row = known
    return InvalidSettings(f"Redis refuses ({code}: {error}): {row.what}. {row.advice}")


def turned_away(error: Exception) -> StreamUnavailable:
    """The error of a request where Redis refuses it, and so has changed nothing."""
    if (weak := weakness_of(error)) is not None:
        what, advice = (
            f"Redis promises less than a 202 does ({weak})",
            ("Set it so, or accept that by GMR_ACCEPT_WEAK_DURABILITY."),
        )
    else:
        known = refusal_of(error)
        assert known is not None
        what, advice = known[1].what, known[1].advice
    return StreamUnavailable(
        f"{what[:1].upper()}{what[1:]}; nothing was accepted. Send the same again in a moment. "
        f"For whoever runs the service: {advice}",
        reason=f"{what[:1].upper()}{what[1:]}.",
    )


def too_few_replicas(got: int, wanted: int, batch_id: str | None) -> StreamUnavailable:
    """The error for an entry that too few replicas have, which may be lost with the primary.

    Arguments:
        got: Replicas that have it.
        wanted: That should.
        batch_id: By which a repeat is recognised; None for a request that has none.
    """
    again = (
        "Look at GET /model and GET /drift/boundaries in a moment, before you send it again: it "
        "may have been carried out."
    )
    numbers: dict[str, Any] = {"replicas": got, "wanted": wanted, "perhaps_done": True}
    if batch_id is not None:
        again = (
            f"Send the same again in a moment with the batch_id {batch_id!r}: it is carried out "
            f"once in either case."
        )
        numbers = {"replicas": got, "wanted": wanted, "batch_id": batch_id}
    return StreamUnavailable(
        f"Redis has the request, but {got} of {wanted} replicas have confirmed it in time. {again} "
        f"For whoever runs the service: look at the replicas, or lower GMR_REDIS_REPLICAS.",
        **numbers,
    )


def unavailable(error: Exception) -> StreamUnavailable:
    """The error for a Redis that stayed away for longer than a process can wait."""
    return StreamUnavailable(
        f"Redis cannot be reached ({type(error).__name__}: {error}). Expected it at GMR_REDIS_URL. "
        f"Start it, or correct the address."
    )


def not_told(error: Exception) -> StreamUnavailable:
    """The error for a question that Redis did not answer in time."""
    known = refusal_of(error)
    return StreamUnavailable(
        f"Redis does not answer ({type(error).__name__}), so that this cannot be told now. Ask "
        f"again in a moment; POST /classify, POST /outliers and GET /sample work meanwhile.",
        **({} if known is None else {"reason": f"{known[1].what[:1].upper()}{known[1].what[1:]}."}),
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
            f"moment, before you send it again: it might be carried out twice.",
            perhaps_done=True,
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
        f"{advice}",
        perhaps_done=True,
    )


def weakness_of(error: BaseException) -> WeakDurability | None:
    """What a Redis promises too little of, where that is why it is not used."""
    for one in (error, error.__cause__):  # the client of a cluster wraps it
        if isinstance(one, WeakDurability):
            return one
    return None


CLOSED: Final = "the handler is closed"
"""How uvloop's error ends where a connection is reset while the client introduces itself."""


def is_transient(error: BaseException) -> bool:
    """Whether waiting may help."""
    if is_refusal(error):
        return False
    if isinstance(error, TRANSIENT):
        return True
    if isinstance(error, RuntimeError) and str(error).endswith(CLOSED):
        return True
    return isinstance(error, redis.RedisError) and refusal_of(error) is not None


def is_refusal(error: BaseException) -> bool:
    """Whether Redis answers, but wants another user or password, or promises too little."""
    # The asyncio client wraps it in a plain ConnectionError.
    if isinstance(error, REFUSALS) or isinstance(error.__cause__, REFUSALS):
        return True
    known = refusal_of(error) if isinstance(error, redis.RedisError) else None
    return known is not None and not known[1].passes


def is_worth_repeating(error: BaseException) -> bool:
    """Whether what a request needs may be there within seconds."""
    known = refusal_of(error) if isinstance(error, redis.RedisError) else None
    return is_transient(error) and (known is None or known[1].soon)


def examiner_of(settings: Settings, end: End) -> Examiner:
    """What looks at the connections of one end of the stream, as the settings want it."""
    return Examiner(
        settings.model,
        end,
        accept_weak=settings.accept_weak_durability,
        replicas=settings.redis_replicas,
    )


def identity_of(settings: Settings) -> Identity:
    """The files that the settings name for rediss://."""
    return Identity(settings.redis_tls_ca, settings.redis_tls_certificate, settings.redis_tls_key)


def _options(
    address: Address, identity: Identity, timeout_s: float | None = None
) -> dict[str, Any]:
    if timeout_s is None:
        timeout_s = SOCKET_TIMEOUT_S if address.kind == "server" else SHORT_TIMEOUT_S
    return {
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "max_connections": NO_LIMIT,
        "protocol": 2,  # the one that every server speaks; answers then have one shape
        "driver_info": DRIVER,
        **(identity.options() if address.is_encrypted else {}),
    }

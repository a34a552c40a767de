"""Reads input streams: several in one command, one step ahead of whoever learns."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from typing import Any, Final, Protocol, TypeVar

import redis

from service.broker.away import AwayNodes
from service.broker.confirmed import confirmed
from service.broker.connection import SyncClient, is_refusal, is_transient, node_of, refused
from service.broker.fenced import CONFIRM_MS, LeaseLost
from service.broker.keys import GROUP

logger = logging.getLogger(__name__)

READ_PAUSE_S: Final = 0.25

LEAST_COUNT: Final = 1
MOST_COUNT: Final = 64
MOST_OF_MANY: Final = 256
"""Entries of one read of several streams, in all."""

READ_BYTES: Final = 8 * 1024 * 1024
"""About how much one read asks for: enough to hide the round trip, little to hold."""


class Unconfirmed(redis.TimeoutError):
    """Fewer replicas have the newest entries than are to have them."""


class Readable(Protocol):
    """One stream of several that are read together."""

    @property
    def stream(self) -> str:
        """Its key."""

    @property
    def mean_bytes(self) -> float:
        """Bytes of an entry, as the last ones were."""

    def prepare(self) -> None:
        """Let the group stand where it should."""

    def took(self, rows: Sequence[Any]) -> list[Any]:
        """What an answer holds."""

    def missed(self, *, counts: bool) -> None:
        """The answer did not come."""


S = TypeVar("S", bound=Readable)


def read_next(
    client: SyncClient,
    streams: Sequence[S],
    block_ms: int,
    replicas: int = 0,
    away: AwayNodes | None = None,
) -> list[tuple[S, list[Any]]]:
    """The next entries of several streams, in one command, as many of each as suit.

    Arguments:
        client: Of all of them.
        streams: One or more; on a cluster each is asked by itself, nodes at the same time and those
            of a node in turn, and the last one is waited for.
        block_ms: Longest wait in milliseconds while there are none; 0 does not wait.
        replicas: That must have entries before these are given out. An entry that only the primary
            has is lost with it; its sender, who was not answered, sends it again, and a trainer
            that had learned it would learn it twice.
        away: Told of nodes that do not answer; None where nobody asks.

    Returns:
        Streams that have entries, with these; none when the wait was over, or when Redis is away
        for the moment.

    Raises:
        InvalidSettings: Redis answers, but not to us.
        LeaseLost: Another trainer has taken over the one stream; of several, it is left out.
    """
    if len(streams) > 1 and isinstance(client, redis.RedisCluster):
        return _read_nodes(client, streams, block_ms, replicas, away)
    answer = _read(client, streams, block_ms, replicas, away)
    if answer is None:
        time.sleep(READ_PAUSE_S)
    return answer or []


def _read(
    client: SyncClient,
    streams: Sequence[S],
    block_ms: int,
    replicas: int,
    away: AwayNodes | None,
) -> list[tuple[S, list[Any]]] | None:
    """As `read_next`, in one command; None when Redis is away for the moment."""
    total = sum(stream.mean_bytes for stream in streams)
    most = min(MOST_COUNT, max(LEAST_COUNT, MOST_OF_MANY // len(streams)))
    try:
        streams = _prepared(streams)
        count = max(LEAST_COUNT, min(most, int(READ_BYTES / total)))
        names: dict[Any, Any] = {stream.stream: ">" for stream in streams}
        if replicas:
            rows = _replicated(client, names, count, block_ms, replicas)
        else:
            rows = _answer(client, names, count, block_ms)
    except Exception as error:
        passing = is_transient(error)
        lost = isinstance(error, redis.ResponseError) and str(error).startswith("NOGROUP")
        for stream in streams:
            stream.missed(counts=passing)
        if passing and away is not None and not isinstance(error, Unconfirmed):
            away.missed(streams[0].stream)
        if is_refusal(error):
            raise refused(error) from error
        if not passing and not lost:
            raise
        if passing:
            logger.warning("reading from Redis failed, trying again: %s", error)
        return None
    by_name = {stream.stream.encode(): stream for stream in streams}
    # redis-py types answers by what they could be.
    answer: Any = rows or []
    found = [(by_name[name], by_name[name].took(entries)) for name, entries in answer]
    return [(stream, entries) for stream, entries in found if entries]


def _answer(client: SyncClient, names: dict[Any, Any], count: int, block_ms: int) -> Any:
    """The answer of a read; on a cluster of one stream."""
    node = node_of(client, next(iter(names)))
    if node is None:
        return client.xreadgroup(GROUP, GROUP, names, count=count, block=block_ms or None)
    wait = ("BLOCK", block_ms) if block_ms else ()
    read = ("XREADGROUP", "GROUP", GROUP, GROUP, "COUNT", count, *wait, "STREAMS", *names, ">")
    untyped: Any = client
    return untyped.execute_command(*read, target_nodes=node)


def _replicated(
    client: SyncClient, names: dict[Any, Any], count: int, block_ms: int, replicas: int
) -> Any:
    """The answer of a read, once replicas have what it gives out.

    Raises:
        Unconfirmed: They do not have it yet.
    """
    # Without a value that marks the end: a read moves the group, which is a write, and comes last.
    rows, have = confirmed(
        client,
        next(iter(names)),
        lambda together: together.xreadgroup(
            GROUP, GROUP, names, count=count, block=block_ms or None
        ),
        replicas,
        CONFIRM_MS,
    )
    if rows and have < replicas:
        raise Unconfirmed(f"{have} of {replicas} replicas have the newest entries")
    return rows


def _prepared(streams: Sequence[S]) -> list[S]:
    ready = []
    for stream in streams:
        try:
            stream.prepare()
        except LeaseLost:
            if len(streams) == 1:
                raise
            continue  # whoever writes for it is told at the next write
        ready.append(stream)
    return ready


def _read_nodes(
    client: redis.RedisCluster,
    streams: Sequence[S],
    block_ms: int,
    replicas: int,
    away: AwayNodes | None,
) -> list[tuple[S, list[Any]]]:
    """As `read_next`, on a cluster.

    A node that is away costs one attempt, however many streams are on it.
    """
    of_node: dict[Any, list[S]] = defaultdict(list)
    for stream in streams:
        of_node[node_of(client, stream.stream)].append(stream)
    with ThreadPoolExecutor(len(of_node), "gmr-node") as threads:
        answers = threads.map(
            lambda own: _read_in_turn(client, own, replicas, away), of_node.values()
        )
        found = [one for answer in answers for one in answer]
    return found or _read_in_turn(client, streams[-1:], replicas, away, block_ms)


def _read_in_turn(
    client: SyncClient,
    streams: Sequence[S],
    replicas: int,
    away: AwayNodes | None,
    block_ms: int = 0,
) -> list[tuple[S, list[Any]]]:
    """Entries of the streams of one node, up to the first that it does not answer for."""
    found: list[tuple[S, list[Any]]] = []
    for stream in streams:
        try:
            answer = _read(client, [stream], block_ms, replicas, away)
        except LeaseLost:
            time.sleep(block_ms / 1000)
            continue  # whoever writes for it is told at the next write
        if answer is None:
            if away is None or block_ms:  # or the next read would begin at once, and fail
                time.sleep(READ_PAUSE_S)
            break
        found += answer
    return found


class Reader:
    """Reads one step ahead, on a thread: learning does not wait for Redis to send.

    Arguments:
        client: Of all streams.
        replicas: As for `read_next`.
        away: Told of nodes that do not answer; None where nobody asks.

    Example:
        reader.ask([feed], 250)
        while (found := reader.next(0.05)) is None:
            ...  # a read is under way
        # None is: streams may be opened and closed here
        reader.ask([feed], 250)
    """

    def __init__(
        self,
        client: SyncClient,
        replicas: int = 0,
        away: AwayNodes | None = None,
    ) -> None:
        self._client = client
        self._replicas = replicas
        self._away = away
        self._thread = ThreadPoolExecutor(1, "gmr-reader")
        self._next: Future[Any] | None = None

    @property
    def asked(self) -> bool:
        """Whether a read is under way, or its answer waits."""
        return self._next is not None

    def ask(self, streams: Sequence[Readable], block_ms: int) -> None:
        """Begin a read. None may be under way.

        Arguments:
            streams: Of which.
            block_ms: Its longest wait, in milliseconds.
        """
        assert self._next is None
        self._next = self._thread.submit(
            read_next, self._client, streams, block_ms, self._replicas, self._away
        )

    def next(self, timeout_s: float) -> list[tuple[Any, list[Any]]] | None:
        """Streams with their next entries; None while the read goes on."""
        assert self._next is not None
        try:
            found: list[tuple[Any, list[Any]]] = self._next.result(timeout_s)
        except NotYet:
            return None
        self._next = None
        return found

    def close(self) -> None:
        """Stop reading. What was read ahead is forgotten; see `Feed.go_back`."""
        self._thread.shutdown()

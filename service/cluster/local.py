"""A cluster on one machine, for trying: nodes of Ray on addresses of loopback, with one Redis.

Ray's own `cluster_utils` makes the nodes; all of them end with the process.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, chdir, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import ray
from pydantic import SecretStr

from core.errors import InvalidSettings
from service.broker.lease import DirectoryLock
from service.cluster.answer import answer
from service.cluster.fleet import namespace_of
from service.settings import Settings
from service.supervisor.embedded import EmbeddedRedis, find_binary
from service.supervisor.part import Deaths, Part, PartFailed, describe, keeps_dying

logger = logging.getLogger(__name__)

HEALTH_CHECK: Final = {
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
}
"""A node that is silent for three seconds is gone; Ray's default is twelve to sixty-five."""

FIRST: Final = 2
"""Ray takes 127.0.0.1 for the machine's other address, and then waits for itself for ever."""

LOOK_S: Final = 0.2
REACH_S: Final = 5.0
API_STOP_S: Final = 30.0
"""Longest wait for the API to end; requests that are under way are answered within."""


@dataclass(frozen=True)
class Local:
    """A cluster of this process.

    Arguments:
        settings: With the addresses of its Redis and its store.
        nodes: Of Ray.
        address: Of Ray.
        redis: Its own; None where one was named.
    """

    settings: Settings
    nodes: Any  # ray.cluster_utils.Cluster, which has no types
    address: str
    redis: EmbeddedRedis | None = None


@contextmanager
def local_cluster(settings: Settings, nodes: int) -> Iterator[Local]:
    """Nodes of Ray on this machine, and a Redis where none is named; connected to.

    Arguments:
        settings: Of the cluster.
        nodes: How many.
    """
    os.environ.update({**HEALTH_CHECK, **os.environ})
    from ray.cluster_utils import Cluster

    data_dir = settings.data_dir.absolute()
    with ExitStack() as stack:
        changes: dict[str, object] = {"data_dir": data_dir}
        server = None
        if settings.redis_address() is None:
            lock = stack.enter_context(DirectoryLock(data_dir, "service"))
            binary = find_binary(settings.redis_binary)
            server = EmbeddedRedis(data_dir, binary, settings.redis_maxmemory_mib, lock)
            server.start()
            stack.callback(server.stop)
            changes["redis_url"] = SecretStr(server.url)
        if not settings.checkpoints_in_store:
            changes["checkpoints"] = f"file://{data_dir}/store"
        make: Any = Cluster  # which has no types
        places = [f"127.0.0.{FIRST + place}" for place in range(nodes)]
        head = {"node_ip_address": places[0], "include_dashboard": False, "num_cpus": 1}
        cluster = make(initialize_head=True, head_node_args=head)
        stack.callback(cluster.shutdown)
        for place in places[1:]:
            cluster.add_node(node_ip_address=place, num_cpus=1)
        own = settings.model_copy(update=changes)
        attach(cluster.address, own.model, places[0])
        stack.callback(ray.shutdown)
        yield Local(own, cluster, cluster.address, server)


@contextmanager
def asked_to_end() -> Iterator[threading.Event]:
    """What Ctrl-C and SIGTERM set, as long as this lasts. From the main thread.

    Ray has handlers of its own, by which the process would end at once, and whoever begins it in
    the background may have Ctrl-C ignored.
    """
    asked = threading.Event()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: asked.set()) for number in numbers]
    try:
        yield asked
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def tend(made: Local, asked: threading.Event) -> None:
    """Have an API process answer for all models; begin what ends again.

    That is the API, the embedded Redis and nodes of Ray, but for its head.

    Arguments:
        made: The cluster.
        asked: Set when this is to return. The life of the API is tied to the thread of this call.

    Raises:
        InvalidSettings: The API cannot work with the settings.
        PartFailed: The API, Redis or a node keeps dying, or Ray's head has died.
    """
    settings = made.settings
    environment = {**os.environ, **settings.environment(), "GMR_CLUSTER": "true"}
    api = Part("API", "service.api", environment, Deaths(settings.deaths_per_minute))
    deaths = Deaths(settings.deaths_per_minute)
    of_nodes = Deaths(settings.deaths_per_minute)
    try:
        api.start()
        while not asked.wait(LOOK_S):
            if made.redis is not None and (status := made.redis.poll()) is not None:
                pause = deaths.count()
                if pause is None:
                    raise keeps_dying("embedded Redis")
                logger.error("the embedded Redis died (%s); starting it again", describe(status))
                if asked.wait(pause):
                    return
                made.redis.start(asked.is_set)
            for node in _dead(made.nodes):
                pause = of_nodes.count()
                if pause is None:
                    raise keeps_dying("nodes of Ray")
                if asked.wait(pause):
                    return
                _replace(made.nodes, node)
            api.watch()
    finally:
        api.stop(API_STOP_S)


def _dead(nodes: Any) -> list[Any]:
    """Nodes whose raylet has ended.

    Raises:
        PartFailed: The head is one of them.
    """
    if nodes is None:
        return []
    if nodes.head_node.dead_processes():
        raise PartFailed(
            "The head of Ray has died, and with it what it knew of hosts; models are as they were. "
            "Give `gmr cluster up --local` again, with the same data dir."
        )
    return [
        node
        for node in nodes.worker_nodes
        if "raylet" in (kind for kind, _ in node.dead_processes())
    ]


def _replace(nodes: Any, node: Any) -> None:
    """Begin a node where one has died; Ray has begun its hosts elsewhere, or does so there."""
    place = node.node_ip_address
    logger.error("the node of Ray on %s died; beginning another there", place)
    nodes.remove_node(node, allow_graceful=False)
    nodes.add_node(node_ip_address=place, num_cpus=1)


def attach(address: str | None, model: str, place: str | None = None) -> None:
    """Connect to Ray.

    Arguments:
        address: Of the head; None: what Ray finds by itself (RAY_ADDRESS, or this machine's).
        model: The `GMR_MODEL` of the cluster.
        place: Of this process, where it is not what Ray would take.

    Raises:
        InvalidSettings: There is no Ray.
        RaySilent: It does not answer.
    """
    address = address or os.environ.get("RAY_ADDRESS") or "auto"
    if address != "auto":
        _reach(address)
    more: dict[str, Any] = {} if place is None else {"_node_ip_address": place}
    try:
        # Hosts import from the folder in which Ray is connected to before anywhere else: from a
        # checkout they would run its code, whatever is installed on their node.
        with chdir(sys.prefix):
            answer(
                lambda: ray.init(
                    address=address,
                    namespace=namespace_of(model),
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    **more,
                )
            )
    except ConnectionError as error:
        raise _no_ray(address, error) from error


def _reach(address: str) -> None:
    """Return when somebody listens there: Ray itself would try for a quarter of an hour."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise InvalidSettings(
            f"The address of Ray is {address!r}; expected HOST:PORT of its head. Correct --address "
            f"or RAY_ADDRESS."
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH_S).close()
    except (OSError, OverflowError) as error:
        raise _no_ray(address, error) from error


def _no_ray(address: str, error: Exception) -> InvalidSettings:
    where = "on this machine" if address == "auto" else f"at {address}"
    return InvalidSettings(
        f"No Ray answers {where} ({error}). Expected the head of a cluster. Start it by `ray start "
        f"--head`, or name another by --address or RAY_ADDRESS; `gmr cluster up --local 3` tries a "
        f"cluster on this machine."
    )

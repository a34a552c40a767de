"""A cluster on one machine, for trying: nodes of Ray on addresses of loopback, with one Redis.

Ray's own `cluster_utils` makes the nodes; all of them end with the process.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import ray
from pydantic import SecretStr

from service.broker.lease import DirectoryLock
from service.cluster.fleet import namespace_of
from service.settings import Settings
from service.supervisor.embedded import EmbeddedRedis, find_binary
from service.supervisor.kinship import die_with_parent

HEALTH_CHECK: Final = {
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
}
"""A node that is silent for three seconds is gone; Ray's default is twelve to sixty-five."""

FIRST: Final = 2
"""Ray takes 127.0.0.1 for the machine's other address, and then waits for itself for ever."""


@dataclass(frozen=True)
class Local:
    """A cluster of this process.

    Arguments:
        settings: With the addresses of its Redis and its store.
        nodes: Of Ray.
        address: Of Ray.
    """

    settings: Settings
    nodes: Any  # ray.cluster_utils.Cluster, which has no types
    address: str


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
        yield Local(own, cluster, cluster.address)


@contextmanager
def answering(settings: Settings) -> Iterator[None]:
    """An API process that answers for all models of a cluster, as long as this lasts.

    Arguments:
        settings: Of the cluster. From the main thread: the life of the process is tied to that.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "service.api"],
        stdin=subprocess.DEVNULL,
        env={**os.environ, **settings.environment(), "GMR_CLUSTER": "true"},
        process_group=0,  # Ctrl-C in a terminal reaches a whole group; the order is ours to keep
        preexec_fn=die_with_parent(signal.SIGTERM),
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def attach(address: str | None, model: str, place: str | None = None) -> None:
    """Connect to Ray.

    Arguments:
        address: Of the head; None: what Ray finds by itself (RAY_ADDRESS, or this machine's).
        model: The `GMR_MODEL` of the cluster.
        place: Of this process, where it is not what Ray would take.
    """
    more: dict[str, Any] = {} if place is None else {"_node_ip_address": place}
    ray.init(
        address=address or "auto",
        namespace=namespace_of(model),
        log_to_driver=False,
        logging_level=logging.ERROR,
        **more,
    )

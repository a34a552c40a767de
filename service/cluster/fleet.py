"""The hosts of a cluster as Ray has them: begun, asked, moved and ended. Nothing is kept here.

Who runs, and where, is for Ray to say; who may write, for the fence in Redis. So every command may
be given twice, by two people at once, or be cut off: the worst is a host more that stands by.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from core.errors import InvalidSettings
from service.cluster.answer import answer
from service.cluster.buckets import settings_of
from service.cluster.host import Host
from service.settings import Settings

ANSWER_S: Final = 5.0
READY_S: Final = 120.0
STOP_S: Final = 120.0
LOOK_S: Final = 0.1

READY: Final = ("standing by", "leading")


@dataclass(frozen=True)
class HostRow:
    """One host, as it answered.

    Arguments:
        name: Of the actor: bucket and number.
        bucket: That it serves.
        node: The id of its node; empty where it does not answer.
        address: Of that node.
        phase: What it does, or "no answer".
        error: Why it refuses; None where it does not.
        pid: Its process; None where it does not answer.
    """

    name: str
    bucket: int
    node: str
    address: str
    phase: str
    error: str | None = None
    pid: int | None = None


def namespace_of(model: str) -> str:
    """Ray's namespace of the hosts of a cluster."""
    return f"gmr-{model}"


class Fleet:
    """The hosts of one cluster. Ray is connected to, in the namespace of the model.

    Arguments:
        settings: Of the cluster; each bucket has them with a `GMR_MODEL` and a data dir of its own.
        buckets: How many there are.
    """

    def __init__(self, settings: Settings, buckets: int) -> None:
        self._settings = settings
        self._buckets = buckets
        self._namespace = namespace_of(settings.model)

    def names(self) -> list[str]:
        """Of all hosts."""
        rows: Any = answer(lambda: ray.util.list_named_actors(all_namespaces=True))
        found = [row["name"] for row in rows if row["namespace"] == self._namespace]
        return sorted(name for name in found if _bucket(name) < self._buckets)

    def up(self, standby: int = 0) -> list[str]:
        """Begin the hosts that are missing; their names.

        Arguments:
            standby: Hosts of each bucket beside the one that leads.
        """
        begun = []
        for bucket in range(self._buckets):
            there = self._of(bucket)
            for _ in range(1 + standby - len(there)):
                name = self._next(bucket)
                self._begin(name, "SPREAD")
                begun.append(name)
        return begun

    def status(self) -> list[HostRow]:
        """Every host."""
        addresses = _alive()
        asked = {name: actor.status.remote() for name, actor in self._actors().items()}
        waits = list(asked.values())
        answered, _ = (
            ray.wait(waits, num_returns=len(waits), timeout=ANSWER_S) if waits else ([], 0)
        )
        there = {name: _got(ask) for name, ask in asked.items() if ask in answered}
        return [_row(name, there.get(name), addresses) for name in self.names()]

    def move(self, bucket: int, node: str) -> float:
        """Let a bucket be led on another node; seconds for which nobody led it.

        It has as many hosts as before. One that stands by there takes over; else one is begun.

        Arguments:
            bucket: Of which.
            node: Id of a node, or how it begins, or its address.

        Returns:
            0 where it is led there already.

        Raises:
            InvalidSettings: There is no such node or bucket, or the new host does not get ready.
        """
        if not 0 <= bucket < self._buckets:
            raise InvalidSettings(
                f"There is no bucket {bucket}; expected 0 to {self._buckets - 1}."
            )
        to = _node(node)
        rows = [row for row in self.status() if row.bucket == bucket]
        if any(row.node == to and row.phase == "leading" for row in rows):
            return 0.0
        ready = [row.name for row in rows if row.node == to and row.phase in READY]
        name = ready[0] if ready else self._begin_ready(bucket, to)
        # Any host that stands by may take the lease: the one that is to have it is left alone.
        rest = sorted((row for row in rows if row.name != name), key=_leads)
        seconds = self._end_in_favour_of(name, [row.name for row in rest])
        for row in rest[: len(rows) - 1]:
            self._begin(self._next(bucket), _on(row.node) if row.node else "SPREAD")
        return seconds

    def drain(self, node: str) -> list[str]:
        """Let no host be on a node; the names of those that were.

        Arguments:
            node: Id of a node, or how it begins, or its address.

        Raises:
            InvalidSettings: There is no such node, or no other.
        """
        gone = _node(node)
        others = [id for id in _with_processors() if id != gone]
        if not others:
            raise InvalidSettings("There is no other node. Add one, then drain this one.")
        rows = self.status()
        moved = [row for row in rows if row.node == gone]
        places = [(row.bucket, row.node) for row in rows if row.node != gone]
        for row in moved:
            # Two hosts of a bucket on one node would die together.
            to = min(others, key=lambda id: _crowd(places, row.bucket, id))
            places.append((row.bucket, to))
            name = self._begin_ready(row.bucket, to)
            self._end_in_favour_of(name, [row.name])
        return [row.name for row in moved]

    def down(self) -> list[str]:
        """End all hosts in order; their names. Those that do not answer are killed."""
        names = self.names()
        self._end(names)
        return names

    # Within -----------------------------------------------------------------------------

    def _of(self, bucket: int) -> list[str]:
        return [name for name in self.names() if _bucket(name) == bucket]

    def _next(self, bucket: int) -> str:
        number = 1 + max((int(name.partition(".")[2]) for name in self._of(bucket)), default=-1)
        return f"b{bucket:03d}.{number}"

    def _begin(self, name: str, where: Any) -> None:
        own = settings_of(self._settings, _bucket(name)).environment(without_defaults=True)
        own["GMR_STANDBY"] = "true"
        # Of the API alone. Whoever reaches Ray reads what an actor was begun with.
        own.pop("GMR_ADMIN_KEY", None)
        actor: Any = ray.remote(Host)
        host = actor.options(
            name=name,
            namespace=self._namespace,
            lifetime="detached",
            get_if_exists=True,
            max_restarts=-1,
            max_concurrency=4,
            num_cpus=0.01,  # what a bucket takes is for its models to say
            scheduling_strategy=where,
        )
        answer(lambda: host.remote(own))

    def _begin_ready(self, bucket: int, node: str) -> str:
        """Begin a host on a node; its name, once it could lead."""
        name = self._next(bucket)
        self._begin(name, _on(node))
        self._until(name, READY, READY_S)
        return name

    def _end_in_favour_of(self, name: str, rest: Sequence[str]) -> float:
        """End hosts of the bucket of one that is ready, one by one; seconds until it is led again.

        Arguments:
            name: Of the one that is ready. It leads then, unless others of its bucket stand by.
            rest: Hosts to end, in this order.
        """
        began = time.monotonic()
        for one in rest:
            began = time.monotonic()
            self._end([one])
        alone = len(self._of(_bucket(name))) == 1
        self._until(name, ("leading",) if alone else READY, READY_S)
        return time.monotonic() - began

    def _until(self, name: str, phases: Sequence[str], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while True:
            status = self._ask(name, "status") or {"phase": "no answer", "error": None}
            if status["phase"] in phases:
                return
            if status["error"] or time.monotonic() > deadline:
                raise InvalidSettings(
                    f"Host {name} is {status['phase']} after {timeout_s:.0f} s, and should be "
                    f"{' or '.join(phases)}. {status['error'] or 'See the logs of Ray.'}"
                )
            time.sleep(LOOK_S)

    def _end(self, names: Sequence[str]) -> None:
        """End hosts in order, all at the same time; kill those that take too long."""
        for name in names:
            self._ask(name, "stop")
        deadline = time.monotonic() + STOP_S
        for name in names:
            while time.monotonic() < deadline:
                status = self._ask(name, "status")
                if status is None or status["phase"] in ("ended", "refused"):
                    break
                time.sleep(LOOK_S)
            if (actor := self._actor(name)) is not None:
                answer(partial(ray.kill, actor, no_restart=True))

    def _actors(self) -> dict[str, Any]:
        found = {name: self._actor(name) for name in self.names()}
        return {name: actor for name, actor in found.items() if actor is not None}

    def _actor(self, name: str) -> Any:
        try:
            return answer(lambda: ray.get_actor(name, namespace=self._namespace))
        except ValueError:
            return None

    def _ask(self, name: str, what: str) -> Any:
        """The answer of a host; None where there is none."""
        actor = self._actor(name)
        if actor is None:
            return None
        return _got(getattr(actor, what).remote())


def _row(name: str, status: Any, addresses: Mapping[str, str]) -> HostRow:
    if status is None:
        return HostRow(name, _bucket(name), "", "", "no answer")
    node = status["node"]
    place = node, addresses.get(node, "")
    return HostRow(name, _bucket(name), *place, status["phase"], status["error"], status["pid"])


def _got(asked: Any) -> Any:
    """The answer to what was asked; None where there is none."""
    try:
        return ray.get(asked, timeout=ANSWER_S)
    except (ray.exceptions.RayError, ray.exceptions.GetTimeoutError):
        return None


def _bucket(name: str) -> int:
    return int(name[1:4])


def _leads(row: HostRow) -> bool:
    return row.phase == "leading"


def _on(node: str) -> Any:
    """To be begun on that node, or elsewhere where it is gone."""
    return NodeAffinitySchedulingStrategy(node, soft=True)


def _crowd(places: Sequence[tuple[int, str]], bucket: int, node: str) -> tuple[int, int, str]:
    """How little a node suits a host of a bucket: hosts of that bucket there, then all hosts."""
    there = [one for one, id in places if id == node]
    return there.count(bucket), len(there), node


def _nodes() -> list[Any]:
    """Those that live, as Ray tells of them."""
    ask: Any = ray.nodes  # which has no types
    return [node for node in answer(ask) if node["Alive"]]


def _alive() -> dict[str, str]:
    """Id to address of the nodes that live."""
    return {node["NodeID"]: node["NodeManagerAddress"] for node in _nodes()}


def _with_processors() -> list[str]:
    """Ids of the nodes that live and may have hosts: a head may be told to have none."""
    return sorted(node["NodeID"] for node in _nodes() if node["Resources"].get("CPU"))


def _node(wanted: str) -> str:
    alive = _alive()
    found = [id for id, address in alive.items() if id.startswith(wanted) or address == wanted]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(f"{id[:8]} ({address})" for id, address in sorted(alive.items()))
    how_many = f"{len(found)} nodes are" if found else "No node is"
    raise InvalidSettings(
        f"{how_many} called {wanted!r}; expected the address of one, or how its id begins. Name "
        f"one of {listed}."
    )

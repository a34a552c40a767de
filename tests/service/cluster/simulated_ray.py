"""Ray as far as `service.cluster.fleet` asks it: actors with names, on nodes, in this process.

A host here has the lease of its bucket or waits for it, and imports nothing.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


@dataclass
class Affinity:
    """Where an actor is to be."""

    node: str
    soft: bool


@dataclass
class Actor:
    """A host."""

    ray: SimulatedRay
    name: str
    namespace: str
    node: str
    ended: bool = False
    status: Any = None
    stop: Any = None

    def __post_init__(self) -> None:
        self.status = SimpleNamespace(remote=lambda: self._status)
        self.stop = SimpleNamespace(remote=lambda: self._stop)

    def __hash__(self) -> int:
        return hash(self.name)

    def _status(self) -> dict[str, object]:
        phase = "ended" if self.ended else self.ray.phase(self)
        return {"phase": phase, "error": None, "pid": 1, "node": self.node}

    def _stop(self) -> None:
        self.ended = True
        self.ray.told.append(f"{self.name} ends")


@dataclass
class SimulatedRay:
    """Nodes and what runs on them. Of those that stand by, the one begun first takes over.

    Arguments:
        processors: Node to how many it has.
        frozen: What of Ray's functions never answers, as where its head is stopped.
    """

    processors: dict[str, int]
    actors: list[Actor] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    hanging: set[str] = field(default_factory=set)
    waited: int = 0
    runs: bool = True
    frozen: set[str] = field(default_factory=set)
    environments: dict[str, dict[str, str]] = field(default_factory=dict)

    def phase(self, actor: Actor) -> str:
        bucket = actor.name.partition(".")[0]
        able = [one for one in self.actors if one.name.startswith(bucket) and not one.ended]
        return "leading" if able[0] is actor else "standing by"

    def places(self) -> dict[str, str]:
        """Node and phase of each host."""
        return {one.name: f"{one.node} {self.phase(one)}" for one in self.actors}

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let it be what `import ray` finds."""
        ray, util, strategies = (
            ModuleType(name) for name in ("ray", "ray.util", "ray.util.scheduling_strategies")
        )
        errors = SimpleNamespace(RayError=RuntimeError, GetTimeoutError=TimeoutError)
        ray.__dict__.update(
            util=util,
            exceptions=errors,
            init=self._unless_frozen("init", self._init),
            nodes=self._unless_frozen("nodes", self._nodes),
            remote=lambda _: SimpleNamespace(options=self._options),
            get=self._get,
            wait=self._wait,
            get_actor=self._unless_frozen("get_actor", self._get_actor),
            kill=self._unless_frozen("kill", self._kill),
        )
        util.__dict__["list_named_actors"] = self._unless_frozen("list", self._list)
        strategies.__dict__["NodeAffinitySchedulingStrategy"] = Affinity
        for module in (ray, util, strategies):
            monkeypatch.setitem(sys.modules, module.__name__, module)
        # They import this one, and are imported anew after it.
        for name in ("service.cluster.fleet", "service.cluster.local"):
            monkeypatch.setitem(sys.modules, name, ModuleType(name))
            del sys.modules[name]

    def _unless_frozen(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            if name in self.frozen:
                threading.Event().wait()
            return function(*arguments, **named)

        return call

    def _list(self, all_namespaces: bool) -> list[dict[str, str]]:
        return [{"name": one.name, "namespace": one.namespace} for one in self.actors]

    def _init(self, **_: Any) -> None:
        if not self.runs:
            raise ConnectionError("Could not find any running Ray instance.")

    def _nodes(self) -> list[dict[str, object]]:
        return [
            {
                "NodeID": node,
                "NodeManagerAddress": f"10.0.0.{number}",
                "Alive": True,
                "Resources": {"CPU": float(count)} if count else {},
            }
            for number, (node, count) in enumerate(self.processors.items(), 1)
        ]

    def _options(self, *, name: str, namespace: str, scheduling_strategy: Any, **_: Any) -> Any:
        able = [node for node, count in self.processors.items() if count]
        spread = able[len(self.actors) % len(able)]
        strategy = scheduling_strategy
        node = strategy.node if isinstance(strategy, Affinity) else spread

        def begin(environment: dict[str, str]) -> Actor:
            actor = Actor(self, name, namespace, node)
            self.actors.append(actor)
            self.environments[name] = environment
            self.told.append(f"{name} begins on {node}")
            return actor

        begin_it: Callable[[dict[str, str]], Actor] = begin
        return SimpleNamespace(remote=self._unless_frozen("begin", begin_it))

    def _get(self, ask: Any, timeout: float) -> Any:
        self.waited += 1
        return ask()

    def _wait(self, asks: list[Any], num_returns: int, timeout: float) -> Any:
        """Hosts that hang are waited for once, whatever their number."""
        self.waited += 1
        hang = [one for one in asks if one.__self__.name in self.hanging]
        return [one for one in asks if one not in hang], hang

    def _get_actor(self, name: str, namespace: str) -> Actor:
        for one in self.actors:
            if (one.name, one.namespace) == (name, namespace):
                return one
        raise ValueError(name)

    def _kill(self, actor: Actor, no_restart: bool) -> None:
        self.actors.remove(actor)

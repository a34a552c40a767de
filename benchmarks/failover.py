"""How long is a model without a trainer when a process or a machine dies, freezes or is drained?

Three nodes of Ray on one machine, as `gmr cluster up --local 3` makes them, an embedded Redis, a
folder as store, a lease of 3 s, Ray's health check at 1 s/1 s/3. Ten batches a second (D = 16,
K = 20, B = 100) go on being appended. *Back* is the time from the fault until another trainer reads
on (its status), *caught up* until it has applied all that was sent by then. A fault is SIGKILL of
the host's process; of its node's processes and the host; SIGSTOP of these, which are thawed later.
The oracle: the state of the newest checkpoint afterwards is, byte for byte, that of a lone engine
over the batches that were acknowledged, and the number of entries is theirs. *Moved* is a bucket of
named models that have learned, from the end of one host to the lead of the next, while batches are
appended. All nodes share a machine, so that a process that is gone is known to be gone at once:
elsewhere its lease must run out, up to 3 s more, unless Ray took as long to notice.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson
import torch

from clients.commands.bench import Measurement, Say, Table
from core.batch import Batch
from core.engine.checkpoint import dump, load
from core.engine.engine import Engine
from service.broker.connection import connect
from service.broker.keys import Keys
from service.broker.registry import DOORBELL_LENGTH, REGISTER, NamedModel
from service.broker.stream import Stream
from service.cluster.buckets import service_of
from service.cluster.fleet import Fleet, HostRow
from service.cluster.local import Local, local_cluster
from service.settings import Settings
from service.store.choice import objects_of
from service.store.in_objects import parse
from service.wire import RawBatch

D: Final = 16
B: Final = 100
PAUSE_S: Final = 0.1
TIMEOUT_S: Final = 180.0
FAULTS: Final = ("process dies", "node dies", "node frozen")


def measure(quick: bool, say: Say) -> Measurement:
    """Quick: one process that dies, and a bucket of two models that is moved."""
    cases = [("process dies", 0)] if quick else [(f, s) for s in (0, 1) for f in FAULTS]
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        values: dict[str, Any] = {
            "data_dir": Path(folder),
            "device": "cpu",
            "n_components": 20,
            "n_factors": 4,
            "lease_s": 3.0,
            "settle_after_s": 3600,  # so that the log is what was sent
            "trainer_niceness": 0,
        }
        settings = Settings(**values)
        with local_cluster(settings, 2 if quick else 3) as local:
            for number, (fault, standby) in enumerate(cases):
                results.append(_fault(local, f"case{number}", fault, standby))
                say(str(results[-1]))
            moved = _moved(local, 2 if quick else 50)
            say(str(moved))
    rows = [
        (
            f"{one['fault']}{', one stands by' if one['standby'] else ''}",
            f"{one['back']:.1f} s",
            f"{one['caught_up']:.1f} s",
            "equal" if one["equal"] else "NOT EQUAL",
        )
        for one in results
    ]
    rows.append(
        (
            f"bucket of {moved['models']} models moved",
            f"{moved['seconds']:.1f} s",
            "",
            "nothing refused" if not moved["refused"] else f"{moved['refused']} refused",
        )
    )
    table = Table("A trainer that goes", ("what", "back", "caught up", "model"), tuple(rows))
    return Measurement((table,), {"faults": results, "moved": moved})


# One fault --------------------------------------------------------------------------------


def _fault(local: Local, name: str, fault: str, standby: int) -> dict[str, Any]:
    cluster = local.settings.model_copy(update={"model": name})
    own = cluster.model_copy(update={"model": service_of(name, 0)})
    fleet = Fleet(cluster, 1)
    fleet.up(standby)
    leader = _led(fleet, own)
    head = local.nodes.head_node.node_ip_address
    if leader.address == head:  # which must live: the one who asks is there
        fleet.move(0, next(one for one in _addresses(local) if one != head))
        leader = _led(fleet, own)
    [node] = [
        node for node in local.nodes.list_all_nodes() if node.node_ip_address == leader.address
    ]
    assert leader.pid is not None
    pid: int = leader.pid
    with connect(str(own.redis_address())) as client:
        keys = Keys(own.model)

        def status() -> dict[str, Any]:
            return _json(client.get(keys.status))

        with _sending(own) as sent:
            _until(lambda: len(sent) >= 20 and status().get("entries_applied", 0) >= 10)
            began = time.monotonic()
            thaw = _hit(fault, pid, node)
            _until(lambda: status().get("pid") != pid)
            _until(lambda: status().get("state") == "running")
            back, due = time.monotonic() - began, len(sent)
            _until(lambda: status().get("entries_applied", 0) >= due)
            caught_up = time.monotonic() - began
            thaw()
            _until(lambda: not _is_there(pid))
        _until(lambda: status().get("entries_applied", 0) >= len(sent))
        fleet.down()
        if fault != "process dies":
            with suppress(Exception):
                local.nodes.remove_node(node, allow_graceful=False)
            local.nodes.add_node(node_ip_address=node.node_ip_address, num_cpus=1)
        text: Any = client.get(keys.checkpoints)
        found = parse(text, objects_of(own)) or []
    state, config, _ = load(found[0].read())
    theirs = hashlib.sha256(dump(state, config, {})).hexdigest()
    return {
        "fault": fault,
        "standby": standby,
        "back": back,
        "caught_up": caught_up,
        "sent": len(sent),
        "equal": theirs == _plain(own, sent) and found[0].entries_applied == len(sent),
    }


def _hit(fault: str, pid: int, node: Any) -> Callable[[], None]:
    """Do it; what is given undoes it, where it can be."""
    processes = [one.process.pid for some in node.all_processes.values() for one in some]
    if fault == "process dies":
        os.kill(pid, signal.SIGKILL)
        return lambda: None
    if fault == "node dies":
        for one in (*processes, pid):
            os.kill(one, signal.SIGKILL)
        return lambda: None
    for one in (*processes, pid):
        os.kill(one, signal.SIGSTOP)

    def thaw() -> None:
        for one in (*processes, pid):
            with suppress(ProcessLookupError):
                os.kill(one, signal.SIGCONT)

    return thaw


def _led(fleet: Fleet, own: Settings) -> HostRow:
    found: list[HostRow] = []

    def leads() -> bool:
        rows = fleet.status()
        found[:] = [row for row in rows if row.phase == "leading" and row.address]
        return bool(found) and all(row.phase in ("leading", "standing by") for row in rows)

    _until(leads)
    return found[0]


@contextmanager
def _sending(own: Settings) -> Iterator[list[RawBatch]]:
    """Batches that were acknowledged, ever more of them."""
    sent: list[RawBatch] = []
    ended = threading.Event()

    async def send() -> None:
        async with Stream.open(own) as stream:
            while not ended.is_set():
                batch = _batch(len(sent))
                await stream.append(batch)
                sent.append(batch)
                await asyncio.sleep(PAUSE_S)

    thread = threading.Thread(target=lambda: asyncio.run(send()))
    thread.start()
    try:
        yield sent
    finally:
        ended.set()
        thread.join()


def _batch(number: int) -> RawBatch:
    random = np.random.default_rng(number)
    centres = 4 * np.random.default_rng(0).normal(size=(3, D))
    features = centres[random.integers(3, size=B)] + random.normal(size=(B, D))
    return RawBatch.of(features.astype("f4"), None, f"batch-{number}")


def _plain(own: Settings, sent: list[RawBatch]) -> str:
    """The state of a lone engine over what was acknowledged, as a digest."""
    torch.set_flush_denormal(True)
    torch.set_num_threads(1)
    engine = Engine(own.engine_config())
    state = engine.start()
    for raw in sent:
        state, _ = engine.step(state, _given(raw))
    return hashlib.sha256(dump(state, own.engine_config(), {})).hexdigest()


def _given(raw: RawBatch) -> Batch:
    return Batch(torch.from_numpy(raw.features.copy()), None, raw.vocabulary, raw.sample_ids)


# A planned move ---------------------------------------------------------------------------


def _moved(local: Local, models: int) -> dict[str, Any]:
    cluster = local.settings.model_copy(update={"model": "moved", "max_models": 1000})
    own = cluster.model_copy(update={"model": service_of("moved", 0)})
    fleet = Fleet(cluster, 1)
    fleet.up()
    leader = _led(fleet, own)
    with connect(str(own.redis_address())) as client:
        keys, register = Keys(own.model), client.register_script(REGISTER)
        named = [f"model-{number}" for number in range(models)]
        for name in named:
            model = NamedModel(name, own.own_of_model({}), time.time(), name)
            register(
                keys=[keys.models, keys.doorbell],
                args=[name, model.to_json(), 1000, DOORBELL_LENGTH],
            )
        for name in named:
            asyncio.run(_append(own.for_model(name, {}), _batch(0)))
        _until(
            lambda: all(
                _json(client.get(keys.named(name).status)).get("entries_applied") == 1
                for name in named
            )
        )
        others = [one for one in _addresses(local) if one != leader.address]
        with _sending(own) as sent:
            _until(lambda: len(sent) >= 5)
            seconds = fleet.move(0, others[0])
        removed: Any = client.get(keys.applied)
        held: Any = client.xlen(keys.input)
        accepted = int(held) + int(removed or 0)
    fleet.down()
    return {"models": models, "seconds": seconds, "refused": len(sent) - accepted}


def _addresses(local: Local) -> list[str]:
    return sorted(node.node_ip_address for node in local.nodes.list_all_nodes())


def _json(text: Any) -> dict[str, Any]:
    return {} if text is None else dict(orjson.loads(text))


async def _append(own: Settings, batch: RawBatch) -> None:
    async with Stream.open(own) as stream:
        await stream.append(batch)


def _is_there(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text("ascii", "replace")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"


def _until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not done after {TIMEOUT_S:.0f} s")
        time.sleep(0.02)

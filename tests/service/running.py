"""A trainer at work in the test process, and what to send it."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from core.batch import Batch
from core.engine.engine import Engine
from core.engine.state import EngineState
from service.broker.pieces import pieces
from service.broker.records import Appended
from service.broker.stream import Stream
from service.settings import Settings
from service.trainer.host import Trainer
from service.wire import Control, RawBatch, RawLabels, RawName, Upload

D = 6
STEP_S = 0.01
"""Seconds between two looks at a condition, at least."""

LONGEST_S = 120.0
"""Seconds after which a test stops waiting: a busy machine is slow, and only what hangs fails."""

REST = 3
"""Times what a look costs this thread: the one that is waited for needs the processor more."""

PATIENCE = 0.05
"""Of the time waited so far, what passes at least before the next look: each costs a request."""

LONGEST_STEP_S = 0.25
"""Seconds between two looks, at most, but for `REST`."""


def batch(label: int, seed: int, n: int = 20) -> RawBatch:
    """Samples of one class, far away from those of any other."""
    generator = np.random.default_rng([label, seed])
    centre = np.random.default_rng(label).random(D)
    features = centre + generator.normal(size=(n, D)) * 0.02
    return RawBatch.of(features.astype("f4"), [label] * n, f"{label}-{seed}")


def sub_tasks(*labels: int, batches: int = 15) -> list[RawBatch]:
    """A stream whose classes follow each other."""
    return [batch(label, seed) for label in labels for seed in range(batches)]


_learned: OrderedDict[tuple[Hashable, ...], EngineState] = OrderedDict()
"""What engines came to, by what they were given: many tests begin with the same batches."""

MOST_LEARNED = 200
MILESTONE = 5
"""Batches after which a state is remembered, beside that at the end."""


def learned_directly(settings: Settings, batches: Sequence[RawBatch]) -> EngineState:
    """What a trainer must come to: the same batches, given to an engine one by one.

    A state never changes, so those that begin alike are lived through once.
    """
    config = settings.engine_config()
    key: tuple[Hashable, ...] = (Engine.step, config)  # a test may have put another in its place
    keys = [key := (*key, _digest(raw)) for raw in batches]
    known = next((n for n in range(len(keys), 0, -1) if keys[n - 1] in _learned), 0)
    engine = Engine(config)
    state = _learned[keys[known - 1]] if known else engine.start()
    for n, raw in enumerate(batches[known:], known + 1):
        codes = None if raw.codes is None else torch.from_numpy(raw.codes.copy())
        features = torch.from_numpy(raw.features.copy())
        state, _ = engine.step(state, Batch(features, codes, raw.vocabulary, raw.sample_ids))
        if n % MILESTONE == 0 or n == len(batches):
            _learned[keys[n - 1]] = state
    while len(_learned) > MOST_LEARNED:
        _learned.popitem(last=False)
    return state


def _digest(raw: RawBatch) -> bytes:
    digest = hashlib.sha256(raw.features.tobytes())
    digest.update(b"" if raw.codes is None else raw.codes.tobytes())
    x = raw.features
    rest = (x.dtype.str, x.shape, raw.codes is None, raw.vocabulary, raw.sample_ids)
    digest.update(repr(rest).encode())
    return digest.digest()


def snapshot_bytes(settings: Settings, state: EngineState) -> bytes:
    return Engine(settings.engine_config()).snapshot(state).to_bytes({})


@contextlib.contextmanager
def training(settings: Settings) -> Iterator[Trainer]:
    """A trainer at work; stopped in order at the end."""
    trainer = Trainer(settings)
    failures: list[BaseException] = []

    def run() -> None:
        try:
            trainer.run()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield trainer
    finally:
        trainer.stop()
        thread.join(30)
        assert not thread.is_alive()
    if failures:
        raise failures[0]


class Connected:
    """Streams of one Redis that stay open from one call to the next, each of its own settings.

    To connect, and to look at what the server promises, costs more than most questions.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._streams: dict[int, tuple[Settings, Stream]] = {}
        self.lock = threading.Lock()
        """Held during a call: another thread's calls connect by themselves."""

    def call(self, settings: Settings, question: Callable[[Stream], Any]) -> Any:
        async def call() -> Any:
            if id(settings) not in self._streams:
                self._streams[id(settings)] = settings, Stream.open(settings)
            return await question(self._streams[id(settings)][1])

        return self._runner.run(call())

    def close(self) -> None:
        async def close() -> None:
            for _, stream in self._streams.values():
                await stream.close()

        self._runner.run(close())
        self._runner.close()


_connected: list[Connected] = []


@contextlib.contextmanager
def connected(url: str) -> Iterator[None]:
    """Where `ask` and `send` connect to this Redis once for each settings.

    Arguments:
        url: Of one that neither dies nor hangs meanwhile.
    """
    one = Connected(url)
    _connected.append(one)
    try:
        yield
    finally:
        _connected.remove(one)
        one.close()


def send(settings: Settings, *requests: RawBatch | RawLabels | RawName | Control) -> list[Appended]:
    """Append to the stream what the API would append."""

    async def append(stream: Stream) -> list[Appended]:
        return [await _append(stream, one) for one in requests]

    answer: list[Appended] = ask(settings, append)
    return answer


async def _append(stream: Stream, one: RawBatch | RawLabels | RawName | Control) -> Appended:
    if isinstance(one, RawBatch):
        return await stream.append(one)
    if isinstance(one, Control):
        return await stream.append_control(one)
    return await stream.append_labels(one)


def ask(settings: Settings, question: Callable[[Stream], Any]) -> Any:
    """The answer of one method of `Stream`."""
    for one in _connected:
        if settings.redis_address() == one.url and one.lock.acquire(blocking=False):
            try:
                return one.call(settings, question)
            finally:
                one.lock.release()

    async def call() -> Any:
        async with Stream.open(settings) as stream:
            return await question(stream)

    return asyncio.run(call())


async def downloaded(stream: Stream) -> bytes:
    """The whole state, as the trainer has it."""
    answer = await stream.transfers.request_checkpoint(10)
    assert answer is not None
    data = b"".join([piece async for piece in stream.transfers.pieces(answer)])
    assert len(data) == answer.size
    return data


def upload(settings: Settings, data: bytes, *, entry: bool = True) -> Upload:
    """Put a checkpoint into Redis as the API does, and the entry that names it."""
    parts = [bytes(piece) for piece in pieces(data)]
    made = Upload(uuid.uuid4().hex, len(parts), len(data), hashlib.sha256(data).hexdigest())

    async def put(stream: Stream) -> None:
        for index, piece in enumerate(parts):
            await stream.transfers.put_piece(made.id, index, piece)

    ask(settings, put)
    if entry:
        send(settings, Control("restore", upload=made))
    return made


def wait_until(condition: Callable[[], Any], timeout_s: float = LONGEST_S) -> Any:
    """The first true value of `condition()`."""
    start, began = time.monotonic(), time.thread_time()
    while not (value := condition()):
        waited = time.monotonic() - start
        assert waited < timeout_s, "waited too long"
        time.sleep(pause_s(waited, time.thread_time() - began))
        began = time.thread_time()
    return value


def pause_s(waited_s: float, cost_s: float) -> float:
    """Seconds until the next look, after one that took this thread so long."""
    return max(STEP_S, min(PATIENCE * waited_s, LONGEST_STEP_S), REST * cost_s)


def published_position(settings: Settings) -> tuple[int, int]:
    """Version, and entries applied, of what is published; zeros where nothing is."""
    notice = ask(settings, lambda stream: stream.reports.last_notice())
    return (0, 0) if notice is None else (notice.version, notice.entries_applied)


def wait_for_backlog(settings: Settings, timeout_s: float = 90.0) -> None:
    """Wait until what is published holds everything that was accepted."""

    async def wait(stream: Stream) -> None:
        start = time.monotonic()
        while True:
            began = time.thread_time()
            accepted, notice = await stream.accepted(), await stream.reports.last_notice()
            if accepted == (0 if notice is None else notice.entries_applied):
                return
            waited = time.monotonic() - start
            assert waited < timeout_s, "waited too long"
            await asyncio.sleep(pause_s(waited, time.thread_time() - began))

    ask(settings, wait)

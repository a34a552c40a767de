"""Our service beside other model servers: every door carries the samples, and says who is named."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
import torch
from safetensors.numpy import load as read_safetensors
from safetensors.numpy import save

from benchmarks import peers
from benchmarks.servers import door as doors
from benchmarks.servers.environment import TORCH, Unavailable, python_of, run
from benchmarks.servers.load import Load, ask, load
from benchmarks.servers.process import started
from benchmarks.servers.registry import SERVERS, Server
from benchmarks.servers.scorer import SNAPSHOT, THREADS, Scorer
from core.batch import Batch
from core.config import EngineConfig
from core.engine.engine import Engine
from core.snapshot import Snapshot

X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    engine = Engine(EngineConfig(preset="flat", n_components=8))
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 300)
    x = rng.normal(size=(300, 4)).astype(np.float32) + 6 * y[:, None]
    state = engine.start()
    for first in range(0, 300, 100):
        chosen = slice(first, first + 100)
        batch = Batch.of(torch.from_numpy(x[chosen]), y[chosen].tolist())
        state, _ = engine.step(state, batch)
    return engine.snapshot(state)


def test_the_scorer_of_others_answers_what_our_snapshot_answers(
    snapshot: Snapshot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    file = tmp_path / "snapshot"
    file.write_bytes(snapshot.to_bytes({}))
    monkeypatch.setenv(SNAPSHOT, str(file))
    monkeypatch.setenv(THREADS, str(torch.get_num_threads()))
    answer = Scorer.from_environment().answer(X)
    ours = snapshot.classify(torch.from_numpy(X))
    assert np.array_equal(answer["labels"], ours.codes.numpy())
    assert np.array_equal(answer["inliers"], ours.inliers.numpy())
    assert np.array_equal(answer["log_likelihoods"], ours.log_likelihoods.numpy())
    assert answer["probabilities"].shape == (3, 2)


def test_a_json_door_reads_labels_by_their_place_among_the_classes():
    door = doors.as_json("/classify")
    assert json.loads(door.write(X)) == {"features": X.tolist()}
    assert door.read(b'{"labels": ["b", "a"], "classes": ["a", "b"]}') == [1, 0]
    assert door.read(b'{"labels": [1, 0]}') == [1, 0]


def test_binary_doors_carry_the_same_floats():
    labels = save({"labels": np.array([1, 0, 2])})
    floats, form = doors.as_floats("/"), doors.as_form("/")
    assert floats.write(X) == X.tobytes()
    assert X.tobytes() in form.write(X)
    ours = doors.as_safetensors("/")
    assert np.array_equal(read_safetensors(ours.write(X))["features"], X)
    assert ours.headers["Accept"] == ours.headers["Content-Type"]
    for door in (floats, form, ours):
        assert door.read(labels) == [1, 0, 2]


def test_the_open_inference_door_speaks_of_one_tensor():
    door = doors.as_open_inference("/")
    (tensor,) = json.loads(door.write(X))["inputs"]
    assert tensor["shape"] == [3, 4]
    assert tensor["data"] == X.ravel().tolist()
    assert door.read(b'{"outputs": [{"name": "labels", "data": [[2], [0]]}]}') == [2, 0]


@contextmanager
def listening(status: int, answer: bytes) -> Iterator[int]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing on the terminal."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def test_a_load_counts_each_answer_of_each_connection():
    door = doors.as_json("/")
    with listening(200, b'{"labels": [1]}') as port:
        assert ask(port, door, door.write(X)) == [1]
        found = load(port, door, [door.write(X)], connections=2, seconds=0.1)
    assert len(found.durations) >= 2
    assert found.per_second == len(found.durations) / found.elapsed_s


def test_an_answer_that_is_none_ends_a_load():
    door = doors.as_json("/")
    with listening(500, b"no") as port, pytest.raises(RuntimeError, match="500"):
        load(port, door, [door.write(X)], connections=1, seconds=0.1)


def test_an_environment_that_has_what_is_asked_for_is_kept(tmp_path: Path):
    wanted = ("nothing==0",)
    digest = hashlib.sha256("\n".join((TORCH, *wanted)).encode()).hexdigest()
    (tmp_path / "requirements.sha256").write_text(digest)
    assert python_of(tmp_path, wanted) == tmp_path / "bin" / "python"


def test_a_package_that_cannot_be_had_is_said_with_the_reason():
    script = "import sys; print('WARNING', file=sys.stderr); sys.exit('no such package')"
    with pytest.raises(Unavailable, match="cannot be installed: no such package"):
        run([sys.executable, "-c", script])


def test_a_server_that_ends_is_said(tmp_path: Path):
    absent = Server("Absent", (), "absent", "/", ())
    log = tmp_path / "log"
    with (
        pytest.raises(Unavailable, match=r"Absent did not become ready: .*absent"),
        started(absent, Path(sys.executable), tmp_path / "snapshot", 1, log),
    ):
        pass


def test_a_ratio_is_taken_within_rounds():
    ours = [Load((0.1,) * 10, 1.0), Load((0.1,) * 30, 1.0)]
    theirs = [Load((0.1,) * 5, 1.0), Load((0.1,) * 10, 1.0)]
    assert peers._ratio(ours, theirs) == "2.50 (2.00 to 3.00)"


def test_every_other_server_is_pinned_and_has_a_script():
    for server in SERVERS:
        assert "==" in server.requirements[0]
        assert (Path(peers.__file__).parent / "servers" / f"{server.module}.py").is_file()
        assert server.doors[0].body == doors.JSON

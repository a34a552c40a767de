"""Tests for the clients.commands.demo module: the demo itself, as it is typed."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from clients.commands.own_directory import MARKER, own_directory
from clients.evaluation.local import free_port
from clients.http.errors import InputError

ROOT = Path(__file__).resolve().parents[3]


def demo(*options: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "clients.commands.cli", "demo", *options],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_demo_finds_every_boundary_and_ends_by_itself(tmp_path: Path):
    port = free_port()
    data_dir, out = tmp_path / "data", tmp_path / "out"
    running = demo("--exit", "--port", str(port), "--data-dir", str(data_dir), "--out", str(out))
    said, complained = running.communicate(timeout=180)
    assert running.returncode == 0, complained
    assert complained == ""

    # The story, in order.
    assert "11 shuffled passes" in said
    boundaries = re.findall(
        r"boundary (\d): sub-task (\d) begins \(inlier rate (\S+) -> (\S+)\), found (\d+) batch",
        said,
    )
    assert [(number, sub_task) for number, sub_task, *_ in boundaries] == [
        (str(i), str(i)) for i in (1, 2, 3, 4)
    ]
    assert all(float(before) > float(after) for *_, before, after, _ in boundaries)
    assert all(int(batches) <= 3 for *_, batches in boundaries)
    accuracies = re.findall(r"accuracy over all classes so far: (\S+) % \(([^;]*);", said)
    assert [len(classes.split()) for _, classes in accuracies] == [2, 4, 6, 8, 10]
    assert all(float(value) > 85 for value, _ in accuracies)
    assert said.index("boundary 1:") < said.index("replay:") < said.index("boundary 2:")

    # The end.
    assert "4 of 4 boundaries found" in said
    assert "no false alarms" in said
    assert f"http://127.0.0.1:{port}/" in said
    assert "\x1b" not in said  # no terminal, so no colours and no cursor movements
    for picture, least in (("demo.png", 1000), ("samples.png", 600)):
        with Image.open(out / picture) as image:
            assert image.width >= least
    assert not is_listening(port)


def test_an_interrupted_demo_stops_its_service(tmp_path: Path):
    port = free_port()
    running = demo("--port", str(port), "--data-dir", str(tmp_path), "--out", str(tmp_path / "out"))
    assert running.stdout is not None
    for line in running.stdout:
        if "streaming classes 0 1" in line:
            break
    assert is_listening(port)
    running.send_signal(signal.SIGINT)
    said, complained = running.communicate(timeout=60)
    assert running.returncode == 130, complained
    assert "stopping the service" in said
    assert "Traceback" not in complained
    assert not is_listening(port)


def is_listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_the_demo_empties_only_what_is_its_own(tmp_path: Path):
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match=r"thesis\.txt.*--data-dir"), own_directory(tmp_path):
        pass
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_the_demo_may_be_typed_twice(tmp_path: Path):
    for _ in range(2):
        with own_directory(tmp_path / "demo") as directory:
            assert [entry.name for entry in directory.iterdir()] == [MARKER]
            (directory / "data").mkdir()
            (directory / "data" / "left").write_text("over")
            (directory / "gmr.log").write_text("lines")


def test_two_demos_do_not_share_a_directory(tmp_path: Path):
    with own_directory(tmp_path):
        (tmp_path / "kept").write_text("in use")
        with pytest.raises(InputError, match="Another demo is running"), own_directory(tmp_path):
            pass
        assert (tmp_path / "kept").read_text() == "in use"

"""A real cluster on this machine, in a process of its own: one host dies, one bucket is moved."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="the extra cluster is not installed")


def test_a_host_that_dies_is_replaced_with_the_same_bits_and_a_move_refuses_nothing(
    tmp_path: Path,
) -> None:
    ran = subprocess.run(
        [Path(sys.executable).with_name("gmr"), "bench", "failover", "--quick", "--out", tmp_path],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    values = json.loads((tmp_path / "failover.json").read_bytes())["values"]
    [died] = values["faults"]
    assert died["equal"]
    assert died["sent"] >= 20
    assert values["moved"]["refused"] == 0
    assert values["moved"]["models"] == 2

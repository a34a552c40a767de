"""A clock that jumps."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.chaos.clock import Clock
from tests.chaos.preloaded import COMPILER, preloading

WATCH = """
import time
while True:
    input()
    print(time.time(), time.monotonic(), flush=True)
"""


@pytest.mark.skipif(COMPILER is None, reason="no C compiler to set a clock with")
def test_the_clock_on_the_wall_jumps_and_no_other(tmp_path: Path) -> None:
    clock = Clock(tmp_path)
    environment = {**os.environ, **clock.environment, **preloading(clock.library)}
    with subprocess.Popen(
        [sys.executable, "-c", WATCH],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as one:
        assert one.stdin is not None
        assert one.stdout is not None
        for jump in (0, 1000, -3000):
            clock.jump(jump)
            one.stdin.write("\n")
            one.stdin.flush()
            wall, steady = map(float, one.stdout.readline().split())
            ahead = wall - time.time()
            assert abs(ahead - {0: 0, 1000: 1000, -3000: -2000}[jump]) < 5
            assert abs(steady - time.monotonic()) < 5
        one.kill()

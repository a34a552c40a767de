"""Tests for the service.ending module: a process ends with the status that it means."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PROCESS = """
import logging, sys, threading
import torch
from core.errors import InvalidSettings
from service.ending import end_with

def busy():
    while True:
        torch.ones(10).sum()

def work():
    logging.basicConfig(stream=sys.stdout)
    threading.Thread(target=busy, daemon=True).start()
    logging.warning("logged")
    print("printed")
    WORK

end_with(work)
"""


def ended(work: str) -> subprocess.CompletedProcess[str]:
    """A process of its own, which does that beside a thread that is busy in native code."""
    return subprocess.run(
        [sys.executable, "-c", PROCESS.replace("WORK", work)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize(
    ("work", "status", "told"),
    [
        ("return 0", 0, ""),
        ("return 3", 3, ""),
        ('raise InvalidSettings("GMR_K is 0.")', 2, "GMR_K is 0.\n"),
        ('raise MemoryError("no room")', 1, "MemoryError: no room\n"),
        ("sys.exit(4)", 4, ""),
    ],
)
def test_a_process_ends_with_its_status_whatever_its_threads_do(
    work: str, status: int, told: str
) -> None:
    done = ended(work)
    assert done.returncode == status
    assert done.stderr.endswith(told)
    assert ("Traceback" in done.stderr) is (status == 1)
    assert done.stdout == "WARNING:root:logged\nprinted\n"

"""Tests for the service.ending module: a process ends with the status that it means."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.service.forked import forked

PROCESS = """
import logging, os, sys, threading
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

os.dup2(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT, 0o600), 1)
end_with(work)
"""


def ended(work: str, folder: Path) -> tuple[int, str, str]:
    """Status and both outputs of a process that does that while a thread is busy in native code."""
    printed, told = folder / "printed", folder / "told"
    with forked(PROCESS.replace("WORK", work), str(printed), variables={}, output=told) as one:
        return one.wait(120), printed.read_text("utf-8"), told.read_text("utf-8")


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
    work: str, status: int, told: str, tmp_path: Path
) -> None:
    found, output, errors = ended(work, tmp_path)
    assert found == status
    assert errors.endswith(told)
    assert ("Traceback" in errors) is (status == 1)
    assert output == "WARNING:root:logged\nprinted\n"

"""Tests for service.supervisor.kinship, in processes whose children are theirs alone."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from service.supervisor import kinship
from service.supervisor.kinship import LINUX

ROOT = Path(__file__).parents[3]

only_linux = pytest.mark.skipif(not LINUX, reason="only Linux has these calls")

ORPHAN = """
import os, time
from service.supervisor.kinship import adopt_orphans, bury_orphans

def wait_for(pid):  # and leave it to be waited for
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

def orphan(status):
    parent = os.fork()
    if parent == 0:
        parent = os.getpid()
        if os.fork() == 0:
            while os.getppid() == parent:
                time.sleep(0.001)
            os._exit(status)
        os._exit(0)
    os.waitpid(parent, 0)

def children():
    return set(map(int, open(f"/proc/self/task/{os.getpid()}/children").read().split()))
"""


def told(program: str, before: Callable[[], object] | None = None) -> list[str]:
    """The words that a program writes.

    Arguments:
        program: As behind `python -c`.
        before: Done in the process before it is Python.
    """
    run = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=before,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


@only_linux
def test_orphans_are_adopted_and_buried_and_own_children_are_left_to_who_waits_for_them() -> None:
    program = """
bury_orphans([])  # no children at all
assert adopt_orphans()
orphan(7)
[adopted] = children()
own = os.fork()
if own == 0:
    os._exit(5)
wait_for(own)
wait_for(adopted)
for _ in range(3):
    bury_orphans([own])
print(os.waitstatus_to_exitcode(os.waitpid(own, 0)[1]))
bury_orphans([own])
print(os.path.exists(f"/proc/{adopted}"))
"""
    assert told(ORPHAN + program) == ["5", "False"]


@only_linux
def test_ends_of_children_are_kept_where_they_were_to_be_ignored() -> None:
    program = """
assert adopt_orphans()
orphan(7)
[adopted] = children()
print(os.waitstatus_to_exitcode(os.waitpid(adopted, 0)[1]))
"""
    ignored = told(ORPHAN + program, lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    assert ignored == ["7"]


@only_linux
def test_ps_shows_a_new_name_and_no_more_of_it_than_there_is_room_for() -> None:
    program = """
import sys
from service.supervisor.kinship import rename
for title in (["python", "-m", "short"], ["x" * 100_000]):
    rename(title)
    shown = open("/proc/self/cmdline").read()
    print(" ".join(filter(None, shown.split(chr(0))))[:15])
environment = open("/proc/self/environ").read().split(chr(0))
print(f"PATH={os.environ['PATH']}" in environment)
print(len(shown) < 100_000)
"""
    assert told(ORPHAN + program) == ["python", "-m", "short", "x" * 15, "True", "True"]


def test_elsewhere_none_of_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinship, "LINUX", False)
    assert not kinship.adopt_orphans()
    assert kinship.die_with_parent(signal.SIGTERM) is None
    kinship.bury_orphans([])
    kinship.rename(["python"])

"""Tests for service.cluster.host: a process of its own, without Ray."""

from __future__ import annotations

import subprocess
import sys

HOST = """
import os, time
from service.cluster.host import Host
Host._lead = lambda self: None
if not os.fork():
    Host({})
    print("begun", flush=True)
time.sleep(60)
"""


def test_a_host_ends_with_its_node_of_ray() -> None:
    node = subprocess.Popen([sys.executable, "-c", HOST], stdout=subprocess.PIPE, text=True)
    assert node.stdout is not None
    assert node.stdout.readline() == "begun\n"
    node.kill()
    # Not before the host has ended, too: it holds the other end.
    assert node.communicate(timeout=20) == ("", None)

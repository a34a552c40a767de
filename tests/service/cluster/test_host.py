"""Tests for service.cluster.host: a process of its own, without Ray."""

from __future__ import annotations

import json
import os
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


REFUSED = """
import json, sys, time
from types import SimpleNamespace
node = SimpleNamespace(get_node_id=lambda: "a")
sys.modules["ray"] = SimpleNamespace(get_runtime_context=lambda: node)
from service.cluster.host import Host
host = Host({"GMR_TO_COME": "1"})
while host.status()["error"] is None:
    time.sleep(0.1)
print(json.dumps(host.status()), flush=True)
host.stop()
"""


def test_a_host_says_which_setting_its_release_does_not_know() -> None:
    # Its node's own variables are neither refused nor taken: its cluster's settings count.
    own = {**os.environ, "GMR_A_NODES": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", REFUSED], env=own, capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stderr
    status = json.loads(ran.stdout)
    assert status["phase"] == "refused"
    assert "GMR_TO_COME is no setting" in status["error"]

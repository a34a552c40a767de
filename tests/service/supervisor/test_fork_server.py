"""Tests for service.supervisor.fork_server and what it begins, service.supervisor.preloaded."""

from __future__ import annotations

import ctypes
import logging
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import orjson
import pytest

from core.errors import InvalidSettings
from service.supervisor import fork_server
from service.supervisor.fork_server import Birth, Forked, ForkServer, may_fork
from service.supervisor.kinship import LINUX
from service.supervisor.part import Deaths, Part, PartFailed
from tests.service.running import wait_until
from tests.service.supervisor import facts

ROOT = Path(__file__).parents[3]

EMPTY = """
from service.supervisor import preloaded
preloaded.MODULES = ()
"""
LIGHT = ("-c", EMPTY + "preloaded.main()")
"""Has imported nothing, and so is there at once."""

THREADED = (
    "-c",
    EMPTY + "import threading, time\n"
    "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
    "preloaded.main()",
)
BROKEN = ("-c", "raise SystemExit(1)")

pytestmark = pytest.mark.skipif(not LINUX, reason="parts are forked on Linux only")

MakeServer = Callable[..., ForkServer]


@pytest.fixture
def make_server(tmp_path: Path) -> Iterator[MakeServer]:
    """Makes servers, whose children find modules in `tmp_path`; this process adopts meanwhile."""
    begun = []

    def make(command: tuple[str, ...] = LIGHT, **variables: str) -> ForkServer:
        path = os.pathsep.join([str(tmp_path), str(ROOT)])
        server = ForkServer({**os.environ, "PYTHONPATH": path, **variables}, command)
        begun.append(server)
        return server

    yield make
    for server in begun:
        server.end()
    ctypes.CDLL(None).prctl(36, 0, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER: nobody's orphans any more


def born(birth: Birth | None) -> Forked:
    """The child, once it is there."""
    assert birth is not None
    child = birth.child()
    while child is None:
        assert select.select([birth], [], [], 60)[0], "no child came"
        child = birth.child()
    return child


def write(folder: Path, name: str, text: str) -> str:
    (folder / f"{name}.py").write_text(text, "utf-8")
    return name


@contextmanager
def running(child: Forked) -> Iterator[Forked]:
    try:
        yield child
    finally:
        child.kill()
        child.wait(20)


def test_a_fork_is_what_python_m_makes_of_a_module(make_server: MakeServer, tmp_path: Path) -> None:
    """Whatever a part finds in its process, and the bits that it computes by many threads."""
    module = facts.__name__
    server = make_server(("-m", "service.supervisor.preloaded"), **{facts.FACTS: str(tmp_path)})
    forked = [born(server.ask([module])) for _ in range(2)]
    alone = Part("alone", module, server._environment, Deaths(0))
    alone.start()
    assert alone._process is not None
    told = []
    for one in (*forked, alone._process):
        assert one.wait(60) == facts.STATUS
        told.append(orjson.loads((tmp_path / str(one.pid)).read_bytes()))
    drawn = [one.pop("drawn") for one in told]
    assert told[0] == told[2]
    assert told[1] == told[2]
    assert told[0]["computes by threads"]
    assert told[0]["process"]["devices"] == [False, False]
    assert all(len(set(numbers)) == 3 for numbers in zip(*drawn, strict=True))


def test_a_process_with_threads_is_not_forked(make_server: MakeServer, tmp_path: Path) -> None:
    server = make_server(THREADED)
    birth = server.ask(["this"])
    with pytest.raises(ChildProcessError):
        born(birth)
    server.failed()
    assert server.ask(["this"]) is None  # and never will be
    assert server.pid is None


def test_a_child_ends_as_it_ends_and_is_told_once(make_server: MakeServer, tmp_path: Path) -> None:
    sleeps = write(tmp_path, "sleeps", "import time; time.sleep(60)")
    ends = write(tmp_path, "ends", "import sys; sys.exit(int(sys.argv[1]))")
    fails = write(tmp_path, "fails", "raise ValueError")
    server = make_server()
    assert born(server.ask([ends, "3"])).wait(20) == 3
    assert born(server.ask([fails])).wait(20) == 1
    for end, status in ((Forked.terminate, -signal.SIGTERM), (Forked.kill, -signal.SIGKILL)):
        child = born(server.ask([sleeps]))
        assert child.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.05)
        end(child)
        assert child.wait(20) == status
        end(child)  # its number may be another's by now
        assert (child.poll(), child.wait()) == (status, status)
    waited_for = born(server.ask([ends, "3"]))
    os.waitpid(waited_for.pid, 0)
    assert waited_for.poll() == 0  # as Popen has it where somebody else has waited


def test_a_child_that_nobody_takes_note_of_ends(make_server: MakeServer, tmp_path: Path) -> None:
    leaves = write(tmp_path, "leaves", f"open({str(tmp_path / 'trace')!r}, 'w')")
    server = make_server()
    birth = server.ask([leaves])
    assert birth is not None
    assert select.select([birth], [], [], 60)[0]
    pid = int(birth._socket.recv(32))
    birth.give_up()
    assert Forked(pid).wait(20) == 0
    assert not (tmp_path / "trace").exists()
    assert born(server.ask([leaves])).wait(20) == 0
    assert (tmp_path / "trace").exists()


def test_the_process_may_die_at_any_time(make_server: MakeServer, tmp_path: Path) -> None:
    sleeps = write(tmp_path, "sleeps", "import time; time.sleep(60)")
    server = make_server()
    server.begin()
    for number in (signal.SIGSTOP, signal.SIGKILL):
        assert server.pid is not None
        os.kill(server.pid, number)  # before it has begun, or in the middle of it
        birth = server.ask([sleeps])
        assert birth is not None
        if number == signal.SIGSTOP:
            assert birth.child() is None
            os.kill(server.pid, signal.SIGKILL)
            with pytest.raises(ChildProcessError):  # asked for before its end was known
                born(birth)
        else:
            with suppress(ChildProcessError), running(born(birth)) as child:
                assert child.poll() is None  # of another process
        with running(born(server.ask([sleeps]))) as child:  # of another process
            os.kill(int(server.pid or 0), signal.SIGKILL)
            wait_until(lambda: server.pid is None)
            assert child.poll() is None
        server.begin()


def test_what_hangs_is_given_up(make_server: MakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_server, "PATIENCE_S", 0.0)
    server = make_server()
    server.begin()
    os.kill(int(server.pid or 0), signal.SIGSTOP)
    birth = server.ask(["this"])
    assert birth is not None
    with pytest.raises(ChildProcessError):
        birth.child()
    server.failed()
    assert server.pid is None


@pytest.mark.parametrize("killed", ["supervisor", "asked"])
def test_nothing_outlives_who_has_begun_it(killed: str, tmp_path: Path) -> None:
    """Neither the process that forks, nor a fork, nor one that is not taken note of."""
    write(tmp_path, "sleeps", "import time; time.sleep(60)")
    program = f"""
import os, select, time
from service.supervisor.fork_server import ForkServer
server = ForkServer({{**os.environ, "PYTHONPATH": {os.pathsep.join([str(tmp_path), str(ROOT)])!r}}},
                    {LIGHT!r})
birth = server.ask(["sleeps"])
select.select([birth], [], [])
pid = {"birth.child().pid" if killed == "supervisor" else "int(birth._socket.recv(32))"}
print(server.pid, pid, flush=True)
time.sleep(60)
"""
    with subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as supervisor:
        assert supervisor.stdout is not None
        begun = [Path(f"/proc/{pid}") for pid in supervisor.stdout.readline().split()]
        assert len(begun) == 2
        supervisor.kill()
    wait_until(lambda: not any(map(_runs, begun)))


def _runs(process: Path) -> bool:
    """Whether it has not ended; who is to bury it may take its time."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_part_begins_by_itself_where_it_cannot_be_forked(
    make_server: MakeServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    leaves = write(
        tmp_path, "leaves", f"import sys; open({str(tmp_path / 'trace')!r}, 'a').write(sys.argv[0])"
    )
    server = make_server(BROKEN)
    part = Part("API", leaves, server._environment, Deaths(1), server)
    part.start()
    assert part.birth is not None
    assert part.pid is None
    status: list[int | None] = []
    with caplog.at_level(logging.WARNING):
        wait_until(lambda: status.append(part.watch()) or status[-1] is not None)
        assert status[-1] == 0
        assert "starting them alone" in caplog.text
        with pytest.raises(PartFailed):  # and at once the next time
            wait_until(lambda: status.append(part.watch()))
    assert caplog.text.count("starting them alone") == 1
    assert (tmp_path / "trace").read_text() == str(tmp_path / "leaves.py") * 2


def test_a_part_that_is_forked_dies_is_forked_again_and_stops(
    make_server: MakeServer, tmp_path: Path
) -> None:
    sleeps = write(tmp_path, "sleeps", "import time; time.sleep(60)")
    wrong = write(tmp_path, "wrong", "import sys; sys.exit(2)")
    server = make_server()
    part = Part("trainer", sleeps, server._environment, Deaths(8), server)
    part.start()
    assert part.stop(20)  # before it was there
    assert (part.birth, part.pid) == (None, None)
    part.start()

    def there() -> int | None:
        assert part.watch() is None
        return part.pid

    first = wait_until(there)
    assert Path(f"/proc/{first}/cmdline").read_bytes().rstrip(b"\0").endswith(b"\0-m\0sleeps")
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: part.watch() == -signal.SIGKILL)
    assert wait_until(there) != first
    assert part.stop(20)
    part = Part("trainer", wrong, server._environment, Deaths(8), server)
    part.start()
    with pytest.raises(InvalidSettings):
        wait_until(lambda: part.watch())


def test_parts_that_may_use_a_gpu_are_not_forked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fork_server, "GPUS", (tmp_path / "none", tmp_path / "driver"))
    assert [may_fork(device) for device in ("cpu", "auto", "cuda", "cuda:1")] == [
        True,
        True,
        False,
        False,
    ]
    (tmp_path / "driver").touch()
    assert may_fork("cpu")
    assert not may_fork("auto")

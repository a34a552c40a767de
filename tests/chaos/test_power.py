"""What a power failure takes, and what it may not take."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from service.archive.parts import parts_in, timeline
from service.store.in_folder import kept_in
from tests.chaos.power import TORN, Medium
from tests.chaos.preloaded import COMPILER, preloading
from tests.service.supervisor.services import ROOT

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler to follow fsync with")


class Worst(random.Random):
    """A failure that takes all that it may."""

    def random(self) -> float:
        """Of every two the first."""
        return 0.0


def after_a_failure_of(program: str, folder: Path) -> int:
    """Run a program on a folder `data`, then cut the power; the number of files that lost."""
    data, beside = folder / "data", folder / "beside"
    data.mkdir()
    beside.mkdir()
    medium = Medium(beside)
    environment = {**os.environ, **medium.environment, **preloading(medium.library)}
    command = [sys.executable, "-c", f"import os\n{program}\nos._exit(0)", str(data)]
    subprocess.run(command, check=True, env=environment, cwd=ROOT)
    return medium.fail(data, Worst())


def test_what_was_never_forced_is_gone(tmp_path: Path) -> None:
    lost = after_a_failure_of(
        """
import sys
folder = sys.argv[1]
for name in ("forced", "half", "unnamed", "never"):
    with open(f"{folder}/{name}", "wb") as file:
        file.write(b"first")
        file.flush()
        if name != "never":
            os.fsync(file.fileno())
        if name == "half":
            file.write(b" second")
    if name == "half":
        os.fsync(os.open(folder, os.O_RDONLY))
""",
        tmp_path,
    )
    left = {path.name: path.read_bytes() for path in (tmp_path / "data").iterdir()}
    assert left == {"forced": b"first", "half": b"first"}
    assert lost == 3


def test_a_torn_command_ends_what_redis_appends_to(tmp_path: Path) -> None:
    folder = tmp_path / "data/redis/appendonlydir"
    folder.mkdir(parents=True)
    (tmp_path / "beside").mkdir()
    medium = Medium(tmp_path / "beside")
    (tmp_path / "beside/forced").touch()
    newest = folder / "appendonly.aof.2.incr.aof"
    newest.touch()
    assert medium.fail(tmp_path / "data", Worst(), torn=True) == 1
    assert newest.read_bytes() == TORN


def test_it_does_not_take_what_an_archive_has_synced(tmp_path: Path) -> None:
    after_a_failure_of(
        """
import sys
from pathlib import Path
from service.archive.record import Record
from service.archive.writer import Archive
archive = Archive(Path(sys.argv[1]) / "archive", 1 << 20)
archive.append([Record("1-0", 1, {b"x": b""})], lambda: b"base")
archive.sync()
archive.append([Record("2-0", 2, {b"x": b""})], lambda: b"base")
""",
        tmp_path,
    )
    parts = parts_in(tmp_path / "data/archive")
    assert [part.base.read_bytes() for part in parts] == [b"base"]
    assert [one.n for stretch in timeline(parts) for one in stretch.records()] == [1]


def test_it_takes_neither_a_checkpoint_nor_what_is_noted_of_it(tmp_path: Path) -> None:
    after_a_failure_of(
        """
import sys
from pathlib import Path
from service.store.in_folder import FolderCheckpoints
checkpoints = FolderCheckpoints(Path(sys.argv[1]) / "checkpoints")
checkpoints.write(b"state", version=3, entries_applied=7, note={"version": 3})
""",
        tmp_path,
    )
    [kept] = kept_in(tmp_path / "data/checkpoints")
    assert (kept.path.read_bytes(), kept.note) == (b"state", {"version": 3})

"""A backup of a service: one tar file of its data dir, with a list of contents and checksums.

Rules of this module:

1. The data dir of a stopped service is locked while it is read. Of one that runs a copy is made,
   the checkpoints first: as after a crash, what the stream has beyond them is learned at the start.
   Entries leave the stream once two newer checkpoints hold them; where that happens in between, the
   copy lacks them, as rule 2 finds, and another one is made.
2. Nothing is backed up that could not be started from: before, every checkpoint and the stream are
   read as a start reads them.
3. The file is whole or not there, and was read back. A data dir comes back whole or is refused:
   the stream goes to its place before the checkpoints, since checkpoints without their stream would
   start, and lack what only the stream held.
4. What is kept to make models again (GMR_ARCHIVE_MIB) is left out: it may be many times as large as
   all else, and nothing starts from it.
5. Names in the file are of no authority: what does not lie within the data dir is refused.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import stat
import tarfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import IO, Any, Final

from core.counted import counted
from core.errors import InvalidSettings
from service.archive.parts import ARCHIVE
from service.atomic_write import force_names
from service.broker.lease import DirectoryLock
from service.settings import MIB, Settings
from service.upkeep.doctor import examine
from service.upkeep.reach import is_running
from service.upkeep.report import ModelFacts

CONTENTS: Final = "gmr-backup.json"
FORMAT: Final = "gmr-backup 1"
MOST_CONTENTS: Final = 64 * MIB
"""Bytes of the list of contents, at most."""

SUFFIX: Final = ".tar"
"""Of the file: by it a name is told from that of a folder that is not there."""

UNPACKED: Final = ".restoring"
CHUNK: Final = 1 << 20

TRIES: Final = 3
"""Copies of a service that runs, of which one should have all that it needs."""


@dataclass(frozen=True)
class Backup:
    """What a backup holds.

    Arguments:
        path: The file.
        model: Name of the service's own model (GMR_MODEL).
        made: Unix seconds.
        models: Of each model its name (empty: the service's own), the version of its newest
            checkpoint, entries that this one holds, and entries beyond it.
        nbytes: Of the files in it.
    """

    path: Path
    model: str
    made: float
    models: tuple[dict[str, Any], ...]
    nbytes: int


def back_up(settings: Settings, target: Path) -> Backup:
    """Write a service, stopped or running, into a file.

    Arguments:
        settings: With its data dir.
        target: A new .tar, or a folder in which one is made, named by the time. Where the service
            runs there must be room beside it for the file and a copy of the data dir.

    Raises:
        InvalidSettings: The service has a Redis of its own, or could not be started from what is
            there; or the file exists, is not named as one, or cannot be written.
    """
    data_dir = settings.data_dir.absolute()
    if settings.checkpoints_in_store and not settings.checkpoints_in_redis:
        raise InvalidSettings(
            f"The checkpoints of this service are in {settings.checkpoints}, of which this makes "
            f"no copy. Let the store keep versions or a copy of its own, and back up Redis by its "
            f"own means; or move one model by GET and PUT /model/checkpoint."
        )
    if settings.redis_address() is not None:
        raise InvalidSettings(
            "The stream of this service is in a Redis of your own (GMR_REDIS_URL), of which this "
            "makes no copy. Back up that Redis by its own means, with all trainers and API "
            "processes stopped, and the data dir with it; or move one model by "
            "GET and PUT /model/checkpoint."
        )
    if not data_dir.is_dir():
        raise InvalidSettings(f"{data_dir} is not there. Name the data dir by --data-dir.")
    if target.is_dir():
        target = target / time.strftime(f"gmr-%Y%m%d-%H%M%S{SUFFIX}", time.gmtime())
    elif target.suffix != SUFFIX and not target.exists():
        # Else a folder that is not mounted, or has a letter too many, would become a file.
        raise InvalidSettings(
            f"{target} is no folder that is there, and does not end in {SUFFIX} as a file would. "
            f"Make the folder, or name a new {SUFFIX}."
        )
    if target.exists():
        raise InvalidSettings(f"{target} is there already. Name a new file, or a folder.")
    if target.absolute().is_relative_to(data_dir):
        raise InvalidSettings(f"{target} lies in the data dir itself. Name another place.")
    try:
        if is_running(data_dir):
            return _back_up_running(settings, data_dir, target)
        with DirectoryLock(data_dir, "service", patience_s=0):
            return _write(settings, data_dir, _check(settings), target)
    except OSError as error:
        raise InvalidSettings(
            f"{target} cannot be written ({error.strerror or error}). Make room, or name another "
            f"place."
        ) from error


def bring_back(source: Path, data_dir: Path) -> Backup:
    """Make a data dir from a backup.

    Arguments:
        source: The file.
        data_dir: Not there yet, or empty.

    Raises:
        InvalidSettings: The data dir is not empty or cannot be written, or the file is no backup or
            is damaged; then the data dir is as it was.
    """
    data_dir = data_dir.absolute()
    try:
        if data_dir.exists() and any(data_dir.iterdir()):
            raise InvalidSettings(
                f"{data_dir} is not empty; expected a data dir that is not there or has nothing in "
                f"it. Name another by --data-dir, or move away what is there."
            )
        there = data_dir.exists()
        unpacked = data_dir / UNPACKED
        unpacked.mkdir(mode=0o700, parents=True)
        try:
            backup = _read(source, unpacked)
        except BaseException:
            shutil.rmtree(unpacked, ignore_errors=True)
            if not there:
                data_dir.rmdir()
            raise
        for child in sorted(unpacked.iterdir(), key=lambda path: path.name != "redis"):
            child.rename(data_dir / child.name)
            force_names(data_dir)
        unpacked.rmdir()
        return backup
    except OSError as error:
        raise InvalidSettings(
            f"{source} could not be brought back to {data_dir} ({error.strerror or error}). See "
            f"whether both can be reached and there is room, empty the data dir, and try again."
        ) from error


# A service that runs --------------------------------------------------------------------------


def _back_up_running(settings: Settings, data_dir: Path, target: Path) -> Backup:
    for tries_left in reversed(range(TRIES)):
        with TemporaryDirectory(prefix=".gmr-backup-", dir=target.absolute().parent) as name:
            copy = Path(name) / data_dir.name
            _copy_running(data_dir, copy)
            copied = settings.model_copy(update={"data_dir": copy})
            try:
                return _write(copied, copy, _check(copied), target)
            except InvalidSettings:
                if not tries_left:
                    raise
    raise AssertionError("one of the tries returns or raises")


def _copy_running(data_dir: Path, copy: Path) -> None:
    """Copy a data dir, its Redis last; files that go meanwhile have been replaced by newer ones."""
    files = sorted(_files(data_dir), key=_is_of_redis(data_dir))
    for path in files:
        to = copy / path.relative_to(data_dir)
        to.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileNotFoundError), path.open("rb") as source, to.open("xb") as file:
            # As much as there is by now: a log that grows goes on growing.
            left = os.fstat(source.fileno()).st_size
            while left and (chunk := source.read(min(left, CHUNK))):
                file.write(chunk)
                left -= len(chunk)


def _is_of_redis(data_dir: Path) -> Callable[[Path], bool]:
    return lambda path: path.is_relative_to(data_dir / "redis")


# Writing --------------------------------------------------------------------------------------


def _check(settings: Settings) -> list[ModelFacts]:
    """The models of a service that could be started.

    Raises:
        InvalidSettings: It could not, or would lack something.
    """
    report = examine(settings, held=True)
    faults = [one for one in report.findings if one.blocks]
    known = [model for model in report.models if model.accepted is not None]
    if faults or not known:
        found = "; ".join(f"{one.subject}: {one.found}" for one in faults) or "there is no stream"
        raise InvalidSettings(
            f"A service could not go on from {settings.data_dir}: {found}. Nothing was written. "
            f"See `gmr doctor`."
        )
    return known


def _files(data_dir: Path) -> Iterator[Path]:
    for path in sorted(data_dir.rglob("*")):
        try:
            mode = path.lstat().st_mode
        except FileNotFoundError:  # of a service that runs
            continue
        if stat.S_ISLNK(mode):
            raise InvalidSettings(
                f"{path} is a link, which a backup would not follow. Put what it leads to in its "
                f"place, or copy the data dir by other means."
            )
        passing = path.name == "lock" or path.name.startswith(("temp-", "redis.log"))
        passing |= path.suffix == ".tmp" or _is_archived(path.parent, data_dir)
        if stat.S_ISREG(mode) and not passing:
            yield path


def _is_archived(folder: Path, data_dir: Path) -> bool:
    """Whether a folder is the archive of the service's own model, or of a named one."""
    of_model = folder.parent == data_dir or folder.parent.parent == data_dir / "models"
    return folder.name == ARCHIVE and of_model


def _write(settings: Settings, data_dir: Path, models: list[ModelFacts], target: Path) -> Backup:
    files, listed = list(_files(data_dir)), dict[str, dict[str, Any]]()
    for path in files:
        with path.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        listed[path.relative_to(data_dir).as_posix()] = {
            "bytes": path.stat().st_size,
            "sha256": sha256,
        }
    contents = {
        "format": FORMAT,
        "made": time.time(),
        "model": settings.model,
        "models": [
            {
                "name": one.name,
                "version": one.version,
                "entries_applied": one.entries_applied,
                "beyond": one.beyond,
            }
            for one in models
        ],
        "files": listed,
    }
    beside = target.with_name(target.name + ".tmp")
    try:
        # Raw samples and hashes of keys are in it: for this user alone, as the data dir is.
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
                head = json.dumps(contents).encode()
                _add(archive, CONTENTS, len(head), io.BytesIO(head))
                for path in files:
                    name = path.relative_to(data_dir).as_posix()
                    with path.open("rb") as source:
                        _add(archive, name, listed[name]["bytes"], source)
            file.flush()
            os.fsync(file.fileno())
        backup = _read(beside, None)
        beside.rename(target)
        force_names(target.absolute().parent)
    finally:
        beside.unlink(missing_ok=True)
    return Backup(target, backup.model, backup.made, backup.models, backup.nbytes)


def _add(archive: tarfile.TarFile, name: str, nbytes: int, source: IO[bytes]) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = nbytes, 0o600, time.time()
    archive.addfile(member, source)


# Reading --------------------------------------------------------------------------------------


def _read(source: Path, folder: Path | None) -> Backup:
    """Read a backup through, into a folder where one is given.

    Raises:
        InvalidSettings: It is none, or is damaged.
    """
    try:
        with tarfile.open(source, "r:") as archive:
            contents = _contents(archive, source)
            left = dict(contents["files"])
            for member in archive:
                if member.name == CONTENTS:
                    continue
                facts = left.pop(member.name, None)
                content = archive.extractfile(member) if member.isreg() else None
                if facts is None or content is None or not _is_within(member.name):
                    raise _damaged(source, f"{member.name!r} is not in its list of contents")
                if _copy(content, None if folder is None else folder / member.name) != (
                    facts["bytes"],
                    facts["sha256"],
                ):
                    raise _damaged(source, f"{member.name} is not what was put into it")
            if left:
                raise _damaged(
                    source, f"{counted(len(left), 'file')} missing, {min(left)} among them"
                )
            nbytes = sum(int(facts["bytes"]) for facts in contents["files"].values())
            return Backup(
                source, contents["model"], contents["made"], tuple(contents["models"]), nbytes
            )
    except (tarfile.TarError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise _damaged(source, f"{type(error).__name__}: {error}") from error


def _contents(archive: tarfile.TarFile, source: Path) -> dict[str, Any]:
    first = archive.next()
    content = None if first is None else archive.extractfile(first)
    if first is None or first.name != CONTENTS or content is None or first.size > MOST_CONTENTS:
        raise _damaged(source, f"it does not begin with {CONTENTS}")
    contents: dict[str, Any] = json.loads(content.read())
    if contents["format"] != FORMAT:
        raise InvalidSettings(
            f"{source} has the format {str(contents['format'])[:40]!r}, expected {FORMAT!r}. Use "
            f"the release that wrote it, or a newer one."
        )
    return contents


def _is_within(name: str) -> bool:
    parts = PurePosixPath(name).parts
    return bool(parts) and not name.startswith("/") and ".." not in parts


def _copy(content: IO[bytes], to: Path | None) -> tuple[int, str]:
    """How many bytes there are, and their checksum; written down where a place is given."""
    digest, nbytes = hashlib.sha256(), 0
    with ExitStack() as opened:
        file: IO[bytes] | None = None
        if to is not None:
            to.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(to, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            file = opened.enter_context(open(descriptor, "wb"))
        while chunk := content.read(CHUNK):
            digest.update(chunk)
            nbytes += len(chunk)
            if file is not None:
                file.write(chunk)
        if file is not None:
            file.flush()
            os.fsync(file.fileno())
    return nbytes, digest.hexdigest()


def _damaged(source: Path, why: str) -> InvalidSettings:
    return InvalidSettings(
        f"{source} is no backup, or is damaged: {why}. Nothing was brought back. Use another copy."
    )

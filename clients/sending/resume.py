"""The progress of a file, remembered across interruptions.

One small JSON file per content that is sent to one service. It only saves time: batch ids
are the same in every run, so a batch that is sent again because this file was lost or stale
is recognised by the service. Only where a file has grown does it tell where it ended before.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from clients.http.errors import InputError

_SAVE_EVERY_S = 0.5
_BLOCK = 1 << 20

_OF_SIZE = "x"
"""Stands between the name of samples and the size of their batches."""


@dataclass(frozen=True)
class Progress:
    """What the service has acknowledged so far.

    Attributes:
        run: Part of every batch id; another one sends the same file again.
        epoch: Pass over the file that is under way, from 0.
        row: Samples of that pass that are acknowledged.
        samples: Samples acknowledged in all passes.
        last_entry_id: Of the newest entry acknowledged.
        finished: Everything was sent.
        restored: The newest rollback or upload that the service knew of when this began.
        time: When this was written, Unix seconds.
        digest: Names what is acknowledged: all that was sent up to `row`.
        name: What batch ids begin with; empty before the first.
        cuts: Rows at which a batch ends before it is full: there the file ended once.
    """

    run: str = "0"
    epoch: int = 0
    row: int = 0
    samples: int = 0
    last_entry_id: str = ""
    finished: bool = False
    restored: str = ""
    time: float = 0.0
    digest: str = ""
    name: str = ""
    cuts: tuple[int, ...] = ()


class ResumeFile:
    """Keeps the progress of one job on disk, written often but not at every batch.

    Arguments:
        path: Where; its folder is made where missing.
        about: What the job is, for a person who looks into the file.
    """

    def __init__(self, path: Path, about: dict[str, str]) -> None:
        self.path = path
        self._about = about
        self._saved_at = 0.0

    def load(self) -> Progress:
        """The progress, or that of a job never begun when there is no readable file."""
        try:
            document = json.loads(self.path.read_text("utf-8"))["progress"]
            return Progress(**document | {"cuts": tuple(document.get("cuts", ()))})
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return Progress()

    def save(self, progress: Progress, *, now: bool = False) -> None:
        """Write the progress, atomically; skipped when the last time was a moment ago.

        Raises:
            InputError: the folder cannot be written.
        """
        if not now and time.monotonic() - self._saved_at < _SAVE_EVERY_S:
            return
        document = {**self._about, "progress": asdict(replace(progress, time=time.time()))}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(
                "w", dir=self.path.parent, prefix=".", delete=False, encoding="utf-8"
            ) as file:
                json.dump(document, file, indent=1)
            os.replace(file.name, self.path)
        except OSError as error:
            raise InputError(
                f"How far the file was sent cannot be kept in {self.path.parent} "
                f"({error.strerror}). Set XDG_STATE_HOME to a folder that can be written."
            ) from error
        self._saved_at = time.monotonic()


def resume_files(
    folder: Path, start: str, content: str, address: str, about: dict[str, str]
) -> tuple[ResumeFile, list[ResumeFile]]:
    """The file that keeps how far a content was sent, and those of what begins as it does.

    Arguments:
        folder: Where they are kept.
        start: Names the beginning of what is sent.
        content: Names all of it.
        address: Of the service.
        about: As `ResumeFile` takes it.

    Returns:
        The one, and the others, the one that was written last first.
    """
    service = fingerprint([], address)
    mine = folder / f"{start}-{content}-{service}.json"
    alike = [path for path in folder.glob(f"{start}-*-{service}.json") if path != mine]
    alike.sort(key=lambda path: path.stat().st_mtime_ns, reverse=True)
    return ResumeFile(mine, about), [ResumeFile(path, {}) for path in alike]


def content_of(samples: str, batch_size: int) -> str:
    """Names samples that are sent in batches of a size.

    Arguments:
        samples: Names them; hexadecimal digits.
        batch_size: Samples per batch.
    """
    return f"{samples}{_OF_SIZE}{batch_size}"


def in_other_batches(folder: Path, content: str, address: str) -> tuple[Progress, int] | None:
    """How far the samples of a content were sent in batches of another size, and that size.

    Arguments:
        folder, content, address: As `resume_files` takes them.

    Returns:
        Of several sizes the one that was sent last; None where there is none.
    """
    samples, _, size = content.partition(_OF_SIZE)
    if not size:
        return None
    service = fingerprint([], address)
    found = [
        path
        for path in folder.glob(f"*-{samples}{_OF_SIZE}*-{service}.json")
        if f"-{content}-" not in path.name
    ]
    if not found:
        return None
    last = max(found, key=lambda path: path.stat().st_mtime_ns)
    return ResumeFile(last, {}).load(), int(last.name.split("-")[1].partition(_OF_SIZE)[2])


def state_folder() -> Path:
    """Where resume files are kept."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "gmr-stream" / "ingest"


def fingerprint(paths: list[Path], *options: object) -> str:
    """Name of a job: the content of its files and the options that shape its batches.

    The content, not the name or the date: a file that was moved is the same, one that was
    edited is another.
    """
    digest = hashlib.blake2b(digest_size=10)
    for path in paths:
        digest.update(f"{path.stat().st_size};".encode())
        with path.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    digest.update(repr(options).encode())
    return digest.hexdigest()

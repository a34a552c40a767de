"""What is kept of one model: checkpoints, and which of them.

What a saver needs of a place for checkpoints is `CheckpointStore`; `service.store.in_folder` and
`service.store.in_objects` are such places. A note, JSON-ready, goes with each checkpoint and says
where it came from; it is for people and for choosing what to delete. What the bytes mean is core's
business.

Rules of this module:

1. `entries applied` orders checkpoints in time. Versions do not: after a rollback an
   older version is served again.
2. Kept are the newest few, from which a start tries in turn, the last one before
   each of the latest boundaries, to go back to, and what a rollback went back to, for as long
   as its entry may be read again. What an accepted rollback asks for is kept until it is done.
3. A *twin* is a second copy of the newest checkpoint: what no single copy can lose.
4. A version that answers in place of what is learned is kept as long as one of the newest
   checkpoints says so, and beside it the very snapshot that answers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeVar

NEWEST_KEPT: Final = 3
BOUNDARIES_KEPT: Final = 10

BEFORE_BOUNDARY: Final = "before_boundary"
"""Key of a note that holds the number of the boundary that came right after."""

HELD: Final = "held"
"""Key of a note that names the version that answers in place of the checkpoint's own."""

TWIN: Final = "-twin"

Pins = Callable[[Collection[int], Collection[int]], Collection[int]]
"""Takes the versions that stay, and those that could go; gives which of the latter are pinned."""


def nothing_pinned(staying: Collection[int], spare: Collection[int]) -> Collection[int]:
    """Let everything go that could."""
    return ()


@dataclass(frozen=True, kw_only=True)
class Kept(ABC):
    """One checkpoint that is kept.

    Arguments:
        version: Of the model in it.
        entries_applied: Entries of the input stream that it contains.
        note: Where it came from, JSON-ready; empty where that is lost.
        twin: Whether it is the second copy of that checkpoint.
    """

    version: int
    entries_applied: int
    note: dict[str, Any]
    twin: bool = False

    @property
    @abstractmethod
    def place(self) -> str:
        """Where it is, for people."""

    @abstractmethod
    def read(self) -> bytes:
        """Its bytes, as the place has them; whether they are whole is for the reader to find out.

        Raises:
            StoreUnavailable: It cannot be read for the moment.
            OSError: It cannot be read.
            InvalidCheckpoint: It is not there, or is another one.
        """

    @abstractmethod
    def measure(self) -> tuple[float, int]:
        """When it was written, in Unix seconds, and its bytes."""


class CheckpointStore(Protocol):
    """A place for the checkpoints of one model; `FolderCheckpoints` says what each member means."""

    @property
    def place(self) -> str:
        """Where it is, for people."""

    def write(
        self,
        data: bytes,
        *,
        version: int,
        entries_applied: int,
        note: Mapping[str, object],
        twin: bool = False,
    ) -> None:
        """Put a checkpoint there."""

    def leave_out(self, kept: Kept) -> None:
        """Let a damaged one be none any more."""

    def kept(self) -> Sequence[Kept]:
        """What is there, newest first."""

    def prune(
        self, gone_back_to: Mapping[int, int] = MappingProxyType({}), pins: Pins = nothing_pinned
    ) -> None:
        """Delete what need not be kept."""

    def write_held(self, version: int, data: bytes) -> None:
        """Keep the snapshot that answers in place of what is learned."""

    def read_held(self, version: int) -> bytes:
        """A snapshot that `write_held` kept."""


class StoreUnavailable(OSError):
    """A store does not answer, or refuses; it may go well another time."""


K = TypeVar("K", bound=Kept)


def answering_in(found: Sequence[Kept]) -> set[int]:
    """Versions that answer in place of what the newest checkpoints hold.

    Arguments:
        found: All, newest first.
    """
    return {kept.note[HELD] for kept in found[:NEWEST_KEPT] if HELD in kept.note}


def worth_keeping(found: Sequence[K], gone_back_to: Mapping[int, int]) -> tuple[list[K], list[K]]:
    """Of the checkpoints there are, those that rule 2 keeps.

    Arguments:
        found: All, newest first.
        gone_back_to: Versions that rollbacks went back to, each with the entries applied by
            then; kept until the newest two checkpoints hold the rollback.

    Returns:
        Those that a start may need, and those beside them that a person may want to go back to;
        newest first.
    """
    held = found[1].entries_applied if len(found) > 1 else 0
    needed = {version for version, applied in gone_back_to.items() if applied > held}
    needed |= answering_in(found)
    must = [
        kept for place, kept in enumerate(found) if place < NEWEST_KEPT or kept.version in needed
    ]
    boundaries = [kept for kept in found if BEFORE_BOUNDARY in kept.note][:BOUNDARIES_KEPT]
    return must, [kept for kept in boundaries if kept not in must]


def with_pinned(found: Sequence[K], staying: Sequence[K], pins: Pins) -> list[K]:
    """Of the checkpoints there are, those that stay and those that are pinned besides.

    Arguments:
        found: All.
        staying: Of these, those to be kept in any case.
        pins: Is asked about the versions of the others.
    """
    versions = {kept.version for kept in staying}
    spare = {kept.version for kept in found} - versions
    pinned = set(pins(sorted(versions), sorted(spare))) & spare
    return [kept for kept in found if kept in staying or kept.version in pinned]

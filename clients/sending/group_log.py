"""Which images of a watched folder went together, in a file that only grows.

Images that come are sent in groups, and how they are grouped depends on when somebody looked. So a
group is written down before it is sent, under the id of its batch, and afterwards what became of
it. A group of which that is not known is sent again as it was, and the service knows the id. One
that was refused is no group any more: its images may come again in others.

One line of JSON each: `{"id": ..., "images": [[file, bytes, time], ...]}`, and
`{"id": ..., "entry": ..., "restored": ...}` or `{"id": ..., "images": []}`. Without the file every
image is sent as if it were new.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from clients.data.arrivals import Arrival
from clients.http.answers import IngestState
from clients.http.errors import InputError
from clients.sending.samples import position


@dataclass(frozen=True)
class ImageGroup:
    """Images that are one batch.

    Arguments:
        batch_id: Of the batch.
        images: In their order.
        entry_id: Where the batch stands in the stream; None until that is known.
        restored: The newest rollback or upload that the service knew of then.
    """

    batch_id: str
    images: tuple[Arrival, ...]
    entry_id: str | None = None
    restored: str = ""


class GroupLog:
    """The groups of a folder, oldest first.

    Arguments:
        path: The file; its folder is made where missing.

    Attributes:
        groups: Those that were sent, or were about to be.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.groups: list[ImageGroup] = []
        try:
            lines = path.read_bytes().split(b"\n")
        except OSError:
            lines = []
        self._is_torn = bool(lines and lines[-1])  # it was being written
        for line in lines:
            self._read(line)

    def forget(self) -> None:
        """Begin anew.

        Raises:
            InputError: The file cannot be written.
        """
        self.groups, self._is_torn = [], False
        self._write("w", "")

    def begin(self, group: ImageGroup) -> None:
        """A group is about to be sent.

        Raises:
            InputError: The file cannot be written.
        """
        self.groups.append(group)
        self._append({"id": group.batch_id, "images": group.images})

    def acknowledged(self, place: int, entry_id: str, restored: str) -> None:
        """A group is durable.

        Arguments:
            place: Of the group.
            entry_id: See `ImageGroup`.
            restored: See `ImageGroup`.

        Raises:
            InputError: The file cannot be written.
        """
        group = replace(self.groups[place], entry_id=entry_id, restored=restored)
        self.groups[place] = group
        self._append({"id": group.batch_id, "entry": entry_id, "restored": restored})

    def refused(self, place: int) -> None:
        """The service does not take a group, and will not.

        Arguments:
            place: Of the group.

        Raises:
            InputError: The file cannot be written.
        """
        group = replace(self.groups[place], images=())
        self.groups[place] = group
        self._append({"id": group.batch_id, "images": ()})

    @property
    def images(self) -> list[Arrival]:
        """Images that were sent, or were about to be."""
        return [image for group in self.groups for image in group.images]

    def left(self, model: IngestState) -> list[int]:
        """Places of the groups to send, in order: all where the service has lost some.

        Arguments:
            model: The served model.
        """
        known = [group for group in self.groups if group.entry_id is not None]
        if known:
            newest = max(known, key=lambda group: position(group.entry_id))
            reached = position(model.last_entry_id)
            forgotten = model.backlog == 0 and reached < position(newest.entry_id)
            if forgotten or newest.restored != (model.restored_entry_id or ""):
                return [*range(len(self.groups))]
        return [place for place, group in enumerate(self.groups) if group.entry_id is None]

    def _read(self, line: bytes) -> None:
        try:
            told = json.loads(line)
            images = tuple(Arrival(*one) for one in told.get("images", ()))
            if images:
                self.groups.append(ImageGroup(told["id"], images))
                return
            place = next(
                place
                for place in reversed(range(len(self.groups)))
                if self.groups[place].batch_id == told["id"]
            )
            group = self.groups[place]
            if "images" in told:
                self.groups[place] = replace(group, images=())
            else:
                entry_id, restored = told["entry"], told["restored"]
                self.groups[place] = replace(group, entry_id=entry_id, restored=restored)
        except (ValueError, KeyError, TypeError, StopIteration):
            return  # torn; what it would have said is found out again

    def _append(self, line: dict[str, Any]) -> None:
        text = json.dumps(line, separators=(",", ":")) + "\n"
        self._write("a", "\n" + text if self._is_torn else text)
        self._is_torn = False

    def _write(self, mode: str, text: str) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open(mode, encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise InputError(
                f"Which images were sent cannot be kept in {self.path.parent} ({error.strerror}). "
                f"Set XDG_STATE_HOME to a folder that can be written."
            ) from error

"""Images of a watched folder -> batches -> a running service, in the order of their coming."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from clients.data.arrivals import Arrival, arrival_of
from clients.data.formats.image import ImageForm, label_of, read_image
from clients.http import calls
from clients.http.client import GMRClient
from clients.http.connection import Sender
from clients.http.errors import ClientError, InputError, RequestConflict, RequestRefused
from clients.sending.group_log import GroupLog, ImageGroup
from clients.sending.image_shape import check_shape, shown
from clients.sending.new_model import state_for_sender
from clients.sending.resume import fingerprint
from clients.sending.samples import ProgressListener, Totals
from core.errors import InvalidBatch

OF_THESE_IMAGES: Final = (400, 413, 422)
"""Statuses by which the service refuses what is sent, and not whoever sends it."""

OTHER_CONTENT: Final = "/batch-conflict"
"""How the type of the problem ends that a batch id is known with other content."""


@dataclass
class WatchedImages:
    """Sends groups of images, each image once.

    Arguments:
        folder: Where they come.
        client: Asks the service.
        sender: Sends to it.
        log: Which groups there were.
        name: What the ids of all batches begin with.
        form: What images are made into.
        with_labels: An image in a folder of the folder is of the class that this is called after.
        with_ids: The id of a sample is its path in the folder.
        rate: Samples per second at most.
        tell: Is told why an image cannot be used, or a group.
        listener: Is told after every batch.

    Attributes:
        totals: What was sent.
        unusable: Paths in the folder of images that cannot be used as they are.
    """

    folder: Path
    client: GMRClient
    sender: Sender
    log: GroupLog
    name: str
    form: ImageForm
    with_labels: bool
    with_ids: bool
    rate: float | None
    tell: Callable[[ClientError], None]
    listener: ProgressListener
    totals: Totals = field(default_factory=Totals)
    unusable: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._model = state_for_sender(self.client)
        shape = self._model.image_shape
        self._shape = tuple(shape) if shape else None
        self._began = time.monotonic()

    def send_what_is_left(self) -> None:
        """Send groups of an earlier run that the service does not have.

        Images of them that have gone or changed since are left out.

        Raises:
            ClientError: See `send`.
        """
        for place in self.log.left(self._model):
            group = self.log.groups[place]
            there = [
                image
                for image in group.images
                if arrival_of(self.folder, self.folder / image.file) == image
            ]
            usable, pixels = self._read(there)
            if usable:
                self._send(place, group.batch_id, usable, pixels)

    def send(self, images: Sequence[Arrival]) -> None:
        """Send images that have come.

        Raises:
            ClientError: The service takes nothing from whoever asks, or was away for too long.
        """
        usable, pixels = self._read(images)
        if not usable:
            return
        files = [self.folder / image.file for image in usable]
        named = fingerprint(files, *(image.file for image in usable))
        group = ImageGroup(f"{self.name}-{named}", tuple(usable))
        self.log.begin(group)
        self._send(len(self.log.groups) - 1, group.batch_id, usable, pixels)

    def _send(
        self, place: int, batch_id: str, images: Sequence[Arrival], pixels: NDArray[np.uint8]
    ) -> None:
        paths = [Path(image.file).parts for image in images]
        labels = [label_of(parts[0]) if len(parts) > 1 else None for parts in paths]
        known = self.with_labels and any(label is not None for label in labels)
        ids = [image.file for image in images] if self.with_ids else None
        try:
            call = calls.ingest(pixels, labels if known else None, batch_id, ids)
        except InvalidBatch as error:
            raise InputError(f"{self.folder}: {error}") from error
        if self.rate is not None:
            pause = self._began + self.totals.samples / self.rate - time.monotonic()
            time.sleep(max(0.0, pause))
        try:
            answer = self.sender.send(call)
        except RequestRefused as error:
            if error.status not in OF_THESE_IMAGES:
                raise
            self.log.refused(place)
            self.unusable.update(image.file for image in images)
            self.tell(error)
            return
        except RequestConflict as error:
            if not error.type.endswith(OTHER_CONTENT):
                raise
            # The service holds the whole group, some images of which have gone since.
            held = self._model.last_entry_id or ""
            self.log.acknowledged(place, held, self._model.restored_entry_id or "")
            return
        self.log.acknowledged(place, answer.entry_id, self._model.restored_entry_id or "")
        self.totals = Totals(
            samples=self.totals.samples + len(images),
            batches=self.totals.batches + 1,
            duplicate_samples=self.totals.duplicate_samples + len(images) * answer.duplicate,
            backlog=answer.backlog,
            seconds=time.monotonic() - self._began,
        )
        self.listener.sent(self.totals)

    def _read(self, images: Sequence[Arrival]) -> tuple[list[Arrival], NDArray[np.uint8]]:
        """Those that can be used, and their pixels, with shape (N, H, W) or (N, H, W, 3)."""
        usable, pixels = [], []
        for image in images:
            try:
                pixels.append(self._pixels(self.folder / image.file))
            except InputError as error:
                self.unusable.add(image.file)
                self.tell(error)
            else:
                self.unusable.discard(image.file)
                usable.append(image)
        return usable, np.stack(pixels) if pixels else np.zeros(0, np.uint8)

    def _pixels(self, file: Path) -> NDArray[np.uint8]:
        in_colour = True if self._shape is not None and len(self._shape) == 3 else None
        found = read_image(file, self.form, colour=in_colour)
        if self._shape is None:
            check_shape(self._model, found.shape, file)
            self._shape = found.shape
        elif found.shape != self._shape:
            raise InputError(
                f"{file} is an image of {shown(found.shape)}; those before are of "
                f"{shown(self._shape)}. Expected one size. Bring all to it with --size "
                f"HEIGHT,WIDTH, and colours to grey levels with --grey."
            )
        return found

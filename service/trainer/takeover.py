"""How a trainer becomes the one: it takes the fence, and reads what is kept only then.

Whoever held the fence before can write, point and release no more. Read earlier, the newest
checkpoint might be one behind which that one has let entries go meanwhile.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from service.broker.feed import Feed
from service.broker.pointer import Pointer
from service.settings import Settings
from service.store.choice import most_bytes_of, objects_of
from service.store.in_folder import FolderCheckpoints
from service.store.in_objects import ObjectCheckpoints
from service.store.kept import StoreUnavailable
from service.trainer.activity import Activity
from service.trainer.saver import Checkpoint, Saver

logger = logging.getLogger(__name__)

T = TypeVar("T")

PAUSE_S: Final = 1.0
"""Seconds before a store that does not answer is asked again."""


def place_of(settings: Settings, pointer: Pointer) -> FolderCheckpoints | ObjectCheckpoints:
    """Where the checkpoints of a model are.

    Raises:
        InvalidSettings: There they cannot be.
    """
    folder = settings.data_dir / "checkpoints"
    if not settings.checkpoints_in_store:
        return FolderCheckpoints(folder)
    return ObjectCheckpoints(objects_of(settings), pointer, folder, most_bytes_of(settings))


class Takeover:
    """What a writer does between taking its lease and going on with its model.

    Arguments:
        feed: Of the model.
        pointer: Of the model.
        checkpoints: Of the model.
        saver: That reads them.
        activity: Told that waiting for a store is no stall.
        gives_up: Asked while the store is away; True makes it fail instead of waiting on.
    """

    def __init__(
        self,
        feed: Feed,
        pointer: Pointer,
        checkpoints: FolderCheckpoints | ObjectCheckpoints,
        saver: Saver,
        activity: Activity,
        gives_up: Callable[[], bool],
    ) -> None:
        self._feed = feed
        self._pointer = pointer
        self._checkpoints = checkpoints
        self._saver = saver
        self._activity = activity
        self._gives_up = gives_up

    @property
    def place(self) -> str:
        """Where the checkpoints are, for people."""
        return self._checkpoints.place

    def take_fence(self, *, patient: bool) -> int:
        """Shut out whoever wrote before, and find what is kept; the epoch.

        Arguments:
            patient: Whether to wait for a store that does not answer.

        Raises:
            StoreUnavailable: It does not answer, and is not waited for any longer.
            StreamUnavailable: Redis is away, likewise.
            LeaseLost: Another trainer has the lease.
        """
        if isinstance(self._checkpoints, ObjectCheckpoints):
            opening = partial(self._checkpoints.open, self._feed.call)
            return self._waiting(opening, patient)
        return int(self._feed.call(self._pointer.take))

    def recover(self, *, patient: bool) -> Checkpoint | None:
        """The newest state that can be read; None where none was ever kept.

        Raises:
            InvalidSettings: It belongs to another kind of model than the settings ask for, or
                another release wrote it.
            StoreUnavailable: As for `take_fence`.
        """
        return self._waiting(self._saver.recover, patient)

    def _waiting(self, act: Callable[[], T], patient: bool) -> T:
        while True:
            try:
                return act()
            except StoreUnavailable as error:
                if not patient or self._gives_up():
                    raise
                logger.warning("waiting for the store of checkpoints: %s", error)
                self._activity.went_on()  # it hangs at nothing
                time.sleep(PAUSE_S)

"""Whose entry is next: everybody gets the same time, so that one loud model starves nobody.

Start-time fair queueing (Goyal, Vin and Cheng 1996) with the time that was really taken: who has
taken least is next. Who was quiet begins where the one stands that was served last, so that nobody
saves up time by being quiet, and nobody pays for having been alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class FairQueue(Generic[K, V]):
    """Values of several owners, each owner's in order.

    Example:
        >>> queue: FairQueue[str, int] = FairQueue()
        >>> queue.put("loud", [1, 2, 3]); queue.put("quiet", [10])
        >>> order = []
        >>> while queue:
        ...     owner, value = queue.take()
        ...     order.append(value)
        ...     queue.charge(owner, 1.0)
        >>> order
        [1, 10, 2, 3]
    """

    def __init__(self) -> None:
        self._waiting: dict[K, deque[V]] = {}
        self._spent: dict[K, float] = {}
        self._now = 0.0  # what the owner had spent that was served last, when it was

    def __len__(self) -> int:
        """Owners whose values wait."""
        return len(self._waiting)

    def waiting(self, owner: K) -> int:
        """How many of an owner's values wait."""
        return len(self._waiting.get(owner, ()))

    def put(self, owner: K, values: Iterable[V]) -> None:
        """Add values of an owner, after those that wait."""
        if owner not in self._waiting:
            self._spent[owner] = max(self._spent.get(owner, self._now), self._now)
            self._waiting[owner] = deque()
        self._waiting[owner].extend(values)
        if not self._waiting[owner]:
            del self._waiting[owner]

    def take(self) -> tuple[K, V]:
        """The next value and whose it is.

        Raises:
            ValueError: None waits.
        """
        owner = min(self._waiting, key=self._spent.__getitem__)
        self._now = self._spent[owner]
        values = self._waiting[owner]
        value = values.popleft()
        if not values:
            del self._waiting[owner]
        return owner, value

    def charge(self, owner: K, seconds: float) -> None:
        """Say what an owner's value has cost."""
        self._spent[owner] = self._spent.get(owner, 0.0) + seconds

    def drop(self, owner: K) -> None:
        """Forget an owner and what waits of it."""
        self._waiting.pop(owner, None)
        self._spent.pop(owner, None)

"""Sequential learning tasks (SLTs): a data set cut into sub-tasks of disjoint classes.

The seven of the paper have names; any other is written out as its classes,
`0,1/2,3/4`, with quotes around a name that holds a comma or a slash. Everything
here is a pure function of data, SLT and seed, so that a stream can be sent again
exactly as it was.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clients.http.errors import InputError

PAPER_SLTS: dict[str, str] = {
    "D10": "0,1,2,3,4,5,6,7,8,9",
    "D9-1a": "0,1,2,3,4,5,6,7,8/9",
    "D9-1b": "0,1,2,4,5,6,7,8,9/3",
    "D5-5a": "0,1,2,3,4/5,6,7,8,9",
    "D5-5b": "0,1,2,6,7/3,4,5,8,9",
    "D2-2-2-2-2a": "0,1/2,3/4,5/6,7/8,9",
    "D2-2-2-2-2b": "1,7/0,2/6,8/4,5/3,9",
}
"""Name -> sub-tasks, as in the paper's table of SLTs."""

_PART = re.compile(
    r'\s*(?:"(?P<quoted>(?:[^"]|"")*)"\s*(?=[,/]|\Z)|(?P<plain>[^,/]*))(?P<end>[,/]|\Z)'
)
"""One class as in CSV: in quotes, within which a quote is doubled, or up to a comma or a slash."""

HOW_TO_QUOTE = (
    "A class whose name holds a comma or a slash, or begins or ends with a blank, stands in double "
    """quotes, as in CSV: --slt '"Login, password",Login/Delivery'."""
)


@dataclass(frozen=True)
class SLT:
    """Sub-tasks in the order in which they are streamed.

    Attributes:
        name: As the paper calls it, or the sub-tasks themselves.
        sub_tasks: The classes of each sub-task; no class occurs twice.

    Example:
        >>> slt = SLT.parse("D5-5b")
        >>> slt.sub_tasks
        ((0, 1, 2, 6, 7), (3, 4, 5, 8, 9))
        >>> SLT.parse("cat,dog/fox").classes
        ('cat', 'dog', 'fox')
        >>> SLT.parse('"A / B",C/"D, E"').sub_tasks
        (('A / B', 'C'), ('D, E',))
    """

    name: str
    sub_tasks: tuple[tuple[int | str, ...], ...]

    @classmethod
    def parse(cls, text: str) -> SLT:
        """The SLT of that name, or the one written out as `0,1/2,3/...`.

        Arguments:
            text: A name, or classes separated by commas and sub-tasks by slashes. Quotes as in
                CSV go around a class with a comma, a slash or blanks at its ends.

        Raises:
            InputError: `text` is neither, leaves a sub-task empty or repeats a class.
        """
        by_lower_name = {name.lower(): name for name in PAPER_SLTS}
        name = by_lower_name.get(text.strip().lower(), text.strip())
        if name not in PAPER_SLTS and name[:1] in "Dd" and name[1:2].isdigit() and "," not in name:
            raise InputError(
                f"There is no SLT called {name!r}. Known: {', '.join(PAPER_SLTS)}. "
                f"Use one of these, or write the classes out, for example 0,1/2,3."
            )
        sub_tasks = _sub_tasks(PAPER_SLTS.get(name, name))
        seen: set[int | str] = set()
        for position, sub_task in enumerate(sub_tasks):
            for label in sub_task:
                if label == "":
                    raise InputError(
                        f"Sub-task {position} of {text!r} names an empty class. Expected classes "
                        f"separated by commas and sub-tasks by slashes, for example 0,1/2,3. "
                        f"{HOW_TO_QUOTE}"
                    )
                if label in seen:
                    raise InputError(
                        f"Class {label!r} occurs twice in {text!r}, but sub-tasks share no class. "
                        f"Name each class once. {HOW_TO_QUOTE}"
                    )
                seen.add(label)
        return cls(name, sub_tasks)

    @property
    def classes(self) -> tuple[int | str, ...]:
        """All classes, in order of appearance."""
        return tuple(label for sub_task in self.sub_tasks for label in sub_task)

    @property
    def n_boundaries(self) -> int:
        """Boundaries between sub-tasks."""
        return len(self.sub_tasks) - 1

    def rows(self, labels: NDArray[np.generic], sub_task: int | None = None) -> NDArray[np.int64]:
        """Indices of the samples of one sub-task, or of all of them, in the data's order.

        Arguments:
            labels: Labels, with shape (N,), integers or strings.
            sub_task: Which one, from 0; None for the joint set.
        """
        wanted = self.classes if sub_task is None else self.sub_tasks[sub_task]
        return np.flatnonzero(np.isin(labels, _like(wanted, labels)))

    def check(self, labels: NDArray[np.generic]) -> None:
        """Raise `InputError` when a class has no sample among `labels` (N,)."""
        known = np.unique(labels).tolist()
        missing = [label for label in _like(self.classes, labels).tolist() if label not in known]
        if missing:
            raise InputError(
                f"The SLT {self.name} needs class {missing[0]!r}, which the data does not have. "
                f"Its {len(known)} classes: {', '.join(map(repr, known[:30]))}"
                f"{', ...' if len(known) > 30 else ''}. Name classes of the data. {HOW_TO_QUOTE}",
                missing=missing,
                known=known,
            )


@dataclass(frozen=True)
class SubTask:
    """The samples of one sub-task, in the order in which they are to be sent.

    Attributes:
        index: Position in the SLT, from 0.
        classes: Its classes.
        features: Samples, with shape (N, D), in the data's type.
        labels: Labels, with shape (N,).
    """

    index: int
    classes: tuple[int | str, ...]
    features: NDArray[np.generic]
    labels: NDArray[np.generic]

    def __len__(self) -> int:
        return len(self.features)

    def batches(self, batch_size: int) -> Iterator[tuple[NDArray[np.generic], NDArray[np.generic]]]:
        """Minibatches in order; the last may be smaller, so that none straddles a boundary."""
        for start in range(0, len(self), batch_size):
            stop = start + batch_size
            yield self.features[start:stop], self.labels[start:stop]


def stream(
    slt: SLT,
    features: NDArray[np.generic],
    labels: NDArray[np.generic],
    *,
    epochs: int = 1,
    seed: int = 0,
    shuffle: bool = True,
) -> Iterator[SubTask]:
    """The sub-tasks of a data set, one after the other.

    Arguments:
        slt: How to cut.
        features: Samples, with shape (N, D).
        labels: Labels, with shape (N,). Samples of classes outside the SLT are left out.
        epochs: How often a sub-task's samples are repeated within it.
        seed: Of the shuffles. Each depends only on (seed, sub-task, epoch), so that a
            sub-task is the same whatever came before it.
        shuffle: False keeps the data's order, for streams that have one.

    Raises:
        InputError: the SLT names a class that the data does not have.

    Example:
        >>> x, y = np.arange(8, dtype=np.float32).reshape(4, 2), np.array([0, 1, 2, 1])
        >>> [sub_task.labels.tolist() for sub_task in stream(SLT.parse("1/0,2"), x, y, seed=1)]
        [[1, 1], [0, 2]]
    """
    slt.check(labels)
    for index, classes in enumerate(slt.sub_tasks):
        rows = slt.rows(labels, index)
        passes = [
            np.random.default_rng([seed, index, epoch]).permutation(rows) if shuffle else rows
            for epoch in range(epochs)
        ]
        order = np.concatenate(passes)
        yield SubTask(index, classes, features[order], labels[order])


def _sub_tasks(text: str) -> tuple[tuple[int | str, ...], ...]:
    sub_tasks: list[list[int | str]] = [[]]
    for part in _PART.finditer(text):
        if part["quoted"] is None:
            label = _class(part["plain"].strip())
        else:
            quoted = part["quoted"].replace('""', '"')
            label = _class(quoted)
            label = label if str(label) == quoted else quoted  # "007" is text
        sub_tasks[-1].append(label)
        if part["end"] == "/":
            sub_tasks.append([])
        if not part["end"]:
            break
    return tuple(map(tuple, sub_tasks))


def _class(text: str) -> int | str:
    return int(text) if text.isascii() and text.removeprefix("-").isdigit() else text


def _like(wanted: tuple[int | str, ...], labels: NDArray[np.generic]) -> NDArray[np.generic]:
    """Classes as they occur in the data: `3` is written the same as int and as text."""
    if np.issubdtype(labels.dtype, np.integer):
        strings = [label for label in wanted if isinstance(label, str)]
        if strings:
            raise InputError(
                f"The SLT names the class {strings[0]!r}, but the labels of this data are "
                f"integers. Name classes by their integers."
            )
        return np.array(wanted, dtype=np.int64)
    return np.array([str(label) for label in wanted])

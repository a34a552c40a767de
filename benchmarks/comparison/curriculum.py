"""Which sequential learning tasks each data set is given.

The paper's seven are for ten classes, 0 to 9. Devanagari has more, so it is given two
things besides: the same five pairs made of the next ten classes, and all of its 24
classes, together and one at a time.
"""

from __future__ import annotations

from clients.data.tasks import PAPER_SLTS, SLT

DATA = ("mnist", "fashion_mnist", "devanagari")
"""The paper's data sets."""

_PAIRS_OF_LETTERS = "10,11/12,13/14,15/16,17/18,19"

_BESIDES: dict[str, tuple[SLT, ...]] = {
    "devanagari": (
        SLT("D10-letters", SLT.parse(_PAIRS_OF_LETTERS.replace("/", ",")).sub_tasks),
        SLT("D2-2-2-2-2a-letters", SLT.parse(_PAIRS_OF_LETTERS).sub_tasks),
        SLT("D24", (tuple(range(24)),)),
        SLT("D24x1", tuple((label,) for label in range(24))),
    )
}

_BASELINES = {
    **dict.fromkeys(PAPER_SLTS, "D10"),
    "D10-letters": "D10-letters",
    "D2-2-2-2-2a-letters": "D10-letters",
    "D24": "D24",
    "D24x1": "D24",
}


def slts_of(data: str) -> tuple[SLT, ...]:
    """Every SLT of a data set, in the order of the tables.

    Example:
        >>> [slt.name for slt in slts_of("devanagari")][-2:]
        ['D24', 'D24x1']
    """
    return (*(SLT.parse(name) for name in PAPER_SLTS), *_BESIDES.get(data, ()))


def slt_named(data: str, text: str) -> SLT:
    """An SLT of a data set by its name, or one written out as `0,1/2,3`.

    Raises:
        InputError: see `SLT.parse`.

    Example:
        >>> slt_named("devanagari", "d24x1").n_boundaries
        23
    """
    by_name = {slt.name.lower(): slt for slt in _BESIDES.get(data, ())}
    return by_name.get(text.strip().lower()) or SLT.parse(text)


def baseline_of(slt: str) -> str | None:
    """The SLT that has the same classes in one sub-task: what forgetting is measured against.

    Example:
        >>> baseline_of("D9-1a"), baseline_of("D24x1"), baseline_of("0,1/2,3")
        ('D10', 'D24', None)
    """
    return _BASELINES.get(slt)

"""A number with what is counted, in words."""

from __future__ import annotations


def counted(n: int, one: str, many: str | None = None) -> str:
    """So many of a thing, as people say it.

    Arguments:
        n: How many.
        one: What one of them is called.
        many: What others are called; None for an s at the end.

    Example:
        >>> counted(1, "batch", "batches"), counted(1200, "sample"), counted(0, "sample")
        ('1 batch', '1,200 samples', '0 samples')
    """
    return f"{n:,} {one if n == 1 else many or f'{one}s'}"

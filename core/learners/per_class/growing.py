"""Held samples that more are put behind, without a copy of all that are there."""

from __future__ import annotations

from torch import Tensor

ROOM = 2
"""Times as many rows as are held for which there is room in new memory."""

_FILLED = "_gmr_filled"
"""Attribute of memory that says how many of its rows are in use."""


def appended(held: Tensor, more: Tensor) -> Tensor:
    """Both, one behind the other; neither is changed.

    The result is the beginning of a larger tensor with room for more. Where what is held is all
    that is in use of such a one, rows are written behind it, which nobody sees who has it already;
    else everything is copied. So what it costs to hold samples one by one grows with their number.

    Arguments:
        held: With shape (N, ...).
        more: With shape (M, ...), of the same type.

    Example:
        >>> one = appended(torch.zeros(0, 1), torch.tensor([[1.0]]))
        >>> two, other = appended(one, torch.tensor([[2.0]])), appended(one, torch.tensor([[3.0]]))
        >>> two.tolist(), other.tolist(), one.tolist()
        ([[1.0], [2.0]], [[1.0], [3.0]], [[1.0]])
    """
    n, total = held.size(0), held.size(0) + more.size(0)
    memory = held._base
    in_use = getattr(memory, _FILLED, None)
    if memory is None or in_use != n or total > memory.size(0):
        memory = held.new_empty(ROOM * total, *held.shape[1:])
        memory[:n] = held
    memory[n:total] = more
    setattr(memory, _FILLED, total)
    return memory[:total]

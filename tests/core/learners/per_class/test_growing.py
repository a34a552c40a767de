"""Tests for core.learners.per_class.growing."""

from __future__ import annotations

import torch

from core.learners.per_class.growing import appended


def rows(first: int, n: int) -> torch.Tensor:
    return torch.arange(first, first + n).float()[:, None].expand(n, 3).contiguous()


def test_nothing_is_copied_that_is_there_already() -> None:
    held = rows(0, 0)
    memory = set()
    for n in range(100):
        held = appended(held, rows(n, 1))
        memory.add(held.untyped_storage().data_ptr())
    assert torch.equal(held, rows(0, 100))
    assert len(memory) <= 8  # twice as much whenever there is no room


def test_a_state_that_is_kept_stays_what_it_was_whatever_comes_after_it() -> None:
    kept = appended(rows(0, 0), rows(0, 5))
    one, other = appended(kept, rows(5, 2)), appended(kept, rows(50, 2))
    further = appended(one, rows(7, 1))
    assert torch.equal(kept, rows(0, 5))
    assert torch.equal(one, rows(0, 7))
    assert torch.equal(other, torch.cat([rows(0, 5), rows(50, 2)]))
    assert torch.equal(further, rows(0, 8))


def test_the_beginning_or_a_part_of_what_is_held_is_not_written_into() -> None:
    held = appended(rows(0, 0), rows(0, 4))
    for part in (held[:3], held[1:], held[:0]):
        before = part.clone()
        assert torch.equal(appended(part, rows(9, 2)), torch.cat([before, rows(9, 2)]))
    assert torch.equal(held, rows(0, 4))

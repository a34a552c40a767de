"""What was compiled before, where nothing more can be kept: in a container's file system.

numba keeps what it compiles beside the source only where it may write. What an image was built
with lies there all the same, and is read back by this.
"""

from __future__ import annotations

from typing import Any

from numba.core.caching import CompileResultCacheImpl, FunctionCache, InTreeCacheLocator


class _Beside(InTreeCacheLocator):
    """The folder of Python's own compiled files, whether or not it can be written, or is there."""

    def ensure_cache_path(self) -> None:
        pass


class _BesideOnly(CompileResultCacheImpl):
    _locator_classes = [_Beside]  # noqa: RUF012


class Kept(FunctionCache):
    """Of one function. What is not there is compiled for this run."""

    _impl_class = _BesideOnly

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keeps nothing."""

"""Results on disk: one JSON file each, whole or not there at all.

A file is written beside its final name and renamed, so that an interruption leaves the
old result or the new one. Rule: a file is believed only as far as its configuration says
what was measured; one that cannot be read counts as not there.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

_CODE = ("source", "versions")
"""Keys of a configuration that change as code and libraries do, while the question stays."""


class Store:
    """Results below one folder.

    Arguments:
        folder: Made when first needed.
        any_source: Believe results of other versions of the code and the libraries.

    Example:
        >>> import tempfile
        >>> store = Store(Path(tempfile.mkdtemp()))
        >>> store.write(Path("a/b.json"), {"configuration": {"seed": 1}, "accuracy": 0.9})
        >>> store.read(Path("a/b.json"), {"seed": 1})["accuracy"]
        0.9
        >>> store.read(Path("a/b.json"), {"seed": 2}) is None
        True
    """

    def __init__(self, folder: Path, *, any_source: bool = False) -> None:
        self.folder, self._any_source = folder, any_source

    def read(self, path: Path, configuration: Mapping[str, Any]) -> dict[str, Any] | None:
        """The result that stands there, if it is one of that configuration.

        Arguments:
            path: Below the folder.
            configuration: JSON-ready; the stored one must be the same.
        """
        try:
            values = orjson.loads((self.folder / path).read_bytes())
            found = values["configuration"]
        except (OSError, orjson.JSONDecodeError, KeyError, TypeError):
            return None
        if not isinstance(found, dict) or self._asked(found) != self._asked(configuration):
            return None
        return dict(values)

    def write(self, path: Path, values: Mapping[str, Any]) -> None:
        """Put a result there, its `configuration` included.

        Raises:
            OSError: the disk is full or fails; what stood there before is whole.
        """
        options = orjson.OPT_INDENT_2 | orjson.OPT_SERIALIZE_NUMPY
        write_whole(self.folder / path, orjson.dumps(values, option=options) + b"\n")

    def _asked(self, configuration: Mapping[str, Any]) -> Any:
        left_out = _CODE if self._any_source else ()
        asked = {key: value for key, value in configuration.items() if key not in left_out}
        return orjson.loads(orjson.dumps(asked, option=orjson.OPT_SORT_KEYS))


def write_whole(path: Path, data: bytes) -> Path:
    """Write a file so that nobody ever sees half of it; gives the path back."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".tmp")
    unfinished.write_bytes(data)
    unfinished.replace(path)
    return path

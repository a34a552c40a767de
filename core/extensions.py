"""What an installation adds to the project: detectors of other packages, by their entry points.

A package offers a detector by an entry point in the group `gmr.detectors`, whose name is the
detector's and whose object makes it from the settings of an engine:

    [project.entry-points."gmr.detectors"]
    ddm = "my_package:make_ddm"          # EngineConfig -> core.drift.detector.Detector
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

DETECTORS = "gmr.detectors"
"""Group of entry points that offer detectors."""


@cache
def offered(group: str) -> dict[str, EntryPoint]:
    """Entry points of a group, by their names; of one name the first that is found."""
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=group):
        found.setdefault(point.name, point)
    return found


def load(group: str, name: str) -> Any:
    """The object of an entry point.

    Raises:
        KeyError: There is none of that name.
        ImportError, AttributeError: It cannot be imported.
    """
    return offered(group)[name].load()

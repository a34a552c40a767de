"""Extensions of an installation: parts of other packages, by their entry points.

A package offers a detector or a learner by an entry point whose name is the part's, and whose
object makes it from the settings of an engine; a family of densities by its class:

    [project.entry-points."gmr.detectors"]
    ddm = "my_package:make_ddm"          # EngineConfig -> core.drift.detector.Detector

    [project.entry-points."gmr.learners"]
    spherical = "my_package:Learner"     # EngineConfig -> core.learners.learner.Learner

    [project.entry-points."gmr.densities"]
    spherical = "my_package:Spheres"     # core.density.density.Density, whose `kind` is the name

A learner's name is what the setting `preset` asks for. Its object may have an attribute `preset`,
a `core.config.Preset`, which says how the settings are to be read.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

DETECTORS = "gmr.detectors"
"""Group of entry points that offer detectors."""

LEARNERS = "gmr.learners"
"""Group of those that offer learners."""

DENSITIES = "gmr.densities"
"""Group of those that offer families of densities."""


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

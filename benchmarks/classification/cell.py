"""One cell of the comparison: who, on which stream, in which units and batches."""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.classification.catalogue import SOURCES
from benchmarks.classification.registry import MODULES, is_ours
from benchmarks.classification.stream import LabelledStream
from benchmarks.classification.units import in_units
from benchmarks.comparison.provenance import digest, source_digest, versions
from core.config import EngineConfig

SCHEMA = "gmr-streams-cell/1"

_HERE = "benchmarks.classification"
_LIBRARIES = ("river", "scikit-learn")


@dataclass(frozen=True)
class Entrant:
    """Somebody, as set up.

    Attributes:
        opponent: A preset, or one of `registry.OPPONENTS`.
        settings: Other fields of `EngineConfig`, of a preset.
        note: What tells it from the same one with other settings, in a word.
    """

    opponent: str
    settings: dict[str, Any] = field(default_factory=dict)
    note: str = ""

    @property
    def ours(self) -> bool:
        """Whether it is the engine."""
        return is_ours(self.opponent)

    @property
    def name(self) -> str:
        """In tables.

        Example:
            >>> Entrant("mfa", {"detector": "none"}, "never").name
            'mfa-never'
        """
        return f"{self.opponent}-{self.note}" if self.note else self.opponent


@dataclass(frozen=True)
class Cell:
    """Names one cell.

    Attributes:
        entrant: Who.
        stream: One of `catalogue.SOURCES`.
        units: One of `units.UNITS`.
        batch: Samples named before any of their labels is learned.
        samples: Of the stream, at most.
        seed: Of the stream and of the entrant.
        held: Samples held out of the stream, to be named after few samples; 0: none.
    """

    entrant: Entrant
    stream: str
    units: str
    batch: int
    samples: int
    seed: int
    held: float = 0.0

    @property
    def path(self) -> Path:
        """Of its file, below the folder of cells.

        Example:
            >>> Cell(Entrant("flat"), "walk", "unit", 10, 5000, 0).path.as_posix()
            'walk/unit/B10/flat-n5000-seed0.json'
        """
        settings = self.entrant.settings
        # Other settings are other files, so that neither takes the other's place.
        own = f"-{digest(settings)[:8]}" if settings else ""
        few = "-few" if self.held else ""
        file = f"{self.entrant.opponent}{own}-n{self.samples}-seed{self.seed}{few}.json"
        return Path(re.sub(r"[^\w-]+", "_", self.stream), self.units, f"B{self.batch}", file)

    def configuration(self, stream: LabelledStream) -> dict[str, Any]:
        """All that determines the result, JSON-ready.

        Arguments:
            stream: The one that is named.
        """
        who: dict[str, Any] = {"opponent": self.entrant.opponent}
        if self.entrant.ours:
            config = {**self.entrant.settings, "preset": self.entrant.opponent, "seed": self.seed}
            who["config"] = EngineConfig(**config).to_dict()
        module = "engine" if self.entrant.ours else MODULES[self.entrant.opponent]
        return {
            "schema": SCHEMA,
            **who,
            "stream": self.stream,
            "units": self.units,
            "batch": self.batch,
            "samples": self.samples,
            "seed": self.seed,
            "held": self.held,
            "checksum": checksum(stream),
            "versions": _versions() if not self.entrant.ours else versions(),
            "source": source_digest(
                (f"{_HERE}.{module}", f"{_HERE}.measures"), (f"{_HERE}.course",)
            ),
        }


def checksum(stream: LabelledStream) -> int:
    """CRC-32 of every sample and label."""
    total = zlib.crc32(np.ascontiguousarray(stream.x).data)
    return zlib.crc32(np.ascontiguousarray(stream.y).data, total)


@cache
def made(name: str, units: str, samples: int, seed: int) -> LabelledStream:
    """A stream by name, in units; made once."""
    if units == "as-is":
        return SOURCES[name].make(samples, seed)
    return in_units(made(name, "as-is", samples, seed), units)


def _versions() -> dict[str, str]:
    """Of the libraries that others compute with."""
    found = versions()
    for library in _LIBRARIES:
        try:
            found[library] = metadata.version(library)
        except metadata.PackageNotFoundError:
            continue
    return found

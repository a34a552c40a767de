"""Courses as tables: stream by stream, and all streams together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks.classification.catalogue import FAMILIES, SOURCES
from benchmarks.classification.cell import Entrant
from benchmarks.classification.course import Course
from benchmarks.classification.registry import BASELINES
from clients.commands.bench import Table

FARTHEST = 10
"""Streams that are listed as those on which a preset is the farthest behind."""


@dataclass(frozen=True)
class Setup:
    """What the cells of one table have in common."""

    units: str
    batch: int

    def __str__(self) -> str:
        return f"{self.units}, batches of {self.batch}"


@dataclass(frozen=True)
class Standing:
    """Courses of everybody on the same streams.

    Attributes:
        setup: Units and batches.
        entrants: In the order of the columns.
        courses: Stream -> entrant's name -> a course for each seed. An entrant may be missing.
    """

    setup: Setup
    entrants: tuple[Entrant, ...]
    courses: Mapping[str, Mapping[str, Sequence[Course]]]

    def accuracy(self, stream: str, entrant: str) -> float | None:
        """Prequential, in percent, the mean over seeds; None where it is not measured."""
        found = self.courses[stream].get(entrant)
        return 100 * fmean(one.accuracy for one in found) if found else None

    def best_peer(self, stream: str) -> tuple[str, float] | None:
        """Of those that are neither ours nor a baseline: name and accuracy in percent."""
        peers = [
            (name, value)
            for name in self._peers
            if (value := self.accuracy(stream, name)) is not None
        ]
        return max(peers, key=lambda peer: peer[1], default=None)

    def behind(self, stream: str, entrant: str) -> float | None:
        """Accuracy minus that of the best peer, in points."""
        own, best = self.accuracy(stream, entrant), self.best_peer(stream)
        return None if own is None or best is None else own - best[1]

    def ranks(self, stream: str) -> dict[str, float]:
        """Entrant -> place by accuracy, from 1; equal ones share the mean of their places."""
        values = {
            one.name: value
            for one in self.entrants
            if (value := self.accuracy(stream, one.name)) is not None
        }
        return {
            name: 1
            + sum(other > own for other in values.values())
            + (sum(other == own for other in values.values()) - 1) / 2
            for name, own in values.items()
        }

    @property
    def complete(self) -> tuple[str, ...]:
        """Streams on which everybody was measured: means and ranks are of these."""
        names = {one.name for one in self.entrants}
        return tuple(name for name, own in self.courses.items() if names <= own.keys())

    @property
    def ours(self) -> tuple[str, ...]:
        """Names of the presets."""
        return tuple(one.name for one in self.entrants if one.ours)

    @property
    def _peers(self) -> tuple[str, ...]:
        others = (one.name for one in self.entrants if not one.ours)
        return tuple(name for name in others if name not in BASELINES)

    # Tables -------------------------------------------------------------------------------

    def streams(self) -> Table:
        """Accuracy of everybody, stream by stream."""
        names = [one.name for one in self.entrants]
        rows = []
        for stream in self.courses:
            best = self.best_peer(stream)
            rows.append(
                (
                    stream,
                    SOURCES[stream].half,
                    *(_number(self.accuracy(stream, name)) for name in names),
                    best[0] if best else "",
                    *(_signed(self.behind(stream, name)) for name in self.ours),
                )
            )
        gaps = [f"{name} - best" for name in self.ours]
        columns = ("stream", "half", *names, "best peer", *gaps)
        return Table(f"Prequential accuracy, %; {self.setup}", columns, tuple(rows))

    def families(self) -> Table:
        """Mean accuracy of everybody by family and half."""
        names = [one.name for one in self.entrants]
        groups = {
            **{family: _of(self.complete, family=family) for family in FAMILIES},
            "half a": _of(self.complete, half="a"),
            "half b": _of(self.complete, half="b"),
            "all": list(self.complete),
        }
        rows = []
        for group, streams in groups.items():
            if not streams:
                continue
            cells = []
            for name in names:
                values = [self.accuracy(stream, name) for stream in streams]
                cells.append(_number(fmean(value for value in values if value is not None)))
            rows.append((group, str(len(streams)), *cells))
        title = f"Mean prequential accuracy, %; {self.setup}"
        return Table(title, ("streams", "number", *names), tuple(rows))

    def summary(self) -> Table:
        """Everybody on all streams, the best mean rank first."""
        streams = self.complete
        ranks = [self.ranks(stream) for stream in streams]
        rows = []
        for entrant in self.entrants:
            own = [one for stream in streams for one in self.courses[stream][entrant.name]]
            if not own:
                continue
            kappas = [one.kappa for one in own if one.kappa is not None]
            found = [len(one.boundaries) for one in own if one.boundaries is not None]
            rank = fmean(one[entrant.name] for one in ranks)
            gaps = [self.behind(stream, entrant.name) for stream in streams]
            known = [gap for gap in gaps if gap is not None]
            cells = (
                entrant.name,
                f"{rank:.2f}",
                str(sum(one[entrant.name] == min(one.values()) for one in ranks)),
                _number(100 * fmean(one.accuracy for one in own)),
                _signed(fmean(known) if known else None),
                _signed(min(known, default=None)),
                _number(100 * fmean(kappas) if kappas else None),
                _number(100 * fmean(one.worst_tenth for one in own)),
                _number(fmean(found) if found else None),
                f"{np.median([one.microseconds for one in own]):,.0f}",
            )
            rows.append((rank, cells))
        columns = (
            "entrant",
            "mean rank",
            "first",
            "accuracy",
            "to best peer",
            "at worst",
            "kappa, %",
            "worst tenth",
            "boundaries",
            "us per sample",
        )
        title = f"Means over {len(streams)} streams; {self.setup}"
        ordered = sorted(rows, key=lambda row: row[0])
        return Table(title, columns, tuple(cells for _, cells in ordered))

    def farthest(self) -> Table:
        """Streams on which each preset is the farthest behind the best peer."""
        rows = []
        for name in self.ours:
            gaps = [(gap, s) for s in self.courses if (gap := self.behind(s, name)) is not None]
            for gap, stream in sorted(gaps)[:FARTHEST]:
                best = self.best_peer(stream)
                assert best is not None
                own = _number(self.accuracy(stream, name))
                rows.append((name, stream, own, _number(best[1]), best[0], _signed(gap)))
        columns = ("preset", "stream", "accuracy", "best peer's", "best peer", "difference")
        return Table(f"Farthest behind; {self.setup}", columns, tuple(rows))

    def to_dict(self) -> dict[str, Any]:
        """Every number, JSON-ready."""
        return {
            "units": self.setup.units,
            "batch": self.setup.batch,
            "courses": {
                stream: {name: [one.to_dict() for one in found] for name, found in own.items()}
                for stream, own in self.courses.items()
            },
        }


def _of(streams: Sequence[str], *, family: str = "", half: str = "") -> list[str]:
    return [
        name
        for name in streams
        if SOURCES[name].family == (family or SOURCES[name].family)
        and SOURCES[name].half == (half or SOURCES[name].half)
    ]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"


def _signed(value: float | None) -> str:
    return "" if value is None else f"{value:+.1f}"

"""Who names the next samples of ordinary streams of tables best?

The engine, alone and with default settings, beside incremental classifiers, on the streams of
`benchmarks/classification/catalogue.py`: every batch is named by what was learned before it, then
learned with its labels (*prequential*, Gama et al. 2013). Accuracy, kappa, the worst tenth of the
stream, boundaries and time. Every cell is one JSON file and is measured once: interrupt it
(Ctrl-C) and run it again, and it goes on. Settings are chosen on half a of the streams and
reported on half b. River's classifiers and streams need `pip install -e '.[river]'`.

Besides `gmr bench streams` it is a script with options, which `gmr bench streams` takes as well:

    python -m benchmarks.streams --half a --opponents knn-scaled --presets mfa flat
    python -m benchmarks.streams --streams board moving sea-abrupt --batch 1 10 100
    python -m benchmarks.streams --units as-is unit micro mega junk --samples 3000
    python -m benchmarks.streams --detector default never --set n_factors=5
    python -m benchmarks.streams --few          # held-out accuracy after 100, 300, 1,000 samples
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks._script import names, run, settings_of
from benchmarks.classification import registry
from benchmarks.classification.beginning import HELD, Beginning, beginning, parted, table_of
from benchmarks.classification.catalogue import FAMILIES, HALVES, SAMPLES, SOURCES
from benchmarks.classification.cell import Cell, Entrant, made
from benchmarks.classification.course import Course, course
from benchmarks.classification.registry import OPPONENTS
from benchmarks.classification.rivers import MODELS
from benchmarks.classification.stream import LabelledStream
from benchmarks.classification.table import Setup, Standing
from benchmarks.classification.units import AS_IS, UNITS
from benchmarks.comparison.provenance import versions
from benchmarks.comparison.store import Store, write_whole
from benchmarks.comparison.tables import pipes
from clients.commands.bench import Floor, Measurement, Say, Table
from clients.evaluation import environment
from clients.http.errors import InputError
from core.config import PRESETS

FOLDER = Path("report/bench/streams")
DETECTORS = ("default", "never")
COMPARED = tuple(name for name in OPPONENTS if name != "river-knn")
"""Everybody but the slow twin of `knn`."""

QUICK_STREAMS = ("wine-random", "digits-sorted", "circle", "board-fields", "blobs-growing")
QUICK_OPPONENTS = ("last-label", "majority", "knn", "sam-knn", "sgd")
QUICK_SAMPLES = 500


@dataclass(frozen=True)
class Plan:
    """What is to be measured.

    Attributes:
        streams: Of `SOURCES`.
        entrants: Ours and others, in the order of the columns.
        units: Of `UNITS`.
        batches: Samples per batch.
        samples: Of a stream, at most.
        seeds: Of streams and entrants.
        few: Whether held-out accuracy after few samples is measured instead.
        folder: Of all files.
        any_source: Whether results of other versions of the code are believed.
    """

    streams: tuple[str, ...] = tuple(SOURCES)
    entrants: tuple[Entrant, ...] = ()
    units: tuple[str, ...] = (AS_IS,)
    batches: tuple[int, ...] = (100,)
    samples: int = SAMPLES
    seeds: tuple[int, ...] = (0,)
    few: bool = False
    folder: Path = FOLDER
    any_source: bool = False


def entrants(
    presets: Sequence[str],
    detectors: Sequence[str],
    opponents: Sequence[str],
    settings: dict[str, Any] | None = None,
) -> tuple[Entrant, ...]:
    """Presets, each with its detector and without, then all others.

    Example:
        >>> [one.name for one in entrants(["mfa"], ["default", "never"], ["knn"])]
        ['mfa', 'mfa-never', 'knn']
    """
    ours = []
    for preset in presets:
        for detector in detectors:
            own = dict(settings or {})
            if detector == "never":
                own["detector"] = "none"
            ours.append(Entrant(preset, own, "never" if detector == "never" else ""))
    return (*ours, *(Entrant(name) for name in opponents))


def whole(folder: Path = FOLDER) -> Plan:
    """Every stream and everybody, samples as they are, in batches of 100."""
    return Plan(entrants=entrants(tuple(PRESETS)[:2], DETECTORS[:1], COMPARED), folder=folder)


def quick_plan(folder: Path) -> Plan:
    """Small streams that need no River, and who is fast."""
    own = entrants(tuple(PRESETS)[:2], DETECTORS[:1], QUICK_OPPONENTS)
    return Plan(QUICK_STREAMS, own, samples=QUICK_SAMPLES, folder=folder)


def measure(
    quick: bool, say: Say, folder: Path = FOLDER, arguments: Sequence[str] = ()
) -> Measurement:
    """Everything, or what the options ask for; quick: five small streams."""
    if arguments:
        own = (*arguments, *(("--quick",) if quick else ()))
        return Work(
            plan_of((*own, "--folder", str(_quick(folder) if quick else folder))), say
        ).done()
    return Work(quick_plan(_quick(folder)) if quick else whole(folder), say).done()


def _quick(folder: Path) -> Path:
    """A folder of its own, so that small results never take the place of real ones."""
    return folder.with_name(f"{folder.name}-quick")


@dataclass
class Work:
    """A plan, being carried out.

    Attributes:
        plan: What is to be measured.
        say: Takes lines about how it goes.
    """

    plan: Plan
    say: Say
    failures: dict[str, str] = field(default_factory=dict)
    measured: int = 0

    def done(self) -> Measurement:
        """Measure what is missing, and make tables of what there is."""
        plan = self._possible(self.plan)
        store = Store(plan.folder / "cells", any_source=plan.any_source)
        carry_out = self._beginnings if plan.few else self._courses
        tables, values = carry_out(plan, store)
        lines = [self._note(plan)]
        for table in tables:
            lines += [f"## {table.title}", pipes(table.columns, table.rows)]
        name = "few" if plan.few else "streams"
        write_whole(plan.folder / f"{name}.md", "\n\n".join([*lines, ""]).encode())
        all_values = {"folder": str(plan.folder), **values, "failures": self.failures}
        Store(plan.folder).write(Path(f"{name}.json"), all_values)
        total = self.measured
        floor = Floor("results", total - len(self.failures), total, "results")
        return Measurement(tuple(tables), all_values, (floor,))

    def _possible(self, plan: Plan) -> Plan:
        """Without what needs River or a file, where these are not at hand."""
        streams, own = plan.streams, plan.entrants
        if not registry.has_river():
            streams = tuple(name for name in streams if not SOURCES[name].needs_river)
            own = tuple(one for one in own if one.opponent not in MODELS)
            gone = [name for name in plan.streams if name not in streams]
            gone += [one.name for one in plan.entrants if one not in own]
            if gone:
                self.say(
                    f"River is not installed (pip install -e '.[river]'): left out are "
                    f"{', '.join(gone)}"
                )
        if plan.few:
            streams = tuple(name for name in streams if SOURCES[name].stationary)
        found = []
        for name in streams:
            try:
                made(name, AS_IS, plan.samples, plan.seeds[0])
            except InputError as error:
                self.say(f"{name} is left out: {error}")
            else:
                found.append(name)
        return replace(plan, streams=tuple(found), entrants=own)

    def _courses(self, plan: Plan, store: Store) -> tuple[list[Table], dict[str, Any]]:
        """Prequential, in every unit and batch size."""
        tables, values = [], []
        for units in plan.units:
            for batch in plan.batches:
                found: dict[str, dict[str, list[Course]]] = {name: {} for name in plan.streams}
                for entrant in plan.entrants:
                    for name in plan.streams:
                        cells = [
                            Cell(entrant, name, units, batch, plan.samples, seed)
                            for seed in plan.seeds
                        ]
                        own = [self._course(cell, store) for cell in cells]
                        if all(own):
                            found[name][entrant.name] = [one for one in own if one is not None]
                standing = Standing(Setup(units, batch), plan.entrants, found)
                tables += [standing.summary(), standing.families()]
                tables += [standing.farthest(), standing.streams()]
                values.append(standing.to_dict())
        return tables, {"standings": values}

    def _course(self, cell: Cell, store: Store) -> Course | None:
        """Of one cell, from the folder or measured; None where it fails."""
        stream = made(cell.stream, cell.units, cell.samples, cell.seed)
        kept = self._kept(cell, stream, store)
        if kept is not None:
            return Course.from_dict(kept["course"])
        try:
            opponent = registry.make(
                cell.entrant.opponent, stream, cell.seed, cell.entrant.settings
            )
            found = course(opponent, stream, cell.batch)
        except Exception as error:  # of whomever: the others go on
            self._failed(cell, error)
            return None
        self._keep(cell, stream, store, {"course": found.to_dict()})
        self.say(
            f"{cell.stream}, {cell.units}, B={cell.batch}, {cell.entrant.name}: "
            f"{100 * found.accuracy:.1f} %, {found.microseconds:,.0f} us per sample"
        )
        return found

    def _beginnings(self, plan: Plan, store: Store) -> tuple[list[Table], dict[str, Any]]:
        """Held-out accuracy after few samples, of streams that stay as they are."""
        tables, values = [], []
        for units in plan.units:
            for batch in plan.batches:
                found: dict[str, dict[str, list[Beginning]]] = {name: {} for name in plan.streams}
                for entrant in plan.entrants:
                    for name in plan.streams:
                        own = [
                            self._beginning(
                                Cell(entrant, name, units, batch, plan.samples, seed, HELD), store
                            )
                            for seed in plan.seeds
                        ]
                        if all(own):
                            found[name][entrant.name] = [one for one in own if one is not None]
                title = f"Accuracy on held-out samples, %; {Setup(units, batch)}"
                tables.append(table_of(found, [one.name for one in plan.entrants], title))
                plain = {
                    stream: {name: [one.to_dict() for one in all_] for name, all_ in own.items()}
                    for stream, own in found.items()
                }
                values.append({"units": units, "batch": batch, "found": plain})
        return tables, {"beginnings": values}

    def _beginning(self, cell: Cell, store: Store) -> Beginning | None:
        stream = made(cell.stream, cell.units, cell.samples, cell.seed)
        kept = self._kept(cell, stream, store)
        if kept is not None:
            return Beginning.from_dict(kept["beginning"])
        train, held = parted(stream)
        try:
            opponent = registry.make(
                cell.entrant.opponent, stream, cell.seed, cell.entrant.settings
            )
            found = beginning(opponent, train, cell.batch, held)
        except Exception as error:
            self._failed(cell, error)
            return None
        self._keep(cell, stream, store, {"beginning": found.to_dict()})
        return found

    def _kept(self, cell: Cell, stream: LabelledStream, store: Store) -> dict[str, Any] | None:
        self.measured += 1
        return store.read(cell.path, cell.configuration(stream))

    def _keep(
        self, cell: Cell, stream: LabelledStream, store: Store, values: dict[str, Any]
    ) -> None:
        about = {
            "configuration": cell.configuration(stream),
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "hardware": environment.hardware(),
        }
        store.write(cell.path, {**about, **values})

    def _failed(self, cell: Cell, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"
        self.failures[cell.path.as_posix()] = text
        self.say(f"{cell.stream}, {cell.entrant.name}: failed, {text}")

    def _note(self, plan: Plan) -> str:
        return (
            f"Streams of {plan.samples:,} samples at most, seeds "
            f"{', '.join(map(str, plan.seeds))}. torch {versions()['torch']}, "
            f"{environment.hardware()['processor']}."
        )


def plan_of(arguments: Sequence[str]) -> Plan:
    """What the options of the script ask for.

    Raises:
        InputError: there is no such stream, entrant or setting.
        SystemExit: the options cannot be read, or help was asked for.

    Example:
        >>> plan = plan_of(["--streams", "board", "--half", "a", "--batch", "10"])
        >>> plan.streams, plan.batches
        (('board-transient',), (10,))
    """
    chosen = _parser().parse_args(arguments)
    if chosen.quick:
        plan = quick_plan(chosen.folder or _quick(FOLDER))
    else:
        plan = whole(chosen.folder or FOLDER)
    streams = _streams(names(chosen.streams)) or plan.streams
    if chosen.half != "both":
        streams = tuple(name for name in streams if SOURCES[name].half == chosen.half)
    presets = _known("preset", names(chosen.presets), tuple(PRESETS)) or tuple(PRESETS)[:2]
    detectors = _known("detector", names(chosen.detector), DETECTORS) or DETECTORS[:1]
    asked = _known("opponent", names(chosen.opponents), ("none", *OPPONENTS))
    opponents = tuple(name for name in asked if name != "none")
    if not asked:
        opponents = QUICK_OPPONENTS if chosen.quick else COMPARED
    return replace(
        plan,
        streams=streams,
        entrants=entrants(presets, detectors, opponents, settings_of(chosen.set or ())),
        units=_known("unit", names(chosen.units), tuple(UNITS)) or plan.units,
        batches=_numbers("batch size", names(chosen.batch), 1) or plan.batches,
        samples=(_numbers("number of samples", names(chosen.samples), 1) or (plan.samples,))[0],
        seeds=_numbers("seed", names(chosen.seeds), 0) or plan.seeds,
        few=chosen.few,
        any_source=chosen.any_source,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.streams",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--streams", nargs="+", help=f"names, or of {', '.join(FAMILIES)}")
    parser.add_argument("--half", choices=(*HALVES, "both"), default="both")
    parser.add_argument("--presets", nargs="+", help=f"of {', '.join(PRESETS)}")
    parser.add_argument("--detector", nargs="+", help=f"of {', '.join(DETECTORS)}")
    parser.add_argument("--opponents", nargs="+", help=f"none, or of {', '.join(OPPONENTS)}")
    parser.add_argument("--units", nargs="+", help=f"of {', '.join(UNITS)}")
    parser.add_argument("--batch", nargs="+", help="samples named before they are learned")
    parser.add_argument("--samples", nargs=1, help=f"of a stream, at most; default: {SAMPLES}")
    parser.add_argument("--seeds", nargs="+", help="of streams and entrants; default: 0")
    parser.add_argument("--set", nargs="+", metavar="NAME=VALUE", help="fields of EngineConfig")
    parser.add_argument("--few", action="store_true", help="held-out accuracy after few samples")
    parser.add_argument("--quick", action="store_true", help="small; seconds")
    parser.add_argument("--folder", type=Path, help=f"default: {FOLDER}, or {FOLDER}-quick")
    parser.add_argument(
        "--any-source", action="store_true", help="keep results of other versions of the code"
    )
    return parser


def _streams(asked: tuple[str, ...]) -> tuple[str, ...]:
    """Streams by name, family or source, in the catalogue's order."""
    known = {*SOURCES, *FAMILIES, *(source.origin for source in SOURCES.values())}
    for name in asked:
        if name not in known:
            raise InputError(
                f"There is no stream {name!r}. Known: {', '.join(SOURCES)}; families: "
                f"{', '.join(FAMILIES)}. Choose one of these."
            )
    return tuple(
        name
        for name, source in SOURCES.items()
        if {name, source.family, source.origin} & set(asked)
    )


def _known(what: str, asked: tuple[str, ...], known: Sequence[str]) -> tuple[str, ...]:
    for name in asked:
        if name not in known:
            raise InputError(
                f"There is no {what} {name!r}. Known: {', '.join(known)}. Choose one of these."
            )
    return asked


def _numbers(what: str, texts: tuple[str, ...], least: int) -> tuple[int, ...]:
    for text in texts:
        if not text.isdecimal() or int(text) < least:
            raise InputError(f"{text!r} is no {what}. Give a number from {least}.")
    return tuple(int(text) for text in texts)


def main() -> int:
    """Carry out what the options ask for; the exit status."""
    return run(plan_of, lambda plan, say: Work(plan, say).done())


if __name__ == "__main__":
    sys.exit(main())

"""How soon does each detector find a change, how often does it cry wolf, and what does that cost?

Every detector decides, the model learning all the while, on every family of streams of
`benchmarks/detection/families.py`; what is found is compared with what is true
(`measures.py`). Each stream is one JSON file and is measured once: interrupt it (Ctrl-C)
and run it again, and it goes on.

Besides `gmr bench drift` it is a script with options:

    python -m benchmarks.drift --families slt pairs --data mnist --batches 100 10
    python -m benchmarks.drift --families null --data clouds --batches 1 10 100 512 mixed
    python -m benchmarks.drift --detectors sequential --set ert=20000 preset=flat
    python -m benchmarks.drift --detectors sequential --shadows paper,adwin   # on one stream
    python -m benchmarks.drift --detectors sequential told --families slt     # boundary regret
    python -m benchmarks.drift --quick
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track

from benchmarks._script import fields_of, names, run, settings_of
from benchmarks.comparison.provenance import versions
from benchmarks.comparison.store import Store, write_whole
from benchmarks.detection import families as known_families
from benchmarks.detection.case import TOLD, Answer, Group, Question, answers
from benchmarks.detection.cost import microseconds
from benchmarks.detection.families import FAMILIES, FULL, SMALL, TABLES, Size
from benchmarks.detection.figure import delays
from benchmarks.detection.measures import regret
from benchmarks.detection.outsider import MMD
from benchmarks.detection.stream import MIXED
from benchmarks.detection.table import Row, markdown, terminal_tables
from clients.commands.bench import Floor, Measurement, Say, Table
from clients.data.datasets import known_datasets
from clients.evaluation import environment, figures
from clients.http.errors import InputError
from core.config import DETECTORS, EngineConfig
from core.errors import InvalidSettings

FOLDER = Path("report/bench/drift")
DATA = ("mnist", "fashion_mnist", "devanagari")
COST_BATCHES = (1, 10, 100, 512)
COMPARED = tuple(name for name in DETECTORS if name != "none")
"""Every rule that decides by itself."""


@dataclass(frozen=True)
class Plan:
    """What is to be measured.

    Attributes:
        groups: Of streams.
        detectors: Deciding, one after the other; `TOLD` is the oracle, on `slt` only, and
            `MMD` works on raw features, without an engine.
        shadows: That run beside each of them.
        settings: Other fields of `EngineConfig`.
        size: Of the streams.
        labelled: Whether labels are sent.
        trace: Whether every batch's statistics are kept.
        folder: Of all files.
        any_source: Whether results of other versions of the code are believed.
        cost: Samples for which every detector is timed by itself; 0: not at all.
    """

    groups: tuple[Group, ...]
    detectors: tuple[str, ...] = (*COMPARED, MMD, TOLD)
    shadows: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    size: Size = FULL
    labelled: bool = True
    trace: bool = False
    folder: Path = FOLDER
    any_source: bool = False
    cost: int = 0

    def questions(self) -> list[Question]:
        """In the order in which they are asked."""
        return [
            Question(
                group,
                detector,
                tuple(name for name in self.shadows if name != detector),
                self.settings,
                self.size,
                self.labelled,
                self.trace,
            )
            for group in self.groups
            for detector in self.detectors
            if detector != TOLD or group.family == "slt"
        ]


def whole(folder: Path = FOLDER) -> Plan:
    """The whole comparison."""
    groups = [Group("slt", data, 100) for data in DATA]
    groups += [Group("pairs", data, b) for b in (100, 10) for data in DATA[:2]]
    lasting = ("gradual", "traffic", "contamination", "recurring")
    for family in (*lasting, "short", "autocorrelated"):
        groups += [Group(family, data, 100) for data in DATA]
    groups += [Group("null", "clouds", batch) for batch in (1, 10, 100, 512, MIXED)]
    groups += [Group("null", data, 100) for data in DATA]
    groups += [Group("table", data, 100) for data in TABLES]
    return Plan(tuple(groups), folder=folder, cost=20_000)


def quick_plan(folder: Path, names: tuple[str, ...] = tuple(FAMILIES)) -> Plan:
    """One small data set, few streams, the default, the paper's rule and the oracle."""
    data = {"null": "clouds", "table": "clouds"}
    groups = tuple(Group(name, data.get(name, "digits"), 100) for name in names)
    return Plan(groups, (*COMPARED[:2], TOLD), size=SMALL, folder=folder, cost=1000)


def measure(quick: bool, say: Say, folder: Path = FOLDER) -> Measurement:
    """Everything; quick: one stream or a few of each family, on digits."""
    return Work(quick_plan(_quick(folder)) if quick else whole(folder), say).carry_out()


def _quick(folder: Path) -> Path:
    """A folder of its own, so that small results never take the place of real ones."""
    return folder.with_name(f"{folder.name}-quick")


class Work:
    """A plan, being carried out.

    Arguments:
        plan: What is to be measured.
        say: Takes lines about how it goes.
    """

    def __init__(self, plan: Plan, say: Say) -> None:
        self.plan, self._say = plan, say
        self._store = Store(plan.folder / "cases", any_source=plan.any_source)
        self._load = cache(known_families.data_named)
        self._rows: list[Row] = []
        self._accuracies: dict[tuple[Group, str], dict[str, float]] = {}
        self._failures: dict[str, str] = {}
        self._costs: dict[str, dict[str, float]] = {}

    def carry_out(self) -> Measurement:
        """Measure what is missing, and make tables of what there is."""
        torch.set_num_threads(1)
        known = {*known_datasets(), "clouds"}
        missing = sorted({group.data for group in self.plan.groups} - known)
        for data in missing:
            self._say(f"{data} is not at hand: left out")
        questions = [one for one in self.plan.questions() if one.group.data not in missing]
        try:
            for question in questions:
                self._ask(question)
        finally:
            # After an interruption, too: what there is can be read.
            self._write()
        tables: tuple[Table, ...] = terminal_tables(self._rows)
        regrets = self._regrets()
        if regrets:
            lines = [(f"{data}, {name}", f"{points:+.2f}") for data, name, points in regrets]
            title = "Boundary regret on D2-2-2-2-2a, points"
            tables = (*tables, Table(title, ("data, detector", "regret"), tuple(lines)))
        if self.plan.cost:
            tables = (*tables, self._cost())
        done = len(questions) - len(self._failures)
        floor = Floor("results", done, len(questions), "results")
        return Measurement(tables, self._values(), (floor,))

    def _ask(self, question: Question) -> None:
        group = question.group
        name = f"{group.family} {group.data} B={group.batch_name} {question.detector}"
        found: list[Answer] = []
        try:
            waiting = answers(question, self._store, self._load)
            console = Console(stderr=True)
            shown = track(waiting, name, console=console, disable=not console.is_terminal)
            found.extend(shown)
        except Exception as error:  # of whatever detector: the others go on
            self._failures[name] = f"{type(error).__name__}: {error}"
            self._say(f"{name}: failed, {self._failures[name]}")
            return
        asked = question.asked
        rows = [Row.of(group, question.detector, found, asked)]
        rows += [Row.of(group, one, found, asked, shadow=True) for one in question.shadows]
        self._rows += rows
        self._accuracies[group, question.detector] = {
            answer.stream.name: answer.said.accuracy
            for answer in found
            if answer.said.accuracy is not None
        }
        if not all(answer.kept for answer in found):
            score = rows[0].score
            self._say(
                f"{name}: {score.found} of {score.changes} found, {score.false} false, "
                f"{score.seconds:,.0f} s"
            )

    def _regrets(self) -> list[tuple[str, str, float]]:
        """Data set, detector and regret in points, on the hardest task."""
        found = []
        for (group, detector), own in self._accuracies.items():
            told = self._accuracies.get((group, TOLD), {})
            both = [name for name in own if name in told and name.startswith("D2-2-2-2-2a")]
            if both and detector != TOLD:
                points = regret([own[name] for name in both], [told[name] for name in both])
                found.append((group.data, detector, points))
        return found

    def _cost(self) -> Table:
        """Of every detector of ours by itself; measured each time, for it is soon done."""
        plan, lines = self.plan, []
        for name in plan.detectors:
            if name not in COMPARED:
                continue
            taken = []
            for batch in COST_BATCHES:
                # KSWIN takes half a millisecond per sample: a tenth of the samples is enough.
                n = max(batch, plan.cost // (10 if name == "kswin" else 1))
                try:
                    config = EngineConfig(**{**plan.settings, "detector": name})
                except InvalidSettings as error:
                    self._failures[f"cost of {name}"] = str(error)
                    break
                taken.append(microseconds(config, batch, n))
            self._costs[name] = dict(zip(map(str, COST_BATCHES), taken, strict=False))
            lines.append((name, *(f"{one:.2f}" for one in taken)))
        title = "The detector alone, microseconds per sample"
        return Table(title, ("batches of", *map(str, COST_BATCHES)), tuple(lines))

    def _values(self) -> dict[str, Any]:
        return {
            "folder": str(self.plan.folder),
            "rows": [row.to_dict() for row in self._rows],
            "regret_points": [
                {"data": data, "detector": name, "points": points}
                for data, name, points in self._regrets()
            ],
            "microseconds_per_sample": self._costs,
            "failures": self._failures,
        }

    def _write(self) -> None:
        lines = [f"* {data}, {name}: {points:+.2f}" for data, name, points in self._regrets()]
        page = markdown(self._rows, self._note())
        if lines:
            page += "\n".join(["", "## Boundary regret on D2-2-2-2-2a, points", "", *lines, ""])
        write_whole(self.plan.folder / "drift.md", page.encode())
        Store(self.plan.folder).write(Path("drift.json"), self._values())
        if (figure := delays(self._rows)) is not None:
            figures.save(figure, self.plan.folder / "drift.png")

    def _note(self) -> str:
        small = "Quick size: shows that it runs, its numbers mean nothing. "
        return (
            f"{small if self.plan.size == SMALL else ''}Delays in batches, then in samples; false "
            f"alarms per 1,000 batches; run time in samples between false alarms. "
            f"torch {versions()['torch']}, {environment.hardware()['processor']}."
        )


def plan_of(arguments: Sequence[str]) -> Plan:
    """What the options of the script ask for.

    Raises:
        InputError: there is no such family, detector or setting.
        SystemExit: the options cannot be read, or help was asked for.

    Example:
        >>> plan = plan_of(["--families", "pairs", "--data", "mnist", "--batches", "10"])
        >>> plan.groups
        (Group(family='pairs', data='mnist', batch=10),)
    """
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.drift",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--families", nargs="+", help=f"of {', '.join(FAMILIES)}")
    parser.add_argument("--data", nargs="+", help="data sets, or clouds, which are made up")
    parser.add_argument("--batches", nargs="+", help="sizes, or mixed: 1 to 10,000")
    parser.add_argument("--detectors", nargs="+", help=f"of {', '.join((*COMPARED, MMD, TOLD))}")
    parser.add_argument("--shadows", nargs="+", help="detectors that run beside each of them")
    parser.add_argument("--set", nargs="+", metavar="NAME=VALUE", help="fields of EngineConfig")
    parser.add_argument("--size", nargs="+", metavar="NAME=VALUE", help="fields of Size")
    parser.add_argument("--unlabelled", action="store_true", help="send no labels")
    parser.add_argument("--trace", action="store_true", help="keep every batch's statistics")
    parser.add_argument("--cost", type=int, help="samples to time each detector by itself; 0: none")
    parser.add_argument("--quick", action="store_true", help="small, on digits; a minute")
    parser.add_argument("--folder", type=Path, help=f"default: {FOLDER}, or {FOLDER}-quick")
    parser.add_argument(
        "--any-source", action="store_true", help="keep results of other versions of the code"
    )
    chosen = parser.parse_args(arguments)
    if chosen.quick:
        plan = quick_plan(chosen.folder or _quick(FOLDER))
    else:
        plan = whole(chosen.folder or FOLDER)
    detectors, shadows = names(chosen.detectors), names(chosen.shadows)
    for name in (*detectors, *shadows):
        if name not in (*DETECTORS, MMD, TOLD):
            raise InputError(
                f"There is no detector {name!r}. Known: {', '.join((*COMPARED, MMD, TOLD))}. "
                f"Choose one of these."
            )
    return replace(
        plan,
        groups=_groups(plan, chosen.families, chosen.data, chosen.batches),
        detectors=detectors or plan.detectors,
        shadows=shadows,
        settings=settings_of(chosen.set or ()),
        size=replace(plan.size, **fields_of(chosen.size or (), Size)),
        labelled=not chosen.unlabelled,
        trace=chosen.trace,
        any_source=chosen.any_source,
        cost=plan.cost if chosen.cost is None else chosen.cost,
    )


def _groups(
    plan: Plan,
    families: Sequence[str] | None,
    data: Sequence[str] | None,
    batches: Sequence[str] | None,
) -> tuple[Group, ...]:
    """Groups of the plan that were asked for; every combination where they are named."""
    wanted, sets = names(families), names(data)
    for name in wanted:
        if name not in FAMILIES:
            raise InputError(
                f"There is no family {name!r}. Known: {', '.join(FAMILIES)}. Choose one of these."
            )
    sizes = tuple(_size(text) for text in names(batches))
    kept = tuple(group for group in plan.groups if not wanted or group.family in wanted)
    if sets:
        pairs = dict.fromkeys((group.family, group.batch) for group in kept)
        kept = tuple(Group(family, one, batch) for family, batch in pairs for one in sets)
    if sizes:
        places = dict.fromkeys((group.family, group.data) for group in kept)
        kept = tuple(Group(family, one, size) for family, one in places for size in sizes)
    return kept


def _size(text: str) -> int:
    """Samples per batch."""
    if text == "mixed":
        return MIXED
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"{text!r} is no batch size. Give a number from 1, or mixed.")
    return int(text)


def main() -> int:
    """Carry out what the options ask for; the exit status."""
    return run(plan_of, lambda plan, say: Work(plan, say).carry_out())


if __name__ == "__main__":
    sys.exit(main())

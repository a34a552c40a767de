"""An evaluation as its report.json keeps it: what others need to be compared with it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import orjson

from clients.evaluation.results import SCHEMA
from clients.evaluation.scores import Spread
from clients.http.errors import InputError


@dataclass(frozen=True)
class RecordedRun:
    """One seed of it."""

    seed: int
    scores: Mapping[str, float]  # NaN where one does not apply
    seen: tuple[float, ...]  # accuracy on classes seen so far, after each sub-task


@dataclass(frozen=True)
class Recorded:
    """An evaluation that was written down."""

    name: str  # what tables and figures call it
    created: str  # ISO 8601, UTC
    sub_tasks: tuple[tuple[int | str, ...], ...]
    facts: Mapping[str, str]  # how it was made: data, protocol, settings, versions, machine
    runs: tuple[RecordedRun, ...]

    @classmethod
    def of(cls, content: Mapping[str, Any], name: str) -> Self:
        """The evaluation that `Evaluation.to_dict` made `content` of.

        Raises:
            KeyError, TypeError: Something is not there, or not of its type.
        """
        protocol, data = content["protocol"], content["data"]
        facts = {
            "data": f"{data['name']} ({data['source']})",
            "training samples": f"{data['train_samples']:,}",
            "test samples": f"{data['test_samples']:,}",
            "sub-tasks": str(protocol["slt"]),
            "batch size": str(protocol["batch_size"]),
            "epochs": str(protocol["epochs"]),
            "labelled": f"{100 * protocol['labelled']:g} %",
            "limit": "none" if protocol["limit"] is None else f"{protocol['limit']:,}",
            "tolerance": f"{protocol['tolerance_samples']:,} samples",
            "seeds": ", ".join(map(str, protocol["seeds"])),
            **{f"service: {key}": str(value) for key, value in protocol["service"].items()},
            **{f"version of {key}": str(value) for key, value in content["versions"].items()},
            **{f"machine: {key}": str(value) for key, value in content["hardware"].items()},
        }
        return cls(
            name=name,
            created=str(content["created"]),
            sub_tasks=tuple(tuple(classes) for classes in protocol["sub_tasks"]),
            facts=facts,
            runs=tuple(
                RecordedRun(
                    seed=int(run["seed"]),
                    scores={
                        key: math.nan if value is None else float(value)
                        for key, value in run["scores"].items()
                    },
                    seen=tuple(
                        math.nan if one["accuracy_seen"] is None else float(one["accuracy_seen"])
                        for one in run["milestones"]
                    ),
                )
                for run in content["runs"]
            ),
        )

    @property
    def seen(self) -> list[tuple[float, ...]]:
        """Accuracies on the classes seen so far, a row of T numbers per seed."""
        return [run.seen for run in self.runs]

    def spread(self, score: str) -> Spread:
        """A score over the seeds; NaN where it was not written down."""
        return Spread.of([run.scores.get(score, math.nan) for run in self.runs])

    def values(self, score: str) -> list[float]:
        """A score of every seed that has it."""
        found = (run.scores.get(score, math.nan) for run in self.runs)
        return [value for value in found if not math.isnan(value)]


def read_recorded(path: Path, name: str) -> Recorded:
    """Read the report.json of an evaluation.

    Arguments:
        path: The file, or the folder of a report.
        name: What tables and figures shall call it.

    Raises:
        InputError: It cannot be read, or is no such file.
    """
    file = path / "report.json" if path.is_dir() else path
    try:
        content = orjson.loads(file.read_bytes())
    except OSError as error:
        raise InputError(
            f"{file} cannot be read: {error.strerror}. Expected the report.json that `gmr "
            f"evaluate` wrote, or its folder."
        ) from None
    except orjson.JSONDecodeError as error:
        raise InputError(
            f"{file} is no JSON: {error}. Expected the report.json that `gmr evaluate` wrote."
        ) from None
    schema = content.get("schema") if isinstance(content, dict) else None
    if schema != SCHEMA:
        raise InputError(
            f"{file} has the schema {schema!r}; expected {SCHEMA!r}. Pass the report.json that "
            f"`gmr evaluate` wrote, or evaluate again with this release."
        )
    try:
        return Recorded.of(content, name)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{file} is not whole: {type(error).__name__} at {error}. Expected the report.json "
            f"that `gmr evaluate` wrote, unchanged."
        ) from None


def read_all(paths: list[Path]) -> tuple[Recorded, ...]:
    """Read several, each called by its folder, or by as much of its path as tells it apart.

    Raises:
        InputError: One cannot be read.
    """
    folders = [path if path.is_dir() else path.parent for path in paths]
    parts = [folder.resolve().parts for folder in folders]
    deepest = max(map(len, parts), default=1)
    for depth in range(1, deepest + 1):
        names = ["/".join(one[-depth:]).lstrip("/") or "/" for one in parts]
        if len(set(names)) == len(names):
            break
    else:  # one folder, several files or twice the same
        names = [f"{path.stem} ({number})" for number, path in enumerate(paths, 1)]
    return tuple(read_recorded(path, name) for path, name in zip(paths, names, strict=True))

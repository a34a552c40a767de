"""The table of samples and components, for all data sets and presets.

Rules: those of `tables`: percent, deviation over seeds, and what is missing is shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.comparison.quality import Quality
from benchmarks.comparison.tables import pipes, spread_text
from clients.commands.bench import Table
from clients.evaluation.scores import Spread

COLUMNS = (
    "data, preset",
    "read as asked, %",
    "without noise",
    "worst class",
    "taught by them, %",
    "without noise",
    "nearest image",
    "stored",
    "seeds",
)

SHORT = (0, 1, 4, 6, 7)
"""Places of the columns that a terminal has room for."""

LEGEND = """\
* `read as asked`: samples of a requested class that a judge, a convolutional network trained on
  the real training set, reads as that class; `worst class`: the lowest share of a class.
* `taught by them`: accuracy on the real test set of such a network, trained on drawn samples alone.
* `without noise`: the same of samples without the noise of single pixels.
* `nearest image`: smallest Euclidean distance between the mean of a component and a training
  image; `stored`: components nearer than one grey level per pixel, over all seeds."""

Key = tuple[str, str]
"""Data set and preset."""


def row(key: Key, by_seed: Mapping[int, Quality], n_seeds: int) -> tuple[str, ...]:
    """The cells of a row under `COLUMNS`."""
    found = list(by_seed.values())
    near = [one.nearness for one in found if one.nearness is not None]
    return (
        ", ".join(key),
        _percent([one.with_noise.purity for one in found]),
        _percent([one.without_noise.purity for one in found]),
        _percent([one.with_noise.purity_of_worst_class for one in found]),
        _percent([one.with_noise.realism for one in found]),
        _percent([one.without_noise.realism for one in found]),
        f"{min(one.smallest for one in near):.2f}" if near else "",
        f"{sum(one.stored for one in near)} of {sum(one.components for one in near)}"
        if near
        else "",
        f"{len(found)} of {n_seeds}",
    )


def terminal_table(
    qualities: Mapping[Key, Mapping[int, Quality]], title: str, n_seeds: int
) -> Table:
    """For `gmr bench`: the columns that a terminal has room for."""
    lines = [COLUMNS, *(row(key, by_seed, n_seeds) for key, by_seed in qualities.items())]
    head, *rows = (tuple(line[place] for place in SHORT) for line in lines)
    return Table(title, head, tuple(rows))


def markdown(
    qualities: Mapping[Key, Mapping[int, Quality]], title: str, note: str, n_seeds: int
) -> str:
    """As a page."""
    lines = [row(key, by_seed, n_seeds) for key, by_seed in qualities.items()]
    parts = [f"# {title}", note, pipes(COLUMNS, lines), LEGEND, _judges(qualities)]
    return "\n\n".join(parts) + "\n"


def json_values(qualities: Mapping[Key, Mapping[int, Quality]]) -> list[dict[str, Any]]:
    """Every number of every seed, JSON-ready."""
    return [
        {"data": data, "preset": preset, "seed": seed, **quality.to_dict()}
        for (data, preset), by_seed in qualities.items()
        for seed, quality in by_seed.items()
    ]


def _judges(qualities: Mapping[Key, Mapping[int, Quality]]) -> str:
    """What the judges know themselves."""
    known = {
        data: f"{100 * one.judge_accuracy:.1f} % on {data}"
        for (data, _), by_seed in qualities.items()
        for one in by_seed.values()
    }
    return f"The judge's own accuracy on the real test set: {', '.join(known.values())}."


def _percent(shares: Sequence[float]) -> str:
    return spread_text(Spread.of([100 * share for share in shares]))

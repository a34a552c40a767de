"""Prequential accuracy of each class, as batches tell it one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import orjson

from core.running import Running

MOST_CLASSES: Final = 256
"""That are followed: the first ones that come with labels."""

Means = dict[str, list[float]]
"""By the label as JSON: samples behind it, and the running mean of its accuracy."""


def add(means: Means, rows: Iterable[Mapping[str, Any]]) -> None:
    """Let running means follow what one batch says of some classes.

    Example:
        >>> means: Means = {}
        >>> add(means, [{"label": 3, "samples": 4, "accuracy": 0.5}])
        >>> means
        {'3': [4.0, 0.5]}
    """
    for row in rows:
        key = orjson.dumps(row["label"]).decode()
        if key in means or len(means) < MOST_CLASSES:
            weight, mean = means.get(key, (0.0, 0.0))
            after = Running(weight, mean).updated(row["samples"], row["accuracy"])
            means[key] = [after.weight, after.mean]


def renamed(means: Means, before: int | str, label: int | str) -> Means:
    """The same, where a class goes by another label.

    Example:
        >>> renamed({"3": [4.0, 0.5], '"a"': [1.0, 1.0]}, 3, "three")
        {'"three"': [4.0, 0.5], '"a"': [1.0, 1.0]}
    """
    old, new = orjson.dumps(before).decode(), orjson.dumps(label).decode()
    return {new if key == old else key: mean for key, mean in means.items() if key != new}


def merged(means: Means, label: int | str, into: int | str) -> Means:
    """The same, where two classes have become one.

    Example:
        >>> merged({"3": [4.0, 0.5], '"a"': [1.0, 1.0]}, 3, "a")
        {'"a"': [5.0, 0.6]}
    """
    own, other = orjson.dumps(label).decode(), orjson.dumps(into).decode()
    if own not in means:
        return means
    if other not in means:
        return renamed(means, label, into)
    both = Running(*means[other]).pooled(Running(*means[own]))
    kept = {key: mean for key, mean in means.items() if key != own}
    return {**kept, other: [both.weight, both.mean]}


def told(means: Means) -> list[dict[str, Any]]:
    """For GET /drift, in the order of discovery.

    Example:
        >>> told({"3": [4.0, 0.5]})
        [{'label': 3, 'samples': 4, 'accuracy': 0.5}]
    """
    return [
        {"label": orjson.loads(key), "samples": int(weight), "accuracy": mean}
        for key, (weight, mean) in means.items()
    ]

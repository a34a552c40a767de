"""Making answers: labels as arrays, and a frozen value from a JSON object."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from clients.http.errors import UnexpectedAnswer

Label = int | str
Floats = NDArray[np.floating[Any]]
Labels = NDArray[Any]
"""Labels, with shape (N,): int64 where all are integers, otherwise Python values."""

Answer = TypeVar("Answer")


def build(cls: type[Answer], document: object, **given: object) -> Answer:
    """An answer from a JSON object; `given` are fields that were made beforehand.

    Raises:
        UnexpectedAnswer: it is no object, or a field without a default is missing.
    """
    if not isinstance(document, Mapping):
        raise UnexpectedAnswer(
            f"The service answered with a JSON {type(document).__name__}, expected an object with "
            f"the fields of {cls.__name__}. Check that the address is that of the service."
        )
    values: dict[str, object] = {}
    for spec in dataclasses.fields(cls):  # type: ignore[arg-type]  # every caller names a dataclass
        if spec.name in given:
            values[spec.name] = given[spec.name]
        elif spec.name == "raw":
            values["raw"] = document
        elif spec.name in document:
            values[spec.name] = document[spec.name]
        elif spec.default is dataclasses.MISSING and spec.default_factory is dataclasses.MISSING:
            raise UnexpectedAnswer(
                f"The service's answer has no field {spec.name!r}; {cls.__name__} needs it. "
                f"It has {', '.join(map(str, document))}. Use client and service of one version."
            )
    return cls(**values)


def label_array(labels: Sequence[Label | None]) -> Labels:
    """Labels as an array (N,): int64 where all are integers, otherwise as they are."""
    if all(isinstance(label, int) for label in labels):
        return np.array(labels, dtype=np.int64)
    array = np.empty(len(labels), dtype=object)
    array[:] = labels
    return array

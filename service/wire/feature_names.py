"""Names of features: which texts will do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

MOST_FEATURE_NAME: Final = 200
"""Characters of one name."""

MOST_FEATURE_NAMES: Final = 1 << 20
"""Characters of all names of a model."""


def fault_of_names(names: Sequence[str]) -> str | None:
    """What is wrong with names of features, as sentences; None where nothing is.

    Example:
        >>> fault_of_names(["temperature", "pressure"])
        >>> fault_of_names(["temperature", ""])
        'The name of feature 1 is empty. Expected 1 to 200 characters.'
    """
    for index, name in enumerate(names):
        if not name.strip():
            return (
                f"The name of feature {index} is empty. Expected 1 to {MOST_FEATURE_NAME} "
                f"characters."
            )
        if len(name) > MOST_FEATURE_NAME:
            return (
                f"The name of feature {index} has {len(name)} characters. Expected 1 to "
                f"{MOST_FEATURE_NAME}."
            )
        if not name.isprintable():
            return (
                f"The name of feature {index} is {name!r}, which cannot be printed. Expected "
                f"letters, digits, signs and spaces. Take out line ends and control characters."
            )
    size = sum(map(len, names))
    if size > MOST_FEATURE_NAMES:
        return (
            f"The names have {size:,} characters together. Expected {MOST_FEATURE_NAMES:,} at "
            f"most. Make them shorter."
        )
    return None

"""What is said where the cast to float32 loses what varies in columns: a warning of Python."""

from __future__ import annotations

from collections.abc import Sequence

MOST_COLUMNS = 5
"""Named in a warning; of others it tells how many they are."""


class PrecisionLost(UserWarning):
    """Columns lie so far from zero that float32, which the model computes with, loses them.

    A warning, which nothing raises; Python's filters of warnings know it by this name.
    """

    @classmethod
    def of(cls, columns: Sequence[str], where: str = "the batch") -> PrecisionLost:
        """The warning that names columns, by places or names.

        Arguments:
            columns: At least one.
            where: What has them.
        """
        some, more = ", ".join(columns[:MOST_COLUMNS]), len(columns) - MOST_COLUMNS
        named = f"{some} and {more:,} more" if more > 0 else some
        one = len(columns) == 1
        return cls(
            f"{'Column' if one else 'Columns'} {named} of {where} {'lies' if one else 'lie'} so "
            f"far from zero that float32, which the model computes with, loses what varies in "
            f"{'it' if one else 'them'}. Subtract an offset first, such as the first time stamp."
        )

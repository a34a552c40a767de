"""Names in a body or an entry that mean nothing here.

They are refused: a misspelled `labels` would be learned as no labels.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

from core.errors import InvalidBatch


def refuse_unknown(
    what: str, names: Iterable[str], known: Collection[str], where: str = "body"
) -> None:
    """Raise `InvalidBatch` for the first name that is not known, with the closest that is."""
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name[:200], sorted(known), n=1)
            hint = f"Did you mean `{close[0]}`?" if close else "Leave it out."
            raise InvalidBatch(
                f"The {where} has a {what} {name[:40]!r}; known are {', '.join(sorted(known))}. "
                f"{hint}"
            )

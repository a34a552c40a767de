"""Shares of keys in what is learned: how much of it each sender brought, and the cap on that.

The counts are of a *window* of the newest samples that were given to the model, in blocks: the
oldest block goes when a newer one is full. They are part of the trainer's totals, made from
events, so that the same stream gives the same counts and the same verdicts.

Rules of this module:

1. No clock. What a key may send depends on what was learned before, and on nothing else.
2. What is refused is not counted. So a key that floods does not push the others out of the window.
3. A key alone is never refused. A window in which one key alone has sent begins anew with the
   second, which could not catch up with all of it.
4. Among K keys each may have one K-th, whatever the cap says: else none could go on.
5. Each may have `SLACK` samples more than its share. So the cap does not act on a few samples, and
   of several keys that keep to batches of at most that many, the one with the least is never
   refused.
6. A key is held back for its outliers only while others send few: where the world changes, it does
   so for all.
"""

from __future__ import annotations

from typing import Any, Final

from core.errors import InvalidRequest

MOST_KEYS: Final = 64
"""Names in a window. What others send is counted together, and the cap is one for all of them."""

BLOCK: Final = 5_000
BLOCKS: Final = 10
"""Samples after which a block is full, and full blocks that are kept beside the one being filled.
"""

SLACK: Final = 1_000

FEWEST_JUDGED: Final = 300
"""Samples of a key, and as many of the others together, before its outliers are judged."""

TIMES_OTHERS: Final = 3
"""How many times the others' share of outliers a key must have to be held back for its own."""

NAMELESS: Final = ""
"""Who sends without a key."""

REST: Final = "\n"
"""Those beyond `MOST_KEYS`: no key has such a name, since names can be printed."""

Window = list[dict[str, list[int]]]
"""Blocks, oldest first: by name, samples and the outliers among them."""


class KeyShare(InvalidRequest):
    """A batch would give its key a larger share of what is learned than it may have."""


class KeyOutliers(InvalidRequest):
    """Most of what the key of a batch has sent were outliers, and the others' were not."""


def add(window: Window, by: str | None, samples: int, outliers: int) -> None:
    """Count one batch that was given to the model.

    Arguments:
        window: Of before; it is changed.
        by: Name of the key that sent it; None without one.
        samples: That it holds.
        outliers: Of these, as they were scored before they were learned.

    Example:
        >>> window: Window = []
        >>> add(window, "a", 30, 1)
        >>> add(window, "b", 10, 4)  # the window begins anew
        >>> add(window, "a", 10, 0)
        >>> sums(window)
        {'a': [10, 0], 'b': [10, 4]}
    """
    name, known = _place(window, by)
    if len(known) == 1 and name not in known:
        window[:] = [{one: [0, 0] for one in known}]  # the first is still known
    if not window or sum(n for n, _ in window[-1].values()) >= BLOCK:
        window.append({})
        del window[: -BLOCKS - 1]
    counts = window[-1].setdefault(name, [0, 0])
    counts[0] += samples
    counts[1] += outliers


def sums(window: Window) -> dict[str, list[int]]:
    """Samples and outliers by name, in the order in which they came first."""
    found: dict[str, list[int]] = {}
    for block in window:
        for name, (samples, outliers) in block.items():
            counts = found.setdefault(name, [0, 0])
            counts[0] += samples
            counts[1] += outliers
    return found


def check(window: Window, by: str | None, samples: int, cap: float) -> None:
    """Return where a batch may be learned.

    Arguments:
        window: Of what was learned before it.
        by: Name of the key that sent it; None without one.
        samples: That it holds.
        cap: Share of the window that one key may have, between 0 and 1.

    Raises:
        KeyShare: Its key would have more than that, and `SLACK` samples.

    Example:
        >>> check([{"a": [1500, 0], "b": [1500, 0]}], "a", 900, cap=0.5)
        >>> check([{"a": [9500, 0], "b": [500, 0]}], "b", 900, cap=0.5)
        >>> check([{"a": [9500, 0]}], "a", 900, cap=0.5)
    """
    name, known = _place(window, by)
    if not known - {name}:
        return
    counted = sums(window)
    if len(known) == 1:
        counted = {}  # as `add` will begin anew
    total = samples + sum(n for n, _ in counted.values())
    own = samples + counted.get(name, [0, 0])[0]
    share = max(cap, 1 / len(known | {name}))
    if own <= share * total + SLACK:
        return
    raise KeyShare(
        f"With this batch of {samples} samples {_named(name)} would have sent {own} of the last "
        f"{total} that were learned. Expected at most {share:.3g} of them, and {SLACK} more "
        f"(GMR_MAX_KEY_SHARE is {cap:g}, of {len(known | {name})} senders). Look at what it sends; "
        f"then send this dead letter again, which is learned in any case, or raise the setting."
    )


def check_outliers(window: Window, by: str | None, cap: float) -> None:
    """Return where a key's batches may be learned in spite of the outliers that it has sent.

    Arguments:
        window: Of what was learned before.
        by: Name of the key; None without one.
        cap: Share of its own samples that may be outliers, between 0 and 1.

    Raises:
        KeyOutliers: More were, and `TIMES_OTHERS` the share of the others'.

    Example:
        >>> check_outliers([{"a": [900, 20], "b": [400, 60]}], "b", cap=0.2)
        >>> check_outliers([{"a": [900, 90], "b": [400, 100]}], "b", cap=0.2)
    """
    name, _ = _place(window, by)
    counted = sums(window)
    samples, outliers = counted.pop(name, [0, 0])
    others = sum(n for n, _ in counted.values())
    if min(samples, others) < FEWEST_JUDGED:
        return
    usual = sum(n for _, n in counted.values()) / others
    share = outliers / samples
    if share <= max(cap, TIMES_OTHERS * usual):
        return
    raise KeyOutliers(
        f"Of the last {samples} samples that {_named(name)} sent {share:.0%} were outliers, of the "
        f"others' {usual:.1%}. Expected at most {cap:.3g} (GMR_MAX_KEY_OUTLIERS), or "
        f"{TIMES_OTHERS} times the others' share. Look at what it sends; then send this dead "
        f"letter again, which is learned in any case, or raise the setting."
    )


def told(window: Window) -> dict[str, Any]:
    """The shares, JSON-ready, for GET /keys/shares.

    Example:
        >>> told([{"a": [3, 1], "": [1, 0]}])["keys"][0]
        {'name': 'a', 'samples': 3, 'share': 0.75, 'outliers': 1, 'outlier_share': 1.0}
    """
    counted = sums(window)
    rest = counted.pop(REST, None)
    samples = sum(n for block in window for n, _ in block.values())
    outliers = sum(n for block in window for _, n in block.values())

    def row(counts: list[int]) -> dict[str, Any]:
        return {
            "samples": counts[0],
            "share": counts[0] / samples if samples else None,
            "outliers": counts[1],
            "outlier_share": counts[1] / outliers if outliers else None,
        }

    ranked = sorted(counted.items(), key=lambda one: (-one[1][0], one[0]))
    return {
        "samples": samples,
        "outliers": outliers,
        "keys": [{"name": name or None, **row(counts)} for name, counts in ranked],
        "other": None if rest is None else row(rest),
    }


def _place(window: Window, by: str | None) -> tuple[str, set[str]]:
    """Under which name a key is counted, and the names that there are."""
    name = by or NAMELESS
    known = {one for block in window for one in block}
    if name in known or len(known - {REST}) < MOST_KEYS:
        return name, known
    return REST, known


def _named(name: str) -> str:
    if name == REST:
        return f"the keys beyond the first {MOST_KEYS} together"
    return f"the key {name!r}" if name else "whoever sends without a key"

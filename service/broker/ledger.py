"""What became of what was accepted: read for all of it, and for one batch, at one position.

The trainer tells counts of what it has applied (`service.trainer.ledger`); what waits in the
stream is counted here, from a stream that has the samples of each entry under the entry's own
id. Both are read in one script, so that they are of one moment and add up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import orjson

from core.errors import GMRError
from service.broker.append import BEFORE
from service.broker.branch import FIRST_ID, Branch, position
from service.broker.dead_letters import DeadLetters
from service.broker.stream import Stream

PAGE: Final = 1000

LEDGER: Final = (
    BEFORE
    + """
local told, entries, beside, applied = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local text = redis.call('GET', told)
local last, since = '0-0', '0-0'
if text then
  local document = cjson.decode(text)
  last, since = document.last_entry_id, document.since
end
local fresh, again, at = 0, 0, '(' .. last
repeat
  local rows = redis.call('XRANGE', beside, at, '+', 'COUNT', ARGV[1])
  for _, row in ipairs(rows) do
    local fields = row[2]
    if fields[4] ~= '' and before(since, fields[4]) then
      again = again + tonumber(fields[2])
    else
      fresh = fresh + tonumber(fields[2])
    end
  end
  if #rows > 0 then at = '(' .. rows[#rows][1] end
until #rows < tonumber(ARGV[1])
local n = redis.call('XLEN', entries)
local whole = n == redis.call('XLEN', beside) and 1 or 0
return {text or '', fresh, again, whole, tonumber(redis.call('GET', applied) or '0'), n}
"""
)

BATCH: Final = """
local note = redis.call('GET', KEYS[1])
if not note then return {} end
local id
for line in string.gmatch(note, '[^\\n]+') do id = string.match(line, '^%S+') end
local function text(value) return value or '' end
return {note, text(redis.call('GET', KEYS[2])), text(redis.call('HGET', KEYS[3], id)),
        text(redis.call('GET', KEYS[4]))}
"""

State = Literal[
    "waiting",
    "learned",
    "set_aside",
    "awaiting",
    "unknown",
    "quarantined",
    "passed",
    "split",
    "applied",
    "rejected",
    "dropped",
    "lost",
]

FATES: Final = (
    *("learned", "set_aside", "awaiting", "unknown"),
    *("quarantined", "passed", "dropped"),
)
"""What may become of the samples of a batch that was applied."""

TOTALS: Final = ("accepted", "rejected", "lost", "unaccounted")
"""What is counted of whole entries beside."""


class UnknownBatch(GMRError):
    """No batch has this id, or its id is not remembered any more."""

    @classmethod
    def of(cls, batch_id: str) -> UnknownBatch:
        """The error for an id."""
        return cls(
            f"No batch with the id {batch_id[:80]!r} is known: it was never accepted, or its id is "
            f"forgotten (after GMR_DEDUPE_TTL_S; ids that the service made, after ten minutes). "
            f"Look at the id; where it is right, the batch was accepted longer ago than that.",
            batch_id=batch_id[:80],
        )


@dataclass(frozen=True)
class Fate:
    """What became of one batch.

    Arguments:
        batch_id: The sender's.
        entry_id: In the stream, as it was accepted last.
        kind: "batch" or "labels".
        state: In a word; "split" where its samples are in several.
        samples: That it holds, or labels.
        counts: Of its samples by what became of them; None where that is not known.
        reason: Why it is a dead letter, in a word.
        detail: Why, in full; None where the letter is gone.
        deadletter: The letter; None where it is gone.
        accepted: Times that the id was accepted, as far as is remembered.
        last_entry_id: The last entry that the trainer had applied at this moment.
    """

    batch_id: str
    entry_id: str
    kind: Literal["batch", "labels"]
    state: State
    samples: int
    counts: Mapping[str, int] | None
    reason: str | None
    detail: str | None
    deadletter: str | None
    accepted: int
    last_entry_id: str | None


class LedgerBook:
    """The API's end of one model's ledger.

    Arguments:
        stream: Whose entries they are.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._ledger = stream.client.register_script(LEDGER)
        self._batch = stream.client.register_script(BATCH)

    async def counts(self) -> dict[str, Any]:
        """Samples by what became of them, JSON-ready; None where a number cannot be known.

        Raises:
            StreamUnavailable: Redis is away.
        """
        keys = self._stream.keys
        names = [keys.ledger, keys.input, keys.samples, keys.applied]
        text, fresh, again, whole, removed, left = await self._stream.read(
            lambda: self._ledger(keys=names, args=[PAGE])
        )
        account: dict[str, Any] = orjson.loads(text) if text else {}
        # Before any trainer has told, all is known only where nothing was ever removed.
        nothing = dict.fromkeys((*FATES, *TOTALS), None if removed else 0)
        counts: dict[str, int | None] = account.get("counts", nothing)
        accepted, rejected = counts["accepted"], counts["rejected"]
        applied = account.get("entries_applied", removed)
        return {
            "accepted": accepted + fresh if whole and accepted is not None else None,
            "waiting": fresh + again if whole else None,
            **{fate: counts[fate] for fate in FATES},
            # What waits as a dead letter sent again is no dead letter any more.
            "rejected": None if rejected is None else rejected - again,
            "lost": counts["lost"],
            "unaccounted": counts["unaccounted"],
            "waiting_entries": max(0, removed + left - applied),
            "entries_applied": applied,
            "last_entry_id": account.get("last_entry_id"),
            "since": None if account.get("since", FIRST_ID) == FIRST_ID else account["since"],
        }

    async def fate(self, batch_id: str) -> Fate:
        """What became of one batch, as it was accepted last.

        Raises:
            UnknownBatch: Its id is not known.
            StreamUnavailable: Redis is away.
        """
        keys = self._stream.keys
        names = [keys.batch(batch_id), keys.ledger, keys.fates, keys.branch]
        reply = await self._stream.read(lambda: self._batch(keys=names))
        if not reply:
            raise UnknownBatch.of(batch_id)
        note, ledger, split, branch = (part.decode() for part in reply)
        lines = note.split("\n")
        entry_id, _, number, *ended = lines[-1].split(" ")
        account: dict[str, Any] = orjson.loads(ledger) if ledger else {}
        kind: Literal["batch", "labels"] = "labels" if number.endswith("l") else "batch"
        samples = int(number.removesuffix("l"))
        reason = detail = deadletter = None
        counts: Mapping[str, int] | None = None
        state: State
        if ended:
            reason, _, deadletter = ended[0].partition("@")
            letter = await DeadLetters(self._stream).of_entry(entry_id)
            detail = None if letter is None else letter.facts.get("detail")
            deadletter = None if letter is None else deadletter
            state = "rejected"
        elif position(entry_id) > position(account.get("last_entry_id", FIRST_ID)):
            state = "waiting"
        elif branch and Branch.from_json(branch).drops(entry_id):
            gone = account.get("losses", ())
            state = "lost" if _within(entry_id, gone) else "dropped"
        elif kind == "labels":
            state = "applied"
        else:
            counts = _counts(entry_id, samples, split, account)
            state = _state(counts)
        return Fate(
            batch_id,
            entry_id,
            kind,
            state,
            samples,
            counts,
            reason,
            detail,
            deadletter,
            len(lines),
            account.get("last_entry_id"),
        )


def _counts(
    entry_id: str, samples: int, split: str, account: Mapping[str, Any]
) -> dict[str, int] | None:
    """Samples of a batch that is part of the model, by what became of them."""
    if split:
        parts: dict[str, int] = orjson.loads(split)
        return {fate: parts.get(fate, 0) for fate in FATES}
    if position(entry_id) <= position(account["split_since"]):
        return None  # how it was split is not known, or not any more
    return dict.fromkeys(FATES, 0) | {"learned": samples}


def _state(counts: Mapping[str, int] | None) -> State:
    """One word for the counts of a batch."""
    if counts is None:
        return "applied"
    match [fate for fate, n in counts.items() if n]:
        case [
            "learned"
            | "set_aside"
            | "awaiting"
            | "unknown"
            | "quarantined"
            | "passed"
            | "dropped" as one
        ]:
            return one
    return "split"


def _within(entry_id: str, ranges: Any) -> bool:
    place = position(entry_id)
    return any(position(first) <= place <= position(last) for first, last in ranges)

"""The script that puts an entry into the input stream, once for each batch id.

A batch id has a *note*: a line `<entry id> <identity> <samples>` for each time that it was
accepted, oldest first; for labels the number is theirs, with an `l` behind it. The identity is
`service.wire.identity`, in notes of earlier releases a crc32. A line of an entry that ended among
the dead letters goes on with `<reason>@<letter id>`; the trainer adds that. The script
decides by the lines that are left
when those of dropped entries (`service.broker.branch`) are taken away:

| there is a line | answer |
|---|---|
| of an entry learned, or to be learned | `duplicate`, or `conflict` where the identity differs |
| that an accepted rollback or upload may drop, and the trainer has yet to say | `restoring` |
| of an entry whose dead letter is kept and was not sent again | `rejected`, or `conflict` |
| none of these | the entry is added |

So a batch that a rollback has dropped may be sent again, and so may one whose dead letter is gone
or went out again in vain: nothing else can bring it back then. Otherwise only the letter is sent.

A rollback is added where the version that it names is one of those that are kept
(`service.broker.kept_versions`), which pins that version until the trainer has decided about it.

An order that matters: checks, then XADD, then the note and the counts. A full Redis refuses only
a script's first write, so a note written first could record a batch that was never added. The
pieces of an uploaded checkpoint are kept from then on for as long as its entry. An answer `added`
says `crowded` where remembered ids take too much (`service.broker.remembered_ids`).
"""

from __future__ import annotations

from typing import Final

from service.broker.remembered_ids import REMEMBER

MOST_LINES: Final = 8
"""Times that one batch id is accepted anew of which its note knows."""

MOST_KEPT: Final = 64
"""Versions in all beyond which no rollback is accepted to one that no other waits for."""

# What scripts that compare ids of entries begin with.
BEFORE: Final = """
local function parts(id)
  local ms, seq = string.match(id, '^(%d+)-?(%d*)$')
  return tonumber(ms) or 0, tonumber(seq) or 0
end
local function before(a, b)
  local a_ms, a_seq = parts(a)
  local b_ms, b_seq = parts(b)
  return a_ms < b_ms or (a_ms == b_ms and a_seq < b_seq)
end
"""

APPEND: Final = (
    BEFORE
    + REMEMBER
    + """
local entries, noted, features, applied = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local branch_key, restoring_key = KEYS[5], KEYS[6]
local letters, requeued, letter_bytes, payload = KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local pieces, uploads, counts, beside, ids = KEYS[11], KEYS[12], KEYS[13], KEYS[14], KEYS[15]
local kept = KEYS[16]
local crc, samples, d, most, ttl = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local most_lines, restores, letter = tonumber(ARGV[6]), ARGV[7], ARGV[8]
local n_pieces, crc32, first = tonumber(ARGV[9]), ARGV[10], ARGV[11]
local own_id, budget = ARGV[12], tonumber(ARGV[13])
local version, most_kept = ARGV[14], tonumber(ARGV[15])
local function same(noted)
  return noted == crc or (#noted < #crc and noted == crc32)
end
local accepted = tonumber(redis.call('GET', applied) or '0') + redis.call('XLEN', entries)

local size = 0
if letter ~= '' then
  local row = redis.call('XRANGE', letters, letter, letter)[1]
  if not row then return {'gone', letter, accepted} end
  local again = redis.call('HGET', requeued, letter)
  if again then return {'requeued', again, accepted} end
  if redis.call('EXISTS', payload) == 0 then return {'bare', letter, accepted} end
  for i = 1, #row[2], 2 do
    if row[2][i] == 'size' then size = tonumber(row[2][i + 1]) end
  end
end

local lines = {}
local note = redis.call('GET', noted)
if note then
  local text = redis.call('GET', branch_key)
  local branch = text and cjson.decode(text) or {}
  local restoring = redis.call('GET', restoring_key)
  if restoring and not before(branch.decided or '0-0', restoring) then restoring = nil end
  local function dropped(id)
    for _, range in ipairs(branch.dropped or {}) do
      if not before(id, range[1]) and not before(range[2], id) then return true end
    end
    return false
  end
  local live, rejected, unsure
  for line in string.gmatch(note, '[^\\n]+') do
    lines[#lines + 1] = line
    local id, its_crc, why, its_letter = string.match(line, '^(%S+) (%S+) %S+ ([^@%s]+)@(%S+)$')
    if not id then id, its_crc = string.match(line, '^(%S+) (%S+)') end
    if restores ~= '' then
      -- It drops itself; a repeat of its append is a repeat.
      live = {id, its_crc}
    elseif dropped(id) then
      -- No part of the model: as if it had never come.
    elseif its_letter then
      local kept = redis.call('XRANGE', letters, its_letter, its_letter)[1]
      if kept and not redis.call('HGET', requeued, its_letter) then
        rejected = {id, its_crc, why .. ' ' .. its_letter}
      end
    elseif restoring and before(id, restoring) then
      unsure = restoring
    else
      live = {id, its_crc}
    end
  end
  if live then
    return {same(live[2]) and 'duplicate' or 'conflict', live[1], accepted}
  end
  if unsure then return {'restoring', unsure, accepted} end
  if rejected and letter == '' then
    local outcome = same(rejected[2]) and 'rejected' or 'conflict'
    return {outcome, rejected[1], accepted, rejected[3]}
  end
end
if most ~= '' and accepted >= tonumber(most) then
  return {'full', '', accepted}
end
local fixed = redis.call('GET', features)
if d ~= '' and fixed and fixed ~= d then
  return {'features', fixed, accepted}
end
if n_pieces > 0 and redis.call('HLEN', pieces) ~= n_pieces then
  return {'incomplete', '', accepted}
end
local pins = version ~= '' and redis.call('EXISTS', kept) == 1
if pins then
  local named_by = redis.call('HGET', kept, version)
  if not named_by then return {'unkept', version, accepted, redis.call('HGETALL', kept)} end
  if named_by == '' and redis.call('HLEN', kept) >= most_kept then
    return {'pinned', '', accepted}
  end
end

local id = redis.call('XADD', entries, '*', unpack(ARGV, 16))
if pins then redis.call('HSET', kept, version, id) end
redis.call('XADD', beside, id, 'n', d ~= '' and samples or 0, 'again', first)
if n_pieces > 0 then
  redis.call('PERSIST', pieces)
  redis.call('HSET', uploads, id, pieces)
end
lines[#lines + 1] = id .. ' ' .. crc .. ' ' .. samples .. (d == '' and 'l' or '')
local oldest = math.max(1, #lines - most_lines + 1)
redis.call('SET', noted, table.concat(lines, '\\n', oldest), 'EX', ttl)
if d ~= '' and not fixed then
  redis.call('SET', features, d)
end
if restores ~= '' then redis.call('SET', restoring_key, id) end
-- A batch is counted when its sender's copy is accepted, not when its dead letter is sent again.
if d ~= '' and restores == '' and letter == '' then
  redis.call('HINCRBY', counts, 'samples_ingested', samples)
  redis.call('HINCRBY', counts, 'batches_ingested', 1)
end
if letter ~= '' then
  redis.call('HSET', requeued, letter, id)
  redis.call('DEL', payload)
  redis.call('DECRBY', letter_bytes, size)
end
local crowded = own_id ~= '' and remember(ids, own_id, id, ttl, budget)
return {'added', id, accepted + 1, crowded and 'crowded' or ''}
"""
)

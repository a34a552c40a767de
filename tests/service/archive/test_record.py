"""Tests for the service.archive.record module: what was written is read, or is no record."""

from __future__ import annotations

import io

from hypothesis import given
from hypothesis import strategies as st

from service.archive.record import Record, read

fields = st.dictionaries(st.binary(min_size=1, max_size=8), st.binary(max_size=40), max_size=4)
records = st.builds(
    Record,
    st.from_regex(r"\d{1,13}-\d{1,4}", fullmatch=True),
    st.integers(1, 2**40),
    fields,
    st.booleans(),
)


def read_all(data: bytes) -> list[Record]:
    return list(read(io.BytesIO(data)))


@given(st.lists(records, max_size=5))
def test_what_was_written_is_read(written: list[Record]) -> None:
    assert read_all(b"".join(one.to_bytes() for one in written)) == written


@given(records, st.integers(0, 2**40), st.booleans())
def test_where_a_rollback_went_is_read(one: Record, back_to: int, without_raw: bool) -> None:
    went = Record(one.entry_id, one.n, one.fields, False, back_to, without_raw)
    assert read_all(went.to_bytes()) == [went]


@given(st.lists(records, min_size=1, max_size=3), records, st.data())
def test_a_record_that_was_cut_short_is_none(
    before: list[Record], last: Record, data: st.DataObject
) -> None:
    whole = b"".join(one.to_bytes() for one in before)
    cut = data.draw(st.integers(0, len(last.to_bytes()) - 1))
    assert read_all(whole + last.to_bytes()[:cut]) == before


@given(st.lists(records, min_size=1, max_size=3), st.data())
def test_a_record_in_which_a_bit_has_turned_is_none(
    written: list[Record], data: st.DataObject
) -> None:
    parts = [one.to_bytes() for one in written]
    whole = bytearray(b"".join(parts))
    bit = data.draw(st.integers(0, 8 * len(whole) - 1))
    whole[bit // 8] ^= 1 << bit % 8
    ends = [sum(map(len, parts[: i + 1])) for i in range(len(parts))]
    damaged = next(i for i, end in enumerate(ends) if bit // 8 < end)
    assert read_all(bytes(whole)) == written[:damaged]

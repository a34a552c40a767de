"""Tests for clients.sending.feature_names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.data.files import open_source
from clients.http.client import GMRClient
from clients.http.errors import InputError
from clients.sending.feature_names import InOrder, NamesAfterFirst, match_names
from clients.sending.samples import Totals


class Naming:
    """The part of a client that knows names."""

    def __init__(self, kept: Sequence[str] | None) -> None:
        self.kept = None if kept is None else tuple(kept)
        self.named: list[tuple[str, ...]] = []

    def feature_names(self) -> tuple[str, ...] | None:
        return self.kept

    def name_features(self, names: Sequence[str]) -> None:
        self.named.append(tuple(names))

    @property
    def client(self) -> GMRClient:
        return cast("GMRClient", self)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "a.csv"
    path.write_text("id,b,a,kind\n" + "".join(f"s{i},{i}.5,{i},{i % 2}\n" for i in range(7)))
    return path


@given(st.permutations(["a", "b", "c", "c", "d"]))
def test_each_feature_comes_to_its_place(wanted: list[str]) -> None:
    class Held:
        path, kind, n_samples, n_features, labelled = Path("x.csv"), "csv", 1, 5, False
        feature_names = ("c", "a", "d", "b", "c")

    order = InOrder(cast("InOrder", Held()), tuple(wanted))._order
    assert [Held.feature_names[place] for place in order] == wanted
    assert sorted(order.tolist()) == [*range(5)]


def test_all_else_of_a_table_stays_as_it_is(table: Path) -> None:
    plain = open_source(table, label_column="kind", id_column="id")
    assert plain.feature_names == ("b", "a")
    matched = match_names(Naming(["a", "b"]).client, plain)
    assert matched.missing is None
    [remark] = matched.remarks
    assert "another order" in remark
    source = matched.source
    assert (source.path, source.kind, source.n_features) == (table, "csv", 2)
    assert (source.labelled, source.n_samples) == (True, None)
    assert source.feature_names == ("a", "b")
    pieces = zip(source.read(3, 2), plain.read(3, 2), strict=True)
    for ours, theirs in pieces:
        np.testing.assert_array_equal(ours.features, theirs.features[:, ::-1])
        assert ours.features.flags.c_contiguous
        assert (ours.start, ours.ids) == (theirs.start, theirs.ids)
        np.testing.assert_array_equal(ours.labels, theirs.labels)
    assert [*source.read_ids()] == [*plain.read_ids()]


def test_names_are_sent_where_the_service_has_none(table: Path) -> None:
    source = open_source(table, label_column="kind", id_column="id")
    for kept, missing in ((None, ("b", "a")), (("b", "a"), None), (("x", "y", "z"), None)):
        matched = match_names(Naming(kept).client, source)
        assert (matched.missing, matched.remarks, matched.source) == (missing, (), source)
    with pytest.raises(InputError, match="calls feature 1 'a', the service 'c'"):
        match_names(Naming(("b", "c")).client, source)
    np.save(table.with_suffix(".npy"), np.zeros((2, 2)))
    assert (
        match_names(Naming(("b", "c")).client, open_source(table.with_suffix(".npy"))).missing
        is None
    )


def test_names_are_sent_once_a_batch_is_accepted_and_no_sooner() -> None:
    class Heard:
        n = 0

        def sent(self, totals: Totals) -> None:
            self.n += 1

    for names, expected in ((("a", "b"), [("a", "b")]), (None, [])):
        naming, heard = Naming(None), Heard()
        listener = NamesAfterFirst(heard, naming.client, names)
        assert naming.named == []
        for _ in range(3):
            listener.sent(Totals())
        assert naming.named == expected
        assert heard.n == 3

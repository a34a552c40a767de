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
from clients.http.errors import InputError, ServiceUnavailable, ServiceUnreachable
from clients.sending.feature_names import (
    InOrder,
    Matched,
    NameMatcher,
    NamesAfterFirst,
    open_matched,
)
from clients.sending.samples import Totals
from tests.clients.scripted import ScriptedServer, answer, problem


class Naming:
    """The part of a client that gives names."""

    def __init__(self) -> None:
        self.named: list[tuple[str, ...]] = []

    def name_features(self, names: Sequence[str]) -> None:
        self.named.append(tuple(names))

    @property
    def client(self) -> GMRClient:
        return cast("GMRClient", self)


def matched(
    kept: Sequence[str] | None, path: Path, *options: str, columns: Sequence[str] | None = None
) -> tuple[Sequence[str] | None, Matched]:
    """The columns of a table that are chosen by name, and what becomes of it.

    Arguments:
        kept: What the service calls its features.
        path: The table.
        options: `column:what` for each column that is none.
        columns: Those that are chosen by hand.
    """
    apart = {what: column for column, what in (option.split(":") for option in options)}
    dropped = [column for what, column in apart.items() if what == "drop"]
    label, id = apart.get("label"), apart.get("id")
    names = answer(200, {"feature_names": None if kept is None else [*kept]})
    with ScriptedServer(names) as server, GMRClient(server.url) as client:
        matcher = NameMatcher(client)
        chosen = matcher.columns_of(path, columns, (label, id, *dropped))
        source = open_source(path, label_column=label, id_column=id, columns=chosen, drop=dropped)
        found = matcher.match(source)
        assert len(server.requests) <= 1
    return chosen, found


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
    chosen, found = matched(["a", "b"], table, "kind:label", "id:id")
    assert (chosen, found.missing) == (None, None)
    [remark] = found.remarks
    assert "another order" in remark
    source = found.source
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
    for kept, missing in ((None, ("b", "a")), (("b", "a"), None)):
        chosen, found = matched(kept, table, "kind:label", "id:id")
        assert (chosen, found.missing, found.remarks) == (None, missing, ())
        assert not isinstance(found.source, InOrder)
    array = table.with_suffix(".npy")
    np.save(array, np.zeros((2, 2)))
    assert matched(("b", "c"), array)[1].missing is None


def test_a_table_that_lacks_features_is_refused(table: Path) -> None:
    with pytest.raises(InputError, match="calls feature 1 'a', the service 'c'"):
        matched(("b", "c"), table, "kind:label", "id:id")
    text = "has 2 features, the service 3, of which the file lacks 'x', 'z'; nothing was sent"
    with pytest.raises(InputError, match=text):
        matched(("x", "a", "z"), table, "kind:label", "id:id")
    # A column that was named for something else, or twice in the table, is none of them.
    with pytest.raises(InputError, match="lacks 'kind'"):
        matched(("a", "b", "kind"), table, "kind:label", "id:id")
    with pytest.raises(InputError, match="calls feature 0 'b'"):
        matched(("a", "kind"), table, "kind:label", "id:drop")
    table.write_text("a,b,b,c\n1,2,3,4\n")
    for kept in (("a", "b", "x"), ("a", "b", "b")):
        with pytest.raises(InputError, match="2 columns are called 'b': 1 and 2"):
            matched(kept, table)
    with pytest.raises(InputError, match="calls feature 2 'b', the service 'x'"):
        matched(("a", "b", "x"), table, columns=["0", "1", "2"])
    with pytest.raises(InputError, match="more than one column that is called 'b'"):
        matched(("a", "b"), table, columns=["0", "1", "2"])
    assert matched(("a", "b", "b"), table, columns=["0", "1", "2"])[1].source.n_features == 3


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_of_other_columns_nothing_is_read(tmp_path: Path, ending: str) -> None:
    columns = {
        "": range(40),  # counts the rows
        "date": [f"2026-11-{1 + i % 28}" for i in range(40)],
        "b": [i + 0.5 for i in range(40)],
        "label": ["x", "y"] * 20,
        "a": [float(i % 7) for i in range(40)],
    }
    path = tmp_path / f"log.{ending}"
    if ending == "csv":
        rows = [columns, *zip(*columns.values(), strict=True)]
        path.write_text("\n".join(",".join(map(str, row)) for row in rows))
    else:
        pa = pytest.importorskip("pyarrow")
        import pyarrow.parquet as pq

        pq.write_table(pa.table({name: [*cells] for name, cells in columns.items()}), path)

    with pytest.raises(InputError):
        matched(None, path, "label:label")
    for options, left_out in (
        (["label:label"], "'', 'date' are none and were"),
        (["-2:label"], "'', 'date' are none and were"),
        (["label:label", "0:drop"], "'date' is none and was"),
        ([], "'', 'date', 'label' are none and were"),
    ):
        chosen, found = matched(["a", "b"], path, *options)
        assert chosen == ["4", "2"]
        assert found.source.feature_names == ("a", "b")
        assert found.source.n_features == 2
        [remark] = found.remarks
        assert left_out in remark
        [piece] = found.source.read(100)
        np.testing.assert_array_equal(piece.features[:, 0], columns["a"])
        np.testing.assert_array_equal(piece.features[:, 1], columns["b"])
        if options:
            assert [*(piece.labels or ())] == columns["label"]
    # What was chosen by hand stays, and in the service's order nothing need be turned.
    chosen, found = matched(["b"], path, columns=["b"])
    assert (chosen, found.remarks) == (["b"], ())
    assert not isinstance(found.source, InOrder)


def test_of_an_array_features_are_taken_by_name_as_well(tmp_path: Path) -> None:
    path, features = tmp_path / "a.npz", np.arange(12, dtype=np.float32).reshape(4, 3)
    np.savez(path, X=features, feature_names=np.array(["a", "b", "c"]))
    chosen, found = matched(["c", "a"], path)
    assert chosen is None
    assert found.source.n_features == 2
    [piece] = found.source.read(100)
    np.testing.assert_array_equal(piece.features, features[:, [2, 0]])
    [remark] = found.remarks
    assert "'b' is none and was left out" in remark


def test_an_encoding_says_which_columns_there_are(table: Path) -> None:
    with ScriptedServer() as server, GMRClient(server.url) as client:
        assert NameMatcher(client).columns_of(table, None, encoded=True) is None
        assert not server.requests


def test_only_a_table_with_names_makes_the_service_be_asked(table: Path) -> None:
    with GMRClient("http://127.0.0.1:9") as client:  # nothing listens there
        asked = NameMatcher(client)
        assert asked.columns_of(table, None) is None
        source = open_source(table, label_column="kind", id_column="id")
        with pytest.raises(ServiceUnreachable):
            asked.match(source)
        assert asked.columns_of(table, ["a"]) == ["a"]
        assert asked.columns_of(table, None, encoded=True) is None
        assert asked.columns_of(table.with_name("none.csv"), None) is None
        by_place = NameMatcher(client, by_place=True)
        assert by_place.columns_of(table, None) is None
        assert by_place.match(source) == Matched(source)
        table.write_text("1,2\n3,4\n")
        assert asked.columns_of(table, None) is None
        table.write_text("1,5;2,5\n3,5;4,5\n")
        assert asked.columns_of(table, None, decimal=",") is None


def test_while_redis_is_away_features_can_be_taken_by_their_places(table: Path) -> None:
    def opened(client: GMRClient, *, by_place: bool) -> Matched:
        return open_matched(
            client,
            table,
            by_place=by_place,
            columns=None,
            drop=None,
            label_column="kind",
            id_column="id",
        )

    with ScriptedServer(*[problem(503)] * 4) as server, GMRClient(server.url) as client:
        assert opened(client, by_place=True).missing is None
        with pytest.raises(ServiceUnavailable, match=r"What happened\. .* --by-place"):
            opened(client, by_place=False)


def test_names_are_sent_once_a_batch_is_accepted_and_no_sooner() -> None:
    class Heard:
        n = 0

        def sent(self, totals: Totals) -> None:
            self.n += 1

    for names, expected in ((("a", "b"), [("a", "b")]), (None, [])):
        naming, heard = Naming(), Heard()
        listener = NamesAfterFirst(heard, naming.client, names)
        assert naming.named == []
        for _ in range(3):
            listener.sent(Totals())
        assert naming.named == expected
        assert heard.n == 3

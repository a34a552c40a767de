"""Tests for clients.data.encoding and clients.data.survey."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from clients.commands.cli import app
from clients.data.encoding import Categories, Numbers, TableEncoding
from clients.data.files import open_source
from clients.data.formats.cells import number_of, numbers_of
from clients.data.formats.numerals import Numerals
from clients.data.survey import COUNTER, MOST_CATEGORIES, Survey, survey
from clients.http.errors import InputError

ENCODING = TableEncoding(
    [Numbers("amount", 20.0), Categories("shop", ("a", "b")), Numbers("heat", 3.0, True)]
)
AMOUNTS = [37 * i % 100 / 4 for i in range(100)]
HEATS = [None if i % 5 == 0 else 100.0 - i for i in range(100)]
TABLE = "when,amount,shop,paid,heat,kind\n" + "".join(
    f"2026-01-01 {i:05},{AMOUNTS[i]},{'abc'[i % 3]},{i % 2 == 0},{HEATS[i] or ''},{i % 2}\n"
    for i in range(100)
)


def written(folder: Path, text: str = TABLE, name: str = "a.csv") -> Path:
    (folder / name).write_text(text)
    return folder / name


def features(path: Path, encoding: TableEncoding, **options: Any) -> list[list[float]]:
    source = open_source(path, encoding=encoding, **options)
    found = [row for rows in source.read(7) for row in rows.features.tolist()]
    assert source.n_features == len(encoding.features)
    return found


def test_a_table_is_surveyed(tmp_path: Path) -> None:
    found = survey(written(tmp_path), apart=["kind"])
    assert found.encoding.columns == (
        Numbers("amount", 12.375),
        Categories("shop", ("a", "b", "c")),
        Numbers("paid", 0.5),
        Numbers("heat", 50.0, True),
    )
    assert found.left_out == {"when": f"it holds text, of more than {MOST_CATEGORIES} kinds"}
    assert found.n_rows == 100


def test_every_cell_is_where_the_names_of_features_say(tmp_path: Path) -> None:
    path = written(tmp_path)
    encoding = survey(path, apart=["kind"]).encoding
    names = encoding.features
    assert names[1:4] == ("shop=a", "shop=b", "shop=c")
    for i, row in enumerate(features(path, encoding, label_column="kind")):
        cells = dict(zip(names, row, strict=True))
        assert cells["amount"] == AMOUNTS[i]
        assert [cells[f"shop={one}"] for one in "abc"] == [i % 3 == n for n in range(3)]
        assert cells["paid"] == (i % 2 == 0)
        assert (cells["heat"], cells["heat is missing"]) == (HEATS[i] or 50, HEATS[i] is None)


def test_a_later_table_is_encoded_the_same_whatever_the_order_of_its_columns(
    tmp_path: Path,
) -> None:
    encoding = survey(written(tmp_path), apart=["kind"]).encoding
    other = written(
        tmp_path,
        "heat|new|kind|shop|paid|amount\n?|x|1|b|true|2.5\n7|y|0|z|false|NA\n",
        "other.csv",
    )
    first, second = features(other, encoding, label_column="kind")
    assert first == [2.5, 0, 1, 0, 1, 50, 1]
    assert second == [12.375, 0, 0, 0, 0, 7, 0]
    assert (encoding.unknown, encoding.untold) == ({"shop": 1}, {"amount": 1})
    unknown, untold = encoding.remarks
    assert "shop: 1 cell with a category that the encoding does not know, such as 'z'" in unknown
    assert "amount: 1 missing number, which no feature tells" in untold
    encoding.forget_remarks()
    assert encoding.remarks == []


def test_where_numbers_are_missing_need_not_be_told(tmp_path: Path) -> None:
    path = written(tmp_path)
    told = survey(path, apart=["kind"]).encoding
    encoding = survey(path, apart=["kind"], tell_missing=False).encoding
    assert set(told.features) - set(encoding.features) == {"heat is missing"}
    assert TableEncoding.of_json(encoding.to_json()).features == encoding.features
    rows = features(path, encoding, label_column="kind")
    heat = encoding.features.index("heat")
    assert [row[heat] for row in rows[:2]] == [50, HEATS[1]]
    assert any("which no feature tells" in remark for remark in encoding.remarks)
    shown = CliRunner().invoke(app, ["encoding", str(path), "--drop", "kind", "--no-tell-missing"])
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.encode() == encoding.to_json()


def test_labels_ids_and_columns_left_out_are_no_features(tmp_path: Path) -> None:
    path = written(tmp_path)
    found = survey(path, apart=["kind", "-2"], columns=["shop", "amount"])
    assert found.encoding.names == ("shop", "amount")
    with pytest.raises(InputError, match="kind is chosen by --columns and left out"):
        survey(path, apart=["kind"], columns=["amount", "kind"])
    found = survey(path, apart=["kind"], columns=["amount", "shop"])
    assert found.encoding.names == ("amount", "shop")
    assert found.left_out == {}
    ids = [str(i) for i in range(3)]
    text = "id,amount,shop,kind\n" + "".join(f"{i},1,a,0\n" for i in ids)
    source = open_source(
        written(tmp_path, text), label_column="kind", id_column="id", encoding=found.encoding
    )
    [rows] = source.read(10)
    assert rows.ids == [0, 1, 2]
    assert rows.labels is not None
    assert list(rows.labels) == [0, 0, 0]


def test_codes_are_the_same_however_a_tool_writes_them(tmp_path: Path) -> None:
    encoding = TableEncoding([Categories("zone", ("007", "-3", "x.0"))])
    path = written(tmp_path, "zone,y\n-3.0,1\n-3,1\n007,1\n7,1\nx.0,1\n,1\n")
    marks = [[0, 1, 0], [0, 1, 0], [1, 0, 0], [0, 0, 0], [0, 0, 1], [0, 0, 0]]
    assert features(path, encoding) == marks
    assert encoding.encode([{"zone": -3.0}, {"zone": -3}, {"zone": math.nan}]).sum() == 2
    assert encoding.unknown == {"zone": 1}


def test_one_cell_that_is_missing_makes_a_feature(tmp_path: Path) -> None:
    path = written(tmp_path, "x,y\n1,2\n,3\n4,5\n")
    encoding = survey(path).encoding
    assert encoding.features == ("x", "x is missing", "y")
    assert features(path, encoding) == [[1, 0, 2], [2.5, 1, 3], [4, 0, 5]]


def test_a_column_has_as_many_categories_as_are_asked_for_at_most(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert "shop" in survey(path, most=3).encoding.names
    assert survey(path, most=2).left_out["shop"] == "it holds text, of more than 2 kinds"


def test_codes_are_categories_where_that_is_said(tmp_path: Path) -> None:
    path = written(tmp_path, "zone,x\n" + "".join(f"{7 * (i % 3)},{i / 8}\n" for i in range(40)))
    assert survey(path).encoding.columns[0] == Numbers("zone", 7.0)
    [zone, _] = survey(path, categories=["zone"]).encoding.columns
    assert zone == Categories("zone", ("0", "14", "7"))
    with pytest.raises(InputError, match="no feature 'town'"):
        survey(path, categories=["town"])


def test_a_column_that_counts_the_rows_is_left_out_also_without_a_name(tmp_path: Path) -> None:
    path = written(tmp_path, ",x,y\n" + "".join(f"{i},{i % 7},a\n" for i in range(40)))
    found = survey(path)
    assert found.left_out == {"": "it counts the rows"}
    assert len(features(path, found.encoding)) == 40


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_column_of_times_since_1970_is_left_out_unless_it_is_chosen(
    tmp_path: Path, kind: str
) -> None:
    times = [1_789_000_000.25 + 10 * row for row in range(9000)]
    if kind == "csv":
        lines = "".join(f"{time},{row % 7}\n" for row, time in enumerate(times))
        path = written(tmp_path, f"ts,x\n{lines}")
    else:
        pa = pytest.importorskip("pyarrow")
        pq = pytest.importorskip("pyarrow.parquet")
        path = tmp_path / "a.parquet"
        pq.write_table(pa.table({"ts": times, "x": [row % 7 for row in range(9000)]}), path)
    found = survey(path)
    assert found.left_out == {"ts": "it holds times, as numbers since 1970 that only rise"}
    assert found.encoding.names == ("x",)
    assert survey(path, columns=["ts", "x"]).encoding.names == ("ts", "x")


def test_times_that_fall_once_in_the_whole_table_are_numbers(tmp_path: Path) -> None:
    times = [1_789_000_000 + 10 * row for row in range(5000)] + [1_789_000_000]
    path = written(tmp_path, "ts,x\n" + "".join(f"{time},1\n" for time in times))
    assert survey(path).encoding.names == ("ts", "x")


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl"])
def test_a_column_that_never_falls_is_left_out_unless_it_is_chosen(
    tmp_path: Path, kind: str
) -> None:
    n = 5000
    hours = [None if i % 7 == 3 else 10_000 + i // 6 / 4 for i in range(n)]
    columns = {"x": [i * 37 % 101 for i in range(n)], "hours": hours}
    path = tmp_path / f"a.{kind}"
    if kind == "parquet":
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.table(columns), path)
    else:
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        lines = [json.dumps(row) for row in rows]
        if kind == "csv":
            lines = ["x,hours", *(f"{row['x']},{row['hours'] or ''}" for row in rows)]
        path.write_text("\n".join(lines))
    found = survey(path)
    assert found.left_out == {"hours": COUNTER}
    assert COUNTER.startswith("it never falls: a counter")
    assert found.encoding.names == ("x",)
    assert survey(path, columns=["x", "hours"]).encoding.names == ("x", "hours")
    told = CliRunner().invoke(app, ["encoding", str(path)]).stderr
    assert f"  hours: left out, {COUNTER}\n" in told


@pytest.mark.parametrize(
    "numbers",
    [
        [5] * 200,
        [0] * 100 + [1] * 100,  # a switch that goes on once
        [i // 20 for i in range(200)],  # a limit that is set anew now and then
        [*(i / 3 for i in range(199)), 65],  # it falls once, at the end
        [i / 7 for i in range(49)],  # too few to tell
        [200 - i for i in range(200)],
    ],
)
def test_other_columns_stay_features(tmp_path: Path, numbers: list[float]) -> None:
    lines = "".join(f"{i % 7},{number}\n" for i, number in enumerate(numbers))
    assert survey(written(tmp_path, f"y,x\n{lines}")).encoding.names == ("y", "x")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_column_that_falls_in_no_models_rows_is_left_out_where_models_are_known(
    tmp_path: Path, kind: str
) -> None:
    n = 9000
    machines = [f"pump-{i * 31 % 4}" for i in range(n)]
    hours = [10_000 * (i * 31 % 4) + i / 6 for i in range(n)]
    once = [*hours[:-1], 0.0]
    if kind == "csv":
        rows = zip(machines, hours, once, range(n), strict=True)
        lines = "".join(f"{a},{b},{c},{i * 37 % 101}\n" for a, b, c, i in rows)
        path = written(tmp_path, f"machine,hours,once,x\n{lines}")
    else:
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        path = tmp_path / "a.parquet"
        x = [i * 37 % 101 for i in range(n)]
        pq.write_table(pa.table({"machine": machines, "hours": hours, "once": once, "x": x}), path)
    found = survey(path, model_column="machine")
    assert found.left_out == {"hours": COUNTER}
    assert found.encoding.names == ("once", "x")
    assert survey(path, apart=["machine"]).encoding.names == ("hours", "once", "x")
    with pytest.raises(InputError, match="no column 'engine'"):
        survey(path, model_column="engine")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1,2,x\n3,4,y\n", "names no columns"),
        ("x,y,x\n1,a,2\n", "two columns 'x'"),
        ("x, ,z\n1,a,2\n", "a column without a name"),
        ("x,y\n,\n,\n", "no column that could be a feature"),
    ],
)
def test_a_table_that_has_no_encoding_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        survey(written(tmp_path, text))
    np.save(tmp_path / "a.npy", np.zeros((3, 2)))
    with pytest.raises(InputError, match="no table"):
        survey(tmp_path / "a.npy")
    with pytest.raises(InputError, match="is no file"):
        survey(tmp_path / "none.csv")


def test_a_text_among_numbers_is_told_with_its_place_and_may_be_left_out(tmp_path: Path) -> None:
    text = "amount,shop,heat\n1,a,2\n2,b,warm\n3,a,4\n"
    path = written(tmp_path, text)
    with pytest.raises(InputError, match=r"row 1, column 'heat' holds 'warm'.*--skip-bad-rows"):
        features(path, ENCODING)
    assert features(path, ENCODING, skip_bad_rows=True) == [[1, 1, 0, 2, 0], [3, 1, 0, 4, 0]]
    uneven = written(tmp_path, text + "5,a\n", "uneven.csv")
    assert features(uneven, ENCODING, skip_bad_rows=True) == [[1, 1, 0, 2, 0], [3, 1, 0, 4, 0]]
    with pytest.raises(InputError, match=r"column 'heat' holds '1,5'.*--decimal"):
        features(written(tmp_path, "amount;shop;heat\n1;a;1,5\n"), ENCODING)
    large = written(tmp_path, "amount,shop,heat\n1,a,2\n1e39,b,3\n", "large.csv")
    with pytest.raises(InputError, match="column 'amount' holds '1e39'"):
        features(large, ENCODING)
    assert features(large, ENCODING, skip_bad_rows=True) == [[1, 1, 0, 2, 0]]
    commas = written(tmp_path, "amount;shop;heat\n0,5;a;1,5\n")
    assert features(commas, ENCODING, decimal=",") == [[0.5, 1, 0, 1.5, 0]]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_column_that_is_not_there_is_told_and_never_found_by_its_index(
    tmp_path: Path, kind: str
) -> None:
    path = tmp_path / f"a.{kind}"
    if kind == "parquet":
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.table({"amount": [1.0], "shop": ["a"]}), path)
    else:
        path.write_text("amount,shop\n1,a\n" if kind == "csv" else '{"amount": 1, "shop": "a"}\n')
    with pytest.raises(InputError, match="has a column 'heat', missing in") as refused:
        features(path, ENCODING)
    assert "which has amount, shop" in str(refused.value)
    assert "make an encoding of its own by `gmr encoding`" in str(refused.value)
    assert "index" not in str(refused.value)
    by_number = TableEncoding([Numbers("1", 0.0), Numbers("amount", 0.0)])
    with pytest.raises(InputError, match="has a column '1', missing in"):
        features(path, by_number)


def test_a_table_without_names_lacks_every_column_of_an_encoding(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="columns 'amount', 'shop', 'heat', missing in") as refused:
        features(written(tmp_path, "1,2,3\n4,5,6\n"), ENCODING)
    assert "whose columns have no names" in str(refused.value)


def test_columns_are_said_once(tmp_path: Path) -> None:
    path = written(tmp_path)
    for options in ({"columns": ["amount"]}, {"drop": ["amount"]}):
        with pytest.raises(InputError, match="An encoding says which columns"):
            open_source(path, encoding=ENCODING, **options)  # type: ignore[arg-type]
    np.save(tmp_path / "a.npy", np.zeros((3, 2)))
    with pytest.raises(InputError, match="an encoding was named, but it is an array"):
        open_source(tmp_path / "a.npy", encoding=ENCODING)


def test_parquet_holds_the_same(tmp_path: Path) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    shops = ["abc"[i % 3] for i in range(100)]
    table = {
        "when": pa.array(range(100), pa.timestamp("s")),
        "amount": AMOUNTS,
        "shop": pa.array(shops).dictionary_encode(),
        "paid": [i % 2 == 0 for i in range(100)],
        "heat": HEATS,
        "kind": [i % 2 for i in range(100)],
    }
    pq.write_table(pa.table(table), tmp_path / "a.parquet", row_group_size=30)
    found, same = survey(tmp_path / "a.parquet", apart=["kind"]), survey(written(tmp_path))
    assert found.encoding.columns == same.encoding.columns[:-1]
    assert found.left_out == {"when": "it holds timestamp[ms]"}
    path = tmp_path / "a.parquet"
    rows = features(path, found.encoding, label_column="kind")
    assert rows == features(written(tmp_path), found.encoding, label_column="kind")
    with pytest.raises(InputError, match="a column 'town', missing in"):
        open_source(path, encoding=TableEncoding([Numbers("town", 0.0)]))
    encoding = TableEncoding([Categories("shop", ("b", "c"))])
    assert len(features(path, encoding)) == 100
    assert encoding.unknown == {"shop": shops.count("a")}
    mixed = [str(i) for i in range(35)] + ["warm"]
    pq.write_table(pa.table({"heat": mixed}), path, row_group_size=30)
    with pytest.raises(InputError, match="row 35, column 'heat' holds 'warm'"):
        features(path, TableEncoding([Numbers("heat", 0.0)]))


def test_it_is_as_it_was_after_a_file(tmp_path: Path) -> None:
    (tmp_path / "e.json").write_bytes(ENCODING.to_json())
    again = TableEncoding.read(tmp_path / "e.json")
    assert again.columns == ENCODING.columns
    assert again.to_json() == ENCODING.to_json()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"gmr_encoding": 2, "columns": []}',
        '{"gmr_encoding": 1, "columns": []}',
        '{"gmr_encoding": 1, "columns": [{"kind": "numbers", "name": "a"}]}',
        '{"gmr_encoding": 1, "columns": [{"kind": "text", "name": "a"}]}',
        '{"gmr_encoding": 1, "columns": [{"kind": "numbers", "name": "a", "missing": null}]}',
        '{"gmr_encoding": 1, "columns": [{"kind": "numbers", "name": "a", "missing": 1e39}]}',
        '{"gmr_encoding": 1, "columns": [{"kind": "categories", "name": "a", "categories": [1]}]}',
        '{"gmr_encoding": 1, "columns": [{"kind": "categories", "name": 1, "categories": ["a"]}]}',
        '{"gmr_encoding": 1, "columns": [{"kind": "numbers", "name": "a", "missing": 1, "b": 2}]}',
    ],
)
def test_a_file_that_holds_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "e.json").write_text(text)
    with pytest.raises(InputError, match="`gmr encoding`"):
        TableEncoding.read(tmp_path / "e.json")


@pytest.mark.parametrize("cell", ["inf", "-Infinity", "1e999", math.inf, -math.inf])
def test_an_infinite_number_is_missing_only_where_a_feature_says_so(cell: object) -> None:
    telling = TableEncoding([Numbers("amount", 20.0, says_missing=True)])
    assert telling.encode([{"amount": cell}]).tolist() == [[20.0, 1.0]]
    assert telling.fits([cell])
    silent = TableEncoding([Numbers("amount", 20.0)])
    assert not silent.fits([cell])
    assert silent.fits([""])
    with pytest.raises(InputError, match=r"row 1, column 'amount' holds .*finite numbers"):
        silent.encode([{"amount": 1}, {"amount": cell}])


def test_a_table_with_infinite_numbers_has_a_feature_that_tells_of_them(tmp_path: Path) -> None:
    path = written(tmp_path, "x,y\n" + "".join(f"{i},{i % 3}\n" for i in range(40)) + "inf,1\n")
    encoding = survey(path).encoding
    assert encoding.features == ("x", "x is missing", "y")


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        TableEncoding.read(tmp_path / "none.json")


CELLS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**6), 10**6),
    st.floats(),
    st.floats().map(str),
    st.sampled_from(["", " ", "NA", "n/a", "?", "True", "false", " 2.5 ", "1e3", "-inf"]),
)


@given(st.lists(CELLS, min_size=1), st.sampled_from(".,"))
def test_numbers_are_read_at_once_as_one_by_one(cells: list[object], decimal: str) -> None:
    numerals = Numerals(decimal)
    single = [number_of(cell, numerals) for cell in cells]
    together = numbers_of(cells, numerals)
    if together is None:
        assert None in single
    else:
        np.testing.assert_array_equal(together, np.array(single, dtype=np.float64))


@given(st.lists(st.sampled_from(["a", "b", "c", "", None]), min_size=1, max_size=30), st.data())
def test_a_category_is_marked_once_or_counted_as_unknown(
    cells: list[str | None], data: st.DataObject
) -> None:
    known = data.draw(st.lists(st.sampled_from("abc"), min_size=1, unique=True))
    encoding = TableEncoding([Categories("shop", tuple(known))])
    marks = encoding.encode([{"shop": cell} for cell in cells])
    expected = [cell in known for cell in cells]
    assert marks.sum(1).tolist() == expected
    for row, cell in zip(marks.tolist(), cells, strict=True):
        assert cell not in known or row[known.index(str(cell))] == 1
    assert encoding.unknown.total() == sum(cell not in known and bool(cell) for cell in cells)


def test_the_median_of_a_long_column_is_one_of_all_its_parts(tmp_path: Path) -> None:
    n = 300_000
    text = "x,y\n" + "".join(f"{7 * i % n / n},{i % 3}\n" for i in range(n))
    found: Survey = survey(written(tmp_path, text))
    [x, _] = found.encoding.columns
    assert isinstance(x, Numbers)
    assert math.isclose(x.missing, 0.5, abs_tol=1e-3)
    assert found.n_rows == n


def test_a_reading_with_its_unit_is_to_be_put_right_and_is_no_category(tmp_path: Path) -> None:
    rows = "".join(f"{140 + i % 7}.5,{i % 3}\n" for i in range(30))
    encoding = survey(written(tmp_path, f"temperature,x\n{rows}")).encoding
    path = written(tmp_path, "temperature,x\n140.773C,1\n")
    with pytest.raises(InputError, match="Take 'C' off the number in this cell") as told:
        features(path, encoding)
    assert "--categories temperature if it holds no numbers" in str(told.value)


ROWS = st.tuples(
    st.one_of(st.none(), st.floats(-1e6, 1e6, width=32)),
    st.floats(-1e6, 1e6, width=32),
    st.sampled_from(["a", "b", "c", None]),
)


@given(st.lists(ROWS, min_size=1, max_size=20), st.floats(-0.49, 0.49))
def test_rows_come_back_from_their_features_also_where_these_are_drawn(
    rows: list[tuple[float | None, float, str | None]], noise: float
) -> None:
    encoding = TableEncoding(
        [Numbers("size", 3.0, True), Numbers("price", 1.0), Categories("shop", ("a", "b", "c"))]
    )
    cells = [dict(zip(encoding.names, row, strict=True)) for row in rows]
    drawn = encoding.encode(cells)
    drawn[:, [1, 3, 4, 5]] += noise  # of all features that are 0 or 1
    assert encoding.decode(drawn) == [list(row) for row in rows]
    order = [4, 0, 5, 2, 1, 3]
    names = [encoding.features[place] for place in order]
    assert encoding.decode(drawn[:, order], names) == [list(row) for row in rows]


def test_samples_of_other_features_are_no_rows_of_a_table() -> None:
    encoding = TableEncoding([Numbers("size", 3.0), Categories("shop", ("a", "b"))])
    with pytest.raises(InputError, match="which makes 3 features: size, shop=a, shop=b"):
        encoding.decode(np.zeros((1, 4)))
    with pytest.raises(InputError, match="have other features than the encoding"):
        encoding.decode(np.zeros((1, 3)), ["size", "shop=a", "shop=c"])

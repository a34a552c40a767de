"""Tests for clients.data.parts: a table is parted by model, and no row is lost or changed."""

from __future__ import annotations

import csv
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.data import parts as module
from clients.data.files import open_source
from clients.data.parts import Parts, parts_of
from clients.http.errors import InputError

numbers = st.floats(-1e6, 1e6, width=32).map(str)
models = st.sampled_from(["pump-7", "a b", 'the "old" one', "ünï", "x,y"])


def table(folder: Path, text: str, name: str = "a.csv") -> Path:
    (folder / name).write_text(text, "utf-8")
    return folder / name


def parted(path: Path, column: str = "machine", **options: object) -> Parts:
    folder = path.parent / "parts"
    folder.mkdir(exist_ok=True)
    return parts_of(path, column, folder, **options)  # type: ignore[arg-type]


@given(rows=st.lists(st.tuples(models, numbers, models), min_size=1, max_size=30))
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_every_row_is_in_the_part_of_its_model_as_it_was(
    delimiter: str, rows: list[tuple[str, str, str]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, delimiter=delimiter).writerows([("machine", "load", "note"), *rows])
        found = parted(path, text_columns=("note",)).each
        assert [part.model for part in found] == [*dict.fromkeys(row[0] for row in rows)]
        assert sorted(row for part in found for row in part.rows) == [*range(len(rows))]
        for part in found:
            with part.path.open(encoding="utf-8", newline="") as file:
                header, *mine = csv.reader(file, delimiter=delimiter)
            assert header == ["machine", "load", "note"]
            assert [*map(tuple, mine)] == [rows[row] for row in part.rows]


def test_a_part_is_read_as_its_rows_of_the_table_are(tmp_path: Path) -> None:
    lines = [f"{'ab'[i % 3 == 0]};{i * i},5;{'x' if i % 2 else ''}" for i in range(9)]
    path = table(tmp_path, "\n".join(["machine;load;state", *lines]) + "\n")
    options = {"label_column": "state", "decimal": ",", "drop": ("machine",)}
    whole = next(open_source(path, **options).read(99))  # type: ignore[arg-type]
    for part in parted(path, text_columns=("state",), decimal=",").each:
        source = open_source(part.path, **options)  # type: ignore[arg-type]
        assert source.feature_names == ("load",)
        mine = next(source.read(99))
        assert mine.features.tolist() == whole.features[part.rows.tolist()].tolist()
        assert whole.labels is not None
        assert mine.labels == [whole.labels[row] for row in part.rows]


def test_many_pieces_make_one_part_each(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ROWS", 4)
    path = table(tmp_path, "machine,load\n" + "".join(f"m{i % 3},{i * i}\n" for i in range(20)))
    for number, part in enumerate(parted(path).each):
        assert part.rows.tolist() == [*range(number, 20, 3)]
        assert part.path.read_text().splitlines() == [
            "machine,load",
            *(f"m{number},{i * i}" for i in range(number, 20, 3)),
        ]


def test_lines_of_json_are_parted_flat_and_by_a_nested_name(tmp_path: Path) -> None:
    rows = [{"at": {"machine": i % 2}, "load": i + 0.5, "on": i > 1} for i in range(4)]
    text = "\n".join(map(json.dumps, rows))
    found = parted(table(tmp_path, text, "a.jsonl"), "at.machine").each
    assert [part.model for part in found] == ["0", "1"]
    assert found[1].path.read_text().splitlines() == [
        "at.machine,load,on",
        "1,1.5,false",
        "1,3.5,true",
    ]


def test_parquet_is_parted_with_its_types(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    whole = pa.table(
        {"load": pa.array(range(10), pa.float32()), "machine": [float(i % 3) for i in range(10)]}
    )
    pq.write_table(whole, tmp_path / "a.parquet", row_group_size=4)
    for number, part in enumerate(parted(tmp_path / "a.parquet").each):
        assert part.model == str(number)
        assert pq.read_table(part.path).equals(whole.take(part.rows.tolist()))
    with_null = pa.table({"load": [1.0, 2.0], "machine": ["a", None]})
    pq.write_table(with_null, tmp_path / "a.parquet")
    with pytest.raises(InputError, match="row 1 says no model in column 'machine'"):
        parted(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("machine,load\na,1\n ,2\n", r"row 1 says no model in column 'machine' \(line 3 of"),
        ("machine,load\na,1\nb\n", r"row 1 has 1 columns, but the first has 2 \(line 3 of"),
        ("load,speed\n1,2\n", "has no column 'machine'"),
    ],
)
def test_a_row_without_a_model_is_found_before_anything_is_parted(
    tmp_path: Path, text: str, complaint: str
) -> None:
    with pytest.raises(InputError, match=complaint):
        parted(table(tmp_path, text))


def test_rows_without_a_model_are_left_out_where_that_is_asked_for(tmp_path: Path) -> None:
    path = table(tmp_path, "machine,load\na,1\n,2\nb\nb,oops\na,5\n")
    found = parted(path, skip_bad_rows=True)
    assert found.skipped == 2
    assert [(part.model, part.rows.tolist()) for part in found.each] == [("a", [0, 4]), ("b", [3])]
    assert found.place(4) == " (line 6 of the file)"


def test_columns_without_names_and_arrays_are_no_tables_to_part(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no names of columns"):
        parted(table(tmp_path, "1,2\n3,4\n"), "0")
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(InputError, match="but it is no table"):
        parted(tmp_path / "a.npy")
    with pytest.raises(InputError, match="does not exist"):
        parted(tmp_path / "b.csv")


def test_of_parquet_fewer_parts_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr(module, "MOST_OF_PARQUET", 2)
    pq.write_table(pa.table({"machine": ["a", "b", "c"]}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match="has more than 2 different values"):
        parted(tmp_path / "a.parquet")


def test_a_column_with_too_many_values_names_no_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_PARTS", 3)
    path = table(tmp_path, "machine,load\n" + "".join(f"m{i},{i * i}\n" for i in range(4)))
    with pytest.raises(InputError, match="has more than 3 different values"):
        parted(path)

"""Tests for clients.data.formats.json_table."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.data.files import open_source
from clients.data.header import header_of
from clients.data.label_file import LabelFile
from clients.data.survey import survey
from clients.http.errors import InputError


def lines(path: Path, *documents: object) -> Path:
    path.write_text("".join(json.dumps(document) + "\n" for document in documents), "utf-8")
    return path


NUMBERS = st.floats(-1e6, 1e6, width=32)
LABELS = st.one_of(
    st.none(), st.integers(-(2**63), 2**63 - 1), st.sampled_from(["a", "1_2", "007x"])
)


@given(
    st.lists(st.tuples(NUMBERS, st.booleans(), LABELS), min_size=1, max_size=9), st.integers(1, 4)
)
def test_json_is_read_as_the_same_table_in_csv_is(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[float, bool, Any]], size: int
) -> None:
    folder = tmp_path_factory.mktemp("tables")
    documents = [{"x": x, "kind": kind, "on": on, "id": i} for i, (x, on, kind) in enumerate(rows)]
    # Keys may come in any order.
    turned = [dict(reversed(one.items())) if i else one for i, one in enumerate(documents)]
    as_json = lines(folder / "a.jsonl", *turned)
    as_csv = folder / "a.csv"
    cells = [[x, "" if kind is None else kind, on, i] for i, (x, on, kind) in enumerate(rows)]
    as_csv.write_text(
        "\n".join(",".join(map(str, row)) for row in [["x", "kind", "on", "id"], *cells])
    )
    options = {"label_column": "kind", "id_column": "id"}
    ours, theirs = (open_source(path, **options) for path in (as_json, as_csv))  # type: ignore[arg-type]
    assert ours.kind == "jsonl"
    assert ours.feature_names == theirs.feature_names == ("x", "on")
    for one, other in zip(ours.read(size), theirs.read(size), strict=True):
        np.testing.assert_array_equal(one.features, other.features)
        assert [*(one.labels if one.labels is not None else [])] == [
            *(other.labels if other.labels is not None else [])
        ]
        assert (one.start, one.ids) == (other.start, other.ids)
    assert [*ours.read_ids()] == [*theirs.read_ids()]


def test_what_is_nested_is_flat_and_arrays_have_no_names(tmp_path: Path) -> None:
    nested = lines(
        tmp_path / "a.ndjson",
        {"place": {"x": 1, "y": -2.5}, "v": [3, True], "y": "one", "more": {}},
        {"v": [4, False], "y": None, "place": {"y": 0, "x": 5, "z": 9}},
    )
    source = open_source(nested, label_column="y")
    assert source.feature_names == ("place.x", "place.y", "v.0", "v.1")
    assert header_of(nested) == ("place.x", "place.y", "v.0", "v.1", "y")
    [rows] = source.read(10)
    assert rows.features.tolist() == [[1, -2.5, 3, 1], [5, 0, 4, 0]]
    assert rows.labels == ["one", None]
    flat = tmp_path / "b.jsonl.gz"
    flat.write_bytes(gzip.compress(b"\n[1, 2.5, 7]\n\n[3, 4, 8]\n"))
    source = open_source(flat, label_column="-1")
    assert source.feature_names is None
    assert header_of(flat) is None
    [rows] = source.read(10)
    assert rows.features.tolist() == [[1, 2.5], [3, 4]]
    assert [*(rows.labels if rows.labels is not None else ())] == [7, 8]
    [chosen] = open_source(nested, columns=["v.0", "place.x"]).read(10)
    assert chosen.features.tolist() == [[1, 3], [5, 4]]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"x": 1}\n{"x": }\n', "row 1 is no JSON object or array"),
        ('{"x": 1}\n7\n', r"row 1 is no JSON object or array \(it holds 7\)"),
        ('{"x": 1}\n{"x": 1, "x": 2}\n', "row 1 .*it has the field 'x' twice"),
        ('{"x.y": 1}\n{"x.y": 1, "x": {"y": 2}}\n', "row 1 .*it has the field 'x.y' twice"),
        ('{"x": 1}\n[1]\n', "row 1 is no object, as the first is"),
        ("[1]\n[1, 2]\n", "row 1 has 2 columns, but the first has 1"),
        ('{"x": 1}\n{"y": 1}\n', r"row 1, column 0 \('x'\) is empty"),
        ('{"x": 1}\n{"x": "red"}\n', r"row 1, column 0 \('x'\) holds 'red'"),
        ('{"x": 1}\n{"x": NaN}\n', "row 1, column 0 is nan"),
        ('{"x": 1}\n{"x": "' + "[" * 9 + '"}\n', "holds"),
        ("[1]\n" + "[" * 200_000 + "\n", "row 1 is no JSON"),
    ],
)
def test_a_row_that_cannot_be_used_is_told_or_left_out(
    tmp_path: Path, text: str, complaint: str
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match=complaint):
        [*open_source(path).read(10)]
    [rows] = open_source(path, skip_bad_rows=True).read(10)
    assert (rows.features.tolist(), rows.skipped, rows.places) == ([[1]], 1, [0])


@pytest.mark.parametrize("text", ["", "\n\n", "{}\n", "[]\n", "7\n", "{\n"])
def test_a_file_without_a_sample_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(text)
    with pytest.raises(InputError, match=r"no line with a value|no JSON object"):
        open_source(path)


def test_labels_and_encodings_come_as_json_too(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "a.jsonl",
        *(
            {"shop": "ab"[i % 2], "price": None if i == 3 else i * 1.5, "id": f"n{i}"}
            for i in range(9)
        ),
    )
    found = survey(path, apart=["id"])
    assert found.encoding.features == ("shop=a", "shop=b", "price", "price is missing")
    [rows] = open_source(path, id_column="id", encoding=found.encoding).read(10)
    assert rows.features[3].tolist() == [0, 1, 6.75, 1]
    [labels] = LabelFile(
        lines(tmp_path / "l.jsonl", *({"id": i, "label": "x"} for i in range(3)))
    ).read(9)
    assert (labels.ids, labels.labels) == ([0, 1, 2], ["x"] * 3)
    with pytest.raises(InputError, match="no text table"):
        open_source(path, decimal=",")

"""Tests for clients.data.files and clients.data.formats."""

from __future__ import annotations

import gzip
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clients.data.encoding import Categories, Numbers, TableEncoding
from clients.data.files import Source, open_source, read_file
from clients.data.formats.numerals import Numerals
from clients.data.label_file import LabelFile
from clients.data.survey import survey
from clients.http.errors import InputError

X = np.arange(20, dtype=np.float32).reshape(10, 2) / 8
Y = np.arange(10) % 3


def collect(source: Source, size: int, start: int = 0) -> tuple[list[Any], list[Any], list[int]]:
    """Everything that the source gives: features, labels, and the sizes of the pieces."""
    features: list[Any] = []
    labels: list[Any] = []
    sizes = []
    for rows in source.read(size, start):
        assert rows.start == start + sum(sizes)
        features += rows.features.reshape(len(rows), -1).tolist()
        labels += [] if rows.labels is None else list(rows.labels)
        sizes.append(len(rows))
    return features, labels, sizes


def write_npz(path: Path) -> tuple[Path, str | None]:
    np.savez(path / "a.npz", features=X, labels=Y)
    return path / "a.npz", None


def write_npy(path: Path) -> tuple[Path, str | None]:
    np.save(path / "a.npy", np.column_stack([X, Y]))
    return path / "a.npy", "-1"


def write_csv(path: Path) -> tuple[Path, str | None]:
    rows = "".join(f"{a},{y},{b}\n" for (a, b), y in zip(X.tolist(), Y.tolist(), strict=True))
    (path / "a.csv").write_text("first,kind,second\n" + rows)
    return path / "a.csv", "kind"


def write_tsv_gz(path: Path) -> tuple[Path, str | None]:
    rows = "".join(f"{y}\t{a}\t{b}\n" for (a, b), y in zip(X.tolist(), Y.tolist(), strict=True))
    with gzip.open(path / "a.tsv.gz", "wt") as file:
        file.write(rows)
    return path / "a.tsv.gz", "0"


def write_parquet(path: Path) -> tuple[Path, str | None]:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    table = pa.table({"a": X[:, 0], "kind": Y, "b": X[:, 1]})
    pq.write_table(table, path / "a.parquet", row_group_size=4)
    return path / "a.parquet", "kind"


def idx(array: np.ndarray[Any, Any], kind: int, dtype: str) -> bytes:
    header = struct.pack(">HBB", 0, kind, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(dtype).tobytes()


def write_idx(path: Path) -> tuple[Path, str | None]:
    (path / "train-images-idx3-ubyte").write_bytes(idx(X.reshape(10, 2, 1), 0x0D, ">f4"))
    (path / "train-labels-idx1-ubyte").write_bytes(idx(Y, 0x08, ">u1"))
    return path / "train-images-idx3-ubyte", None


def write_idx_gz(path: Path) -> tuple[Path, str | None]:
    images = gzip.compress(idx(X.reshape(10, 2, 1), 0x0D, ">f4"))
    (path / "train-images-idx3-ubyte.gz").write_bytes(images)
    (path / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(Y, 0x0B, ">i2")))
    return path / "train-images-idx3-ubyte.gz", None


WRITERS = [
    write_npz,
    write_npy,
    write_csv,
    write_tsv_gz,
    write_parquet,
    write_idx,
    write_idx_gz,
]
Writer = Callable[[Path], tuple[Path, str | None]]


@pytest.mark.parametrize("write", WRITERS)
def test_every_format_gives_the_same_samples_and_labels(write: Writer, tmp_path: Path) -> None:
    path, column = write(tmp_path)
    source = open_source(path, label_column=column)
    features, labels, sizes = collect(source, 4)
    assert features == X.tolist()
    assert labels == Y.tolist()
    assert sizes == [4, 4, 2]
    assert source.n_features == 2
    assert source.labelled
    assert source.n_samples in (10, None)


@pytest.mark.parametrize("start", [0, 3, 4, 9, 10, 99])
@pytest.mark.parametrize("write", WRITERS)
def test_every_format_can_be_read_from_any_row(write: Writer, start: int, tmp_path: Path) -> None:
    path, column = write(tmp_path)
    features, labels, _ = collect(open_source(path, label_column=column), 3, start)
    assert features == X[start:].tolist()
    assert labels == Y[start:].tolist()


@pytest.mark.parametrize("write", WRITERS)
def test_the_whole_file_can_be_read_at_once(write: Writer, tmp_path: Path) -> None:
    path, column = write(tmp_path)
    features, labels = read_file(path, label_column=column)
    assert features.tolist() == X.tolist()
    assert labels is not None
    assert labels.dtype == np.int64
    assert labels.tolist() == Y.tolist()


# Numbers


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("uint8", "uint8"),
        ("float16", "float16"),
        ("float32", "float32"),
        ("float64", "float32"),
        ("int64", "float32"),
        ("bool", "float32"),
    ],
)
def test_types_that_travel_well_are_kept_and_others_become_float32(
    given: str, kept: str, tmp_path: Path
) -> None:
    np.save(tmp_path / "a.npy", np.ones((2, 3), dtype=given))
    (rows,) = open_source(tmp_path / "a.npy").read(10)
    assert rows.features.dtype == kept
    assert rows.labels is None


def test_images_become_rows(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((5, 4, 3), dtype=np.uint8))
    assert open_source(tmp_path / "a.npy").n_features == 12


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_a_feature_that_is_not_finite_is_named_by_row_and_column(
    value: float, tmp_path: Path
) -> None:
    x = np.zeros((7, 3))
    x[5, 2] = value
    np.save(tmp_path / "a.npy", x)
    with pytest.raises(InputError, match="row 5, column 2"):
        collect(open_source(tmp_path / "a.npy"), 2)


def test_large_finite_features_are_not_mistaken_for_infinite_ones(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.full((4, 4), 3e38, dtype=np.float32))
    (rows,) = open_source(tmp_path / "a.npy").read(10)
    assert np.isfinite(rows.features).all()


def test_text_is_no_feature(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([["a", "b"]]))
    with pytest.raises(InputError, match="features must be numbers"):
        collect(open_source(tmp_path / "a.npy"), 1)


# Labels


def test_labels_of_a_csv_are_integers_where_they_look_like_it_and_text_otherwise(
    tmp_path: Path,
) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,cat\n2,7\n3,7.0\n4,\n5,nan\n")
    (rows,) = open_source(tmp_path / "a.csv", label_column="y").read(10)
    assert rows.labels == ["cat", 7, 7, None, None]


def test_a_label_is_never_another_number_than_is_written(tmp_path: Path) -> None:
    """Python reads 1_2 as 12, and a float holds no more than 15 digits."""
    big = str(2**63 - 1)
    cells = ["1_2", "12", big, str(2**63), "1e30", "-0012"]
    (tmp_path / "a.csv").write_text("x,y\n" + "".join(f"{i},{y}\n" for i, y in enumerate(cells)))
    (rows,) = open_source(tmp_path / "a.csv", label_column="y").read(10)
    assert rows.labels == ["1_2", 12, 2**63 - 1, str(2**63), "1e30", -12]


def test_whole_numbers_of_arrays_and_columns_are_the_labels_that_they_are(tmp_path: Path) -> None:
    """A float holds 53 bits of them, and int64 none of the largest."""
    largest = np.array([2**64 - 1, 7, 2**63], dtype=np.uint64)
    expected = [str(2**64 - 1), 7, str(2**63)]
    np.savez(tmp_path / "a.npz", x=X[:3], y=largest)
    (rows,) = open_source(tmp_path / "a.npz").read(10)
    assert rows.labels == expected
    np.savez(tmp_path / "small.npz", x=X[:1], y=largest[1:2])
    (rows,) = open_source(tmp_path / "small.npz").read(10)
    assert rows.labels is not None
    assert rows.labels.tolist() == [7]  # type: ignore[union-attr]
    np.savez(tmp_path / "b.npz", x=X[:2], y=[1.0, 1e300])
    with pytest.raises(InputError, match="label at row 1 is 1e"):
        next(open_source(tmp_path / "b.npz").read(10))
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    for labels in ([2**53 + 1, None, -7], [2**64 - 1, 7, 2**63]):
        kind = pa.int64() if None in labels else pa.uint64()
        table = pa.table({"x": [0.5, 1.5, 2.5], "y": pa.array(labels, kind)})
        parquet.write_table(table, path)
        (rows,) = open_source(path, label_column="y").read(10)
        assert rows.labels == (labels if None in labels else expected)


def test_codes_are_no_numbers_of_features(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x,code\n1,10_2\n2,1_3\n")
    with pytest.raises(InputError, match=r"row 0, column 1 \('code'\) holds '10_2'"):
        next(open_source(path).read(10))
    path.write_text("x,code\n1,7\n2,1_3\n")
    (rows,) = open_source(path, skip_bad_rows=True).read(10)
    assert rows.features.tolist() == [[1, 7]]
    assert rows.skipped == 1
    encoding = survey(path).encoding
    assert encoding.features == ("x", "code=1_3", "code=7")


def test_labels_of_an_archive_may_be_text(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=X, y=np.array(["a", "b"] * 5))
    (rows,) = open_source(tmp_path / "a.npz").read(10)
    assert rows.labels == ["a", "b"] * 5


def test_the_array_of_the_labels_can_be_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", features=X, labels=Y, fine=Y + 10)
    (rows,) = open_source(tmp_path / "a.npz", label_column="fine").read(10)
    assert rows.labels is not None
    assert list(rows.labels) == (Y + 10).tolist()


def test_labels_may_be_in_a_file_of_their_own(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y)
    source = open_source(tmp_path / "x.npy", labels=tmp_path / "y.npy")
    assert collect(source, 10)[1] == Y.tolist()


@pytest.mark.parametrize("text", ["x,y\n1,0.5\n", "x,y\n1,a\n2,inf\n"])
def test_a_label_that_is_a_measurement_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(InputError, match="labels must be whole numbers or text"):
        collect(open_source(tmp_path / "a.csv", label_column="y"), 10)


def test_a_missing_label_is_none_in_a_stream_and_an_error_in_a_data_set(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x,y\n1,3\n2,\n")
    (rows,) = open_source(tmp_path / "a.csv", label_column="y").read(10)
    assert rows.labels == [3, None]
    with pytest.raises(InputError, match="row 1 has no label"):
        read_file(tmp_path / "a.csv", label_column="y")


# CSV


@pytest.mark.parametrize(
    ("text", "column", "features", "labels"),
    [
        ("1,2\n3,4\n", None, [[1, 2], [3, 4]], []),
        ("a,b\n1,2\n", None, [[1, 2]], []),
        ("5,0,0\n3,0,1\n", "0", [[0, 0], [0, 1]], [5, 3]),
        ("0,1,label\n8,9,2\n", "-1", [[8, 9]], [2]),
        ("1,2,cat\n3,4,dog\n", "2", [[1, 2], [3, 4]], ["cat", "dog"]),
        ("a;b\n1;2\n", "b", [[1]], [2]),
        ('"a, b",c\n1,"2"\n', "a, b", [[2]], [1]),
        ("\ufeffa,b\r\n1,2\r\n", "a", [[2]], [1]),
        ("1\n2\n", None, [[1], [2]], []),
        ("1,2\n\n3,4\n", None, [[1, 2], [3, 4]], []),
    ],
)
def test_tables_of_many_shapes_are_understood(
    text: str, column: str | None, features: list[Any], labels: list[Any], tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_bytes(text.encode())
    found = collect(open_source(tmp_path / "a.csv", label_column=column), 10)
    assert found[:2] == (features, labels)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("a,b\n1,2\n3\n", "row 1 has 1 columns, but the first has 2"),
        ("a,b\n1,2\n3,x\n", r"row 1, column 1 \('b'\) holds 'x'"),
        ("a,b\n1,2\n3,\n", r"row 1, column 1 \('b'\) is empty"),
        ("1,2\n3,nan\n", "row 1, column 1 is nan"),
    ],
)
def test_what_is_wrong_in_a_table_is_named_by_row_and_column(
    text: str, complaint: str, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(InputError, match=complaint):
        collect(open_source(tmp_path / "a.csv"), 10)


def test_a_column_after_the_label_keeps_its_number_in_messages(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("y,a,b\n1,2,3\n1,2,x\n")
    with pytest.raises(InputError, match=r"row 1, column 2 \('b'\) holds 'x'"):
        collect(open_source(tmp_path / "a.csv", label_column="y"), 10)


@pytest.mark.parametrize("column", ["z", "5", "-4"])
def test_a_column_that_does_not_exist_is_answered_with_those_that_do(
    column: str, tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("a,b,c\n1,2,3\n")
    with pytest.raises(InputError, match="a, b, c"):
        open_source(tmp_path / "a.csv", label_column=column)


def test_text_that_is_no_utf8_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"a,b\n1,2\n\xff\xfe,3\n")
    with pytest.raises(InputError, match="UTF-8"):
        collect(open_source(tmp_path / "a.csv"), 10)


def test_a_large_table_is_read_in_pieces(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1,2\n" * 2000 + "oops,2\n")
    pieces = open_source(tmp_path / "a.csv").read(100)
    assert len(next(pieces)) == 100  # the mistake at the end was not yet met


# Parquet


def test_parquet_may_hold_its_features_as_one_column_of_lists(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pixels = pa.array(X.tolist(), pa.list_(pa.float32(), 2))
    pq.write_table(pa.table({"pixels": pixels, "label": Y.astype(str)}), tmp_path / "a.parquet")
    features, labels, _ = collect(open_source(tmp_path / "a.parquet", label_column="label"), 3, 2)
    assert features == X[2:].tolist()
    assert labels == [str(y) for y in Y[2:]]


@pytest.mark.parametrize(
    ("columns", "complaint"),
    [
        ({"a": ["x", "y"]}, "column 'a' holds string"),
        ({"a": [1.0, None]}, "row 1, column 'a' is null"),
        ({"a": [[1.0], [1.0, 2.0]]}, "row 1 of column 'a' holds 2 values"),
        ({"a": [[1.0], [1.0]], "b": [1, 2]}, "list column 'a' beside 1 others"),
    ],
)
def test_what_is_wrong_in_a_parquet_file_is_named(
    columns: dict[str, Any], complaint: str, tmp_path: Path
) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=complaint):
        collect(open_source(tmp_path / "a.parquet"), 10)


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [(None, "row 5, column 'a' is null"), (float("nan"), "the feature at row 5, column 0 is nan")],
)
def test_a_row_of_a_parquet_file_has_its_number_wherever_it_is_read_from(
    wrong: float | None, complaint: str, tmp_path: Path
) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    table = pa.table({"a": [1.0, 2.0, 3.0, 4.0, 5.0, wrong, 7.0]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=3)
    for start in range(6):
        with pytest.raises(InputError, match=complaint):
            collect(open_source(tmp_path / "a.parquet"), 4, start)


def test_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(InputError, match=r"pip install 'gmr-stream\[parquet\]'"):
        open_source(tmp_path / "a.parquet")


# Files that are not what they seem


def test_a_format_is_known_by_its_first_bytes_where_the_name_says_nothing(tmp_path: Path) -> None:
    path, _ = write_npz(tmp_path)
    path.rename(tmp_path / "data.bin")
    assert open_source(tmp_path / "data.bin").kind == "npz"


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("a.npy", b"\x93NUMPY broken", "cannot be read as a NumPy file"),
        ("a.npz", b"PK\x03\x04 broken", "cannot be read as a NumPy file"),
        ("a.parquet", b"PAR1 broken", "cannot be read as Parquet"),
        ("a-ubyte", b"\x00\x00\x08\x01\x00\x00\x00\x09123", "6 bytes before"),
        ("a-ubyte", b"hello world", "no IDX file"),
        ("a.idx.gz", b"\x1f\x8b broken", "broken download"),
        ("a.csv", b"", "empty"),
        ("a.docx", b"anything", "no known format"),
    ],
)
def test_a_broken_file_is_refused_with_what_to_do(
    name: str, content: bytes, complaint: str, tmp_path: Path
) -> None:
    if name.endswith("parquet"):
        pytest.importorskip("pyarrow")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=complaint):
        collect(open_source(tmp_path / name), 10)


def test_a_path_that_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="does not exist"):
        open_source(tmp_path / "a.csv")
    with pytest.raises(InputError, match="is a folder"):
        open_source(tmp_path)


def test_samples_and_labels_must_be_as_many(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", features=X, labels=Y[:-1])
    with pytest.raises(InputError, match="10 samples but 9 labels"):
        open_source(tmp_path / "a.npz")


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([object()], dtype=object), allow_pickle=True)
    with pytest.raises(InputError, match="Python objects"):
        open_source(tmp_path / "a.npy")


def test_idx_labels_are_found_beside_the_images_and_nowhere_else(tmp_path: Path) -> None:
    path, _ = write_idx(tmp_path)
    (tmp_path / "train-labels-idx1-ubyte").unlink()
    assert not open_source(path).labelled


@pytest.mark.parametrize("dtype", ["f4", "f2", "u1"])
def test_images_are_sent_as_such(tmp_path: Path, dtype: str) -> None:
    """By the shape of floats, and by the type of bytes: what a table in [0, 1] is not."""
    np.save(tmp_path / "images.npy", np.ones((3, 4, 5), dtype))
    np.save(tmp_path / "table.npy", np.ones((3, 20), "f4"))
    (images,) = open_source(tmp_path / "images.npy").read(10)
    (table,) = open_source(tmp_path / "table.npy").read(10)
    assert images.features.shape == (3, 4, 5)
    assert table.features.shape == (3, 20)
    assert read_file(tmp_path / "images.npy")[0].shape == (3, 20)


# Chosen columns


WEATHER = "day,temperature,kind,pressure,place\n1,20.5,sun,1013,Ulm\n2,18,rain,1002,Bonn\n"


@pytest.fixture(params=["csv", "parquet"])
def weather(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A table with two columns that are no numbers."""
    text = tmp_path / "weather.csv"
    text.write_text(WEATHER)
    if request.param == "csv":
        return text
    pytest.importorskip("pyarrow")
    import pyarrow.csv
    import pyarrow.parquet as pq

    pq.write_table(pyarrow.csv.read_csv(text), tmp_path / "weather.parquet")
    return tmp_path / "weather.parquet"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"drop": ["day", "place"]}, [[20.5, 1013], [18, 1002]]),
        ({"drop": ["0", "-1"]}, [[20.5, 1013], [18, 1002]]),
        ({"columns": ["pressure", "temperature"]}, [[20.5, 1013], [18, 1002]]),
        ({"columns": ["3"]}, [[1013], [1002]]),
    ],
)
def test_features_of_a_table_are_the_columns_that_were_chosen(
    weather: Path, options: dict[str, Any], expected: list[list[float]]
) -> None:
    source = open_source(weather, label_column="kind", **options)
    assert source.n_features == len(expected[0])
    features, found, _ = collect(source, 10)
    assert features == expected
    assert found == ["sun", "rain"]


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"columns": ["kind", "day"]}, "kind is chosen by --columns and left out"),
        ({"columns": ["day"], "drop": ["day"]}, "day is chosen by --columns and left out"),
        ({"drop": ["wind"]}, "no column 'wind'"),
        ({"drop": ["day", "temperature", "pressure", "place"]}, "feature"),
        ({"drop": ["day"]}, "place"),
    ],
)
def test_columns_that_cannot_be_chosen_are_refused(
    weather: Path, options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InputError, match=complaint):
        collect(open_source(weather, label_column="kind", **options), 10)


def test_a_table_without_names_may_have_text_that_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x,1,2\ny,3,4\n")
    assert collect(open_source(path, drop=["0"]), 10)[0] == [[1, 2], [3, 4]]
    assert collect(open_source(path, columns=["1", "2"]), 10)[0] == [[1, 2], [3, 4]]


def test_columns_of_an_array_cannot_be_chosen(tmp_path: Path) -> None:
    path, _ = write_npy(tmp_path)
    with pytest.raises(InputError, match="and no table"):
        open_source(path, drop=["0"])


def test_rows_that_cannot_be_used_are_left_out_where_asked_to(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    good = [f"{i},{i}.5,{i % 2},s{i}" for i in range(6)]
    bad = ["7,,0,x", "7,nan,0,y", "7,1e39,0,z", "7,7", "7,seven,1,v", "7,7,0.5,w"]
    lines = [line for pair in zip(good, bad, strict=True) for line in pair]
    path.write_text("\n".join(["a,b,kind,id", *lines]))
    source = open_source(path, label_column="kind", id_column="id", skip_bad_rows=True)
    pieces = list(source.read(5))
    assert [(rows.start, len(rows), rows.skipped) for rows in pieces] == [
        (0, 3, 2),
        (5, 2, 3),
        (10, 1, 1),
    ]
    assert [row for rows in pieces for row in rows.features.tolist()] == [
        [i, i + 0.5] for i in range(6)
    ]
    ids = [f"s{i}" for i in range(6)]
    assert [id for rows in pieces for id in rows.ids or []] == ids
    assert [id for part in source.read_ids() for id in part] == ids
    with pytest.raises(InputError, match="row 1"):
        list(open_source(path, label_column="kind", id_column="id").read(5))
    with pytest.raises(InputError, match="no text"):
        open_source(write_npy(tmp_path)[0], skip_bad_rows=True)


def test_pieces_in_which_nothing_can_be_used_are_counted_with_those_beside_them(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.csv"
    bad = ["x,1"]
    path.write_text("\n".join(["a,b", *bad * 5, "1,2", *bad * 7, "3,4", *bad * 3]))
    source = open_source(path, skip_bad_rows=True)

    whole = [(rows.start, len(rows), rows.skipped) for rows in source.read(2)]

    assert whole == [(0, 1, 11), (12, 1, 4)]
    for start, n, skipped in whole:  # a run that is resumed sees the rest alike
        after = [
            (rows.start, len(rows), rows.skipped) for rows in source.read(2, start + n + skipped)
        ]
        assert after == [piece for piece in whole if piece[0] > start]


def test_a_table_of_which_no_row_can_be_used_is_refused_with_the_reason(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["a,b", *["x,1"] * 5]))

    with pytest.raises(InputError, match=r"None of the 5 rows .*row 0, column 0 \('a'\) holds 'x'"):
        list(open_source(path, skip_bad_rows=True).read(2))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("a;b;y\n1,5;-2;p,q\n,25;3e1;r", True),
        ("1,5;-2;p,q\n,25;3e1;r", False),
        ("a\tb\ty\n1,5\t-2\tp,q\n,25\t3e1\tr", True),
    ],
)
def test_numbers_with_a_comma_before_their_decimals(tmp_path: Path, text: str, named: bool) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)

    source = open_source(path, label_column="y" if named else "2", decimal=",")
    features, labels, _ = collect(source, 10)

    assert features == [[1.5, -2.0], [0.25, 30.0]]
    assert labels == ["p,q", "r"]


@pytest.mark.parametrize("text", ["a;b\n1,5;2\n", "1,5;2\n2,5;3\n", "a\tb\n1,5\t2\n"])
def test_a_comma_before_decimals_is_known_by_the_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)

    with pytest.raises(InputError, match="Add --decimal , if"):
        collect(open_source(path), 10)


def test_a_point_in_a_table_with_decimal_commas_is_not_guessed_at(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a;b\n1,5;1.234\n")

    with pytest.raises(InputError, match=r"holds '1\.234'.*thousands are not separated"):
        collect(open_source(path, decimal=","), 10)


def test_labels_with_a_decimal_comma_are_read_as_those_with_a_point(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a;y\n1,5;3,0\n2,5;\n")

    assert collect(open_source(path, label_column="y", decimal=","), 10)[1] == [3, None]
    path.write_text("a;y\n1,5;3,5\n")
    with pytest.raises(InputError, match="whole numbers or text"):
        collect(open_source(path, label_column="y", decimal=","), 10)


def test_an_array_has_no_decimal_sign(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no text"):
        open_source(write_npy(tmp_path)[0], decimal=",")


def test_what_comes_before_a_row_of_another_width_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,2\n3,4\n5,6,7\n")
    pieces = open_source(path).read(1)

    assert [next(pieces).features.tolist() for _ in range(2)] == [[[1.0, 2.0]], [[3.0, 4.0]]]
    with pytest.raises(InputError, match="row 2 has 3 columns"):
        next(pieces)


def test_an_empty_cell_is_told_with_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,2\n3,\n")

    with pytest.raises(InputError, match=r"row 1, column 1 \('b'\) is empty.*--skip-bad-rows"):
        collect(open_source(path), 10)


def test_where_only_bad_rows_are_left_a_resumed_run_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,2\nx,3\ny,4\n")

    assert list(open_source(path, skip_bad_rows=True).read(1, 1)) == []


def test_only_a_cell_with_a_point_is_told_of_points() -> None:
    assert "no decimal sign" in Numerals(",").advice("1.5", ";")
    assert Numerals(",").advice("x", ";") == ""


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        ("a, b, kind\n1, 2.5, x\n3, 4, y\n", "utf-8"),
        ('"a", "b", "kind"\n"1", "2.5", "x"\n"3", "4", "y"\n', "utf-8"),
        ("a |b |kind\n1 |2.5 |x\n3 |4 |y\n", "utf-8"),
        ("a\tb\tkind\r\n1\t2.5\tx\r\n3\t4\ty\r\n", "utf-16"),
        ("a;b;kind\n1;2.5;x\n3;4;y\n", "utf-16"),
    ],
)
def test_tables_as_many_tools_write_them(tmp_path: Path, text: str, encoding: str) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(text.encode(encoding))
    [rows] = open_source(path, label_column="kind").read(10)
    assert rows.features.tolist() == [[1, 2.5], [3, 4]]
    assert rows.labels == ["x", "y"]
    packed = tmp_path / "table.csv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    [again] = open_source(packed, label_column="kind").read(10)
    assert again.features.tolist() == rows.features.tolist()


def test_true_and_false_are_features_and_as_labels_they_are_text(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("a,b,kind\nTrue,2,True\nfalse,3,False\n TRUE ,4,True\n", "utf-8")
    [rows] = open_source(path, label_column="kind").read(10)
    assert rows.features.tolist() == [[1, 2], [0, 3], [1, 4]]
    assert rows.labels == ["True", "False", "True"]
    [some] = open_source(path, label_column="kind", skip_bad_rows=True).read(10)
    assert (len(some), some.skipped) == (3, 0)
    path.write_text("True,1.5\nFalse,2\n", "utf-8")  # and no names of columns
    [rows] = open_source(path).read(10)
    assert rows.features.tolist() == [[1, 1.5], [0, 2]]
    path.write_text("a,b\n1,yes\n", "utf-8")
    with pytest.raises(InputError, match="holds 'yes'"):
        list(open_source(path).read(10))


def test_columns_name_the_features_where_they_have_names(tmp_path: Path) -> None:
    def names(text: str, **options: Any) -> tuple[str, ...] | None:
        (tmp_path / "a.csv").write_text(text)
        return open_source(tmp_path / "a.csv", **options).feature_names

    table = "a , kind,b,id\n1,x,2,7\n3,y,4,8\n"
    found = names(table, label_column="kind", id_column="id")
    assert found == ("a", "b")
    assert names(table, columns=["id", "a"]) == ("a", "id")
    assert names(table, drop=["kind", "b"]) == ("a", "id")
    assert names("1,2\n3,4\n") is None
    assert names("0,1,kind\n3,4,x\n", label_column="kind") is None  # numbers are no names
    assert names("a,,c\n3,4,5\n") is None
    with pytest.raises(InputError, match="2 columns are called 'a'"):
        names("a,a\n3,4\n")
    encoding = TableEncoding([Numbers("b", 1.0, says_missing=True), Categories("kind", ("x",))])
    assert names(table, encoding=encoding) == ("b", "b is missing", "kind=x")
    np.save(tmp_path / "a.npy", X)
    assert open_source(tmp_path / "a.npy").feature_names is None
    for given, taken in ((["a", "b"], ("a", "b")), (["a"], None), (["a", ""], None)):
        np.savez(tmp_path / "a.npz", features=X, feature_names=np.array(given))
        assert open_source(tmp_path / "a.npz").feature_names == taken


def test_columns_of_a_parquet_file_name_the_features(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": [1.0, 2.0], "kind": [0, 1], "b": [3, 4]}), path)
    assert open_source(path, label_column="kind").feature_names == ("a", "b")
    encoding = TableEncoding([Numbers("b", 1.0), Categories("kind", ("0", "1"))])
    assert open_source(path, encoding=encoding).feature_names == ("b", "kind=0", "kind=1")
    pq.write_table(pa.table({"a": [[1.0, 2.0], [3.0, 4.0]]}), path)
    assert open_source(path).feature_names is None


@pytest.mark.parametrize("name", ["", "Unnamed: 0", "id"])
def test_a_column_that_counts_the_rows_is_refused_unless_it_is_named(
    tmp_path: Path, name: str
) -> None:
    path = tmp_path / "table.csv"
    lines = [f"{name},a,kind", *(f"{7 + row},{row % 3},x" for row in range(60))]
    path.write_text("\n".join(lines), "utf-8")
    with pytest.raises(InputError, match=r"column 0 .* counts the rows.*--drop 0"):
        open_source(path, label_column="kind")
    assert open_source(path, label_column="kind", drop=["0"]).n_features == 1
    assert open_source(path, label_column="kind", columns=["0", "a"]).n_features == 2
    assert open_source(path, label_column="kind", id_column="0").n_features == 1


@pytest.mark.parametrize("column", [range(29), [*range(40), 41], [0.5 * row for row in range(60)]])
def test_a_column_that_rises_otherwise_is_a_feature(tmp_path: Path, column: list[float]) -> None:
    path = tmp_path / "table.csv"
    path.write_text("\n".join(f"{value},1.5" for value in column), "utf-8")
    assert open_source(path).n_features == 2


@pytest.mark.parametrize("unit", [1, 1000, 10**6, 10**9])
def test_a_column_of_times_since_1970_is_refused_unless_it_is_named(
    tmp_path: Path, unit: int
) -> None:
    path = tmp_path / "table.csv"
    times = [unit * 1_789_000_000 + 5 * unit * (row // 3) for row in range(60)]
    lines = ["a,ts,kind", *(f"{row % 3},{time},x" for row, time in enumerate(times))]
    path.write_text("\n".join(lines), "utf-8")
    with pytest.raises(InputError, match=r"column 1 \('ts'\) holds times.*--drop 1") as refused:
        open_source(path, label_column="kind")
    assert refused.value.context["column"] == 1
    assert open_source(path, label_column="kind", drop=["ts"]).n_features == 1
    assert open_source(path, label_column="kind", columns=["a", "ts"]).n_features == 2
    assert open_source(path, label_column="kind", id_column="ts").n_features == 1


@pytest.mark.parametrize(
    "column",
    [
        [1_789_000_000 + row for row in range(0, 38, 2)],  # too few to say so
        [1_789_000_000] * 60,  # the same for all
        [1_789_000_000] * 30 + [1_799_000_000] * 30,  # a limit that was raised
        [1_789_000_000 + 2 * row for row in range(50)] + [1_789_000_001],  # falls
        [100_000_000 + 2 * row for row in range(60)],  # of 1973
        [4_200_000_000 + 2 * row for row in range(60)],  # of 2103
        [900_000_000 + 10_000_000 * row for row in range(60)],  # began in 1998
    ],
)
def test_a_column_that_is_like_times_is_a_feature(tmp_path: Path, column: list[int]) -> None:
    path = tmp_path / "table.csv"
    path.write_text("\n".join(f"{value},1.5" for value in column), "utf-8")
    assert open_source(path).n_features == 2


@pytest.mark.parametrize(
    ("name", "text", "row", "line"),
    [
        ("a.csv", "a,b\n1,2\n3,x\n", 1, 3),
        ("a.csv", "1,2\n3,x\n", 1, 2),
        ("a.csv", 'a,b\n\n1,2\n"3",\n', 1, 4),
        ("a.csv", "a,b\n1,2\n3\n", 1, 3),
        ("a.jsonl", '{"a": 1, "b": 2}\n\n{"a": 1, "b": "x"}\n', 1, 3),
    ],
)
def test_a_cell_that_is_no_number_is_told_with_its_line(
    tmp_path: Path, name: str, text: str, row: int, line: int
) -> None:
    path = tmp_path / name
    path.write_text(text, "utf-8")
    with pytest.raises(InputError, match=rf"row {row}.*\(line {line} of the file\)"):
        list(open_source(path).read(10))


def _twice(folder: Path, ending: str) -> Path:
    """A table two of whose columns are called level."""
    path, names = folder / f"a{ending}", ["level", "state", "level", "load"]
    rows = [[1.0, "ok", 2.0, 3.5], [2.0, "worn", 4.0, 0.5]]
    if ending == ".parquet":
        pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        columns = [list(column) for column in zip(*rows, strict=True)]
        parquet.write_table(pa.table(columns, names=names), path)
    else:
        mark = "\t" if ending == ".tsv" else ","
        path.write_text("\n".join(mark.join(map(str, row)) for row in [names, *rows]) + "\n")
    return path


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".parquet"])
def test_two_columns_of_one_name_are_refused_wherever_one_is_meant(
    tmp_path: Path, ending: str
) -> None:
    path = _twice(tmp_path, ending)
    encoding = TableEncoding((Numbers("level", 0.0, False), Numbers("load", 0.0, False)))
    told = r"2 columns are called 'level': 0 and 2, counted from 0"
    for options in (
        {"label_column": "state"},
        {"columns": ["level", "load"]},
        {"label_column": "level"},
        {"id_column": "level", "columns": ["load"]},
        {"drop": ["level", "state"]},
        {"encoding": encoding},
    ):
        with pytest.raises(InputError, match=told):
            open_source(path, **options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=told):
        LabelFile(path, "state", "level")
    # Where neither is meant, their names are nobody's business.
    assert open_source(path, label_column="state", columns=["load"]).n_features == 1


def test_a_column_of_two_of_one_name_may_be_chosen_by_its_index(tmp_path: Path) -> None:
    path = _twice(tmp_path, ".csv")
    assert collect(open_source(path, columns=["2", "3"]), 9)[0] == [[2.0, 3.5], [4.0, 0.5]]
    assert open_source(path, label_column="state", drop=["0"]).feature_names == ("level", "load")
    rows = "1,red,1\n2,blue,1\n"  # whose first line is a sample, and names nothing
    (tmp_path / "b.csv").write_text(rows)
    assert open_source(tmp_path / "b.csv", label_column="1").n_features == 2

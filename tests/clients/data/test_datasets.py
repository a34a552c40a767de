"""Tests for clients.data.datasets and clients.data.download."""

from __future__ import annotations

import gzip
import hashlib
import struct
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from clients.data import download as downloads
from clients.data.datasets import Dataset, known_datasets, load_dataset, stratified
from clients.data.download import download
from clients.data.encoding import Categories, Numbers, TableEncoding
from clients.data.table_reading import TableReading
from clients.data.tasks import SLT
from clients.http.errors import InputError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder; the cache is elsewhere and empty."""
    monkeypatch.setenv("GMR_DATASETS", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def test_digits_need_no_file_and_no_network(folder: Path) -> None:
    digits = load_dataset("digits")
    assert digits.train_x.shape == (1437, 64)
    assert digits.test_x.shape == (360, 64)
    assert digits.train_x.dtype == np.uint8
    assert (digits.train_x.min(), digits.train_x.max()) == (0, 255)
    assert digits.image_shape == (8, 8)
    assert digits.classes == tuple(range(10))


def test_digits_are_split_the_same_way_every_time_and_without_overlap(folder: Path) -> None:
    first, second = load_dataset("digits"), load_dataset("digits")
    assert (first.test_x == second.test_x).all()
    assert (first.test_y == second.test_y).all()
    everything = np.concatenate([first.train_x, first.test_x])
    # 1,797 different images: had one been in both parts, another would be missing.
    assert len(np.unique(everything, axis=0)) == 1797


def test_the_split_holds_every_class_in_proportion() -> None:
    labels = np.repeat([0, 1, 2], [70, 20, 10])
    chosen = stratified(labels, 20, seed=0)
    assert np.bincount(labels[chosen]).tolist() == [14, 4, 2]
    assert len(set(chosen.tolist())) == 20
    assert (stratified(labels, 20, seed=0) == chosen).all()
    assert (stratified(labels, 20, seed=1) != chosen).any()


def test_images_of_an_archive_become_rows(folder: Path) -> None:
    x = np.arange(4 * 6, dtype=np.uint8).reshape(4, 2, 3)
    y = np.array([0, 1, 0, 1], dtype=np.uint8)
    np.savez(folder / "tiny.npz", train_x=x, train_y=y, test_x=x[:2], test_y=y[:2])
    tiny = load_dataset("tiny")
    assert tiny.train_x.shape == (4, 6)
    assert tiny.train_x.dtype == np.uint8
    assert tiny.train_y.dtype == np.int64
    assert tiny.image_shape == (2, 3)
    assert tiny.has_test_set


def test_a_stream_has_no_test_set_and_says_where_it_drifts(folder: Path) -> None:
    np.savez(
        folder / "s.npz",
        all_x=np.zeros((9, 3), np.float32),
        all_y=np.arange(9) % 3,
        drift_points=np.array([3, 6]),
        class_names=np.array(["a", "b", "c"]),
    )
    stream = load_dataset("s")
    assert not stream.has_test_set
    assert stream.test_x.shape == (0, 3)
    assert stream.drift_points == (3, 6)
    assert stream.class_names == ("a", "b", "c")
    assert stream.image_shape is None


def test_a_test_set_can_be_split_off_a_stream(folder: Path) -> None:
    np.savez(folder / "s.npz", all_x=np.zeros((9, 3), np.float32), all_y=np.arange(9) % 3)
    held_out = load_dataset("s").split(3)
    assert np.bincount(held_out.test_y).tolist() == [1, 1, 1]
    assert len(held_out.train_x) == 6


def test_columns_that_give_the_answer_away_are_left_out(folder: Path) -> None:
    names = ["date", "day", "nswprice", "vicprice"]
    x = np.tile(np.arange(4, dtype=np.float32), (5, 1))
    np.savez(folder / "stream_elec2.npz", all_x=x, all_y=np.zeros(5, int), feature_names=names)
    assert load_dataset("stream_elec2").train_x[0].tolist() == [1.0, 3.0]


def test_a_folder_of_images_is_a_data_set(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        path = folder / "photos" / f"{number % 2}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.full((2, 8), number, np.uint8)).save(path)
    monkeypatch.chdir(folder)
    for name in ("photos/", "./photos/", str(folder / "photos")):
        found = load_dataset(name)
        assert (found.name, found.image_shape, found.n_features) == ("photos", (2, 8), 16)
        assert found.train_x[:, 0].tolist() == [0, 2, 1, 3]
        assert found.train_y.tolist() == [0, 0, 1, 1]


def test_any_labelled_file_is_a_data_set(folder: Path) -> None:
    (folder / "flowers.csv").write_text("a,b,kind\n1,2,rose\n3,4,tulip\n")
    flowers = load_dataset(folder / "flowers.csv")
    assert flowers.train_x.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert flowers.classes == ("rose", "tulip")


def test_the_columns_of_a_table_are_chosen_as_for_sending_it(folder: Path) -> None:
    path = folder / "pumps.csv"
    rows = ["p1,ok,eco,1,2", "p2,worn,boost,,4", "p3,ok,eco,5,x"]
    path.write_text("\n".join(["id,state,mode,a,b", *rows]) + "\n")
    reading = TableReading(
        label_column="state", id_column="id", drop=("mode", "a"), skip_bad_rows=True
    )
    pumps = load_dataset(path, reading)
    assert pumps.train_x.tolist() == [[2.0], [4.0]]
    assert pumps.train_y.tolist() == ["ok", "worn"]
    assert pumps.remarks == (f"1 row of {path} could not be used, left out.",)
    assert pumps.split(1).remarks == pumps.remarks
    encoding = TableEncoding([Numbers("a", 3.0), Categories("mode", ("eco", "dry"))])
    pumps = load_dataset(path, TableReading(label_column="1", encoding=encoding))
    assert pumps.train_x.tolist() == [[1.0, 1.0, 0.0], [3.0, 0.0, 0.0], [5.0, 1.0, 0.0]]
    assert [remark.split(":")[0] for remark in pumps.remarks] == ["mode", "a"]
    for name in ("digits", str(folder / "x.npz")):
        with pytest.raises(InputError, match="is a data set of arrays"):
            load_dataset(name, reading)


def test_objects_are_never_unpickled(folder: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return (Path(folder / "exploded").touch, ())

    np.savez(folder / "bomb.npz", train_x=np.array([Bomb()], dtype=object), train_y=[0])
    with pytest.raises(InputError, match="Python objects"):
        load_dataset("bomb")
    assert not (folder / "exploded").exists()


def test_an_unknown_name_is_answered_with_the_known_ones(folder: Path) -> None:
    np.savez(folder / "mine.npz", all_x=np.zeros((1, 1)), all_y=[0])
    assert "mine" in known_datasets()
    with pytest.raises(InputError, match="mine") as error:
        load_dataset("mnie")
    assert "Did you mean mine?" in str(error.value)
    assert "GMR_DATASETS" in str(error.value)


@pytest.mark.parametrize(
    ("arrays", "complaint"),
    [
        ({"train_x": np.zeros((3, 2)), "train_y": np.zeros(2, int)}, "3 samples but 2 labels"),
        ({"train_x": np.zeros((3, 2)), "train_y": np.zeros((3, 2), int)}, "argmax"),
        ({"train_x": np.array([[np.nan]]), "train_y": np.zeros(1, int)}, "row 0, column 0 is nan"),
        ({"something": np.zeros(3)}, "holds the arrays something"),
    ],
)
def test_an_archive_that_will_not_do_is_refused_with_the_reason(
    folder: Path, arrays: dict[str, Any], complaint: str
) -> None:
    np.savez(folder / "odd.npz", **arrays)
    with pytest.raises(InputError, match=complaint):
        load_dataset("odd")


# Downloads, from a publisher of our own on loopback


def idx(array: np.ndarray[Any, Any]) -> bytes:
    header = struct.pack(">HBB", 0, 8, array.ndim) + struct.pack(f">{array.ndim}I", *array.shape)
    return gzip.compress(header + array.astype(np.uint8).tobytes(), mtime=0)


FILES = {
    "train_x": idx(np.arange(12).reshape(3, 2, 2)),
    "train_y": idx(np.array([0, 1, 2])),
    "test_x": idx(np.arange(4).reshape(1, 2, 2)),
    "test_y": idx(np.array([1])),
}


@pytest.fixture
def publisher(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, bytes]]:
    """What the second mirror serves, by name; the first mirror always fails."""
    served = {f"/good/{downloads._FILES[part]}": content for part, content in FILES.items()}

    class Mirrors(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = served.get(self.path)
            self.send_response(500 if content is None else 200)
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *args: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Mirrors) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        sums = {part: hashlib.md5(content).hexdigest() for part, content in FILES.items()}
        mirrors = (f"{address}/bad/", f"{address}/good/")
        monkeypatch.setitem(downloads.PUBLISHED, "mnist", (mirrors, sums))
        yield served
        server.shutdown()


def test_a_published_set_comes_from_the_first_mirror_that_has_it(
    folder: Path, publisher: dict[str, bytes]
) -> None:
    mnist = load_dataset("mnist")
    assert mnist.train_x.tolist() == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
    assert mnist.test_y.tolist() == [1]
    assert mnist.image_shape == (2, 2)
    publisher.clear()  # the second time it is in the cache
    assert load_dataset("mnist").train_y.tolist() == [0, 1, 2]


def test_a_file_with_another_checksum_is_refused_and_nothing_is_left(
    folder: Path, publisher: dict[str, bytes]
) -> None:
    publisher["/good/t10k-labels-idx1-ubyte.gz"] = idx(np.array([2]))
    with pytest.raises(InputError, match=r"checksum .*, expected"):
        download("mnist", folder / "cache")
    assert list((folder / "cache").iterdir()) == []


def test_without_a_network_the_remedies_are_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = ("http://127.0.0.1:9/",)  # the discard port: nothing listens
    monkeypatch.setitem(downloads.PUBLISHED, "fashion_mnist", (closed, dict.fromkeys(FILES, "")))
    with pytest.raises(InputError, match=r"set GMR_DATASETS .* or use the data set `digits`"):
        load_dataset("fashion_mnist")


# Which part of it is streamed ---------------------------------------------------------


def a_dataset(n: int = 60) -> Dataset:
    rng = np.random.default_rng(0)
    x = rng.uniform(-5, 5, size=(n, 4)).astype(np.float32)
    y = np.arange(n) % 3
    return Dataset("made up", x, y, x[:9], y[:9])


def test_a_data_set_without_test_samples_gives_a_fifth_of_each_class():
    dataset = a_dataset()
    stream = Dataset(
        "stream", dataset.train_x, dataset.train_y, dataset.train_x[:0], dataset.train_y[:0]
    )
    split = stream.with_test_set()
    assert np.bincount(split.test_y).tolist() == [4, 4, 4]
    assert len(split.train_y) == 48
    assert dataset.with_test_set() is dataset


def test_a_limit_holds_for_every_sub_task():
    slt = SLT.parse("0/1,2")
    cut = a_dataset().limited(slt, 7, seed=0)
    assert [len(slt.rows(cut.train_y, index)) for index in (0, 1)] == [7, 7]
    again = a_dataset().limited(slt, 7, seed=0)
    assert np.array_equal(cut.train_x, again.train_x)
    assert not np.array_equal(cut.train_x, a_dataset().limited(slt, 7, seed=1).train_x)

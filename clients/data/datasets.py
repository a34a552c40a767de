"""Named data sets -> arrays, from a folder, from a dependency, or from their publishers.

Where a set is looked for, in this order:

1. `digits` comes with scikit-learn and needs nothing.
2. The folder `GMR_DATASETS`, or `../shared/datasets` where that exists: `NAME.npz`.
3. The cache, `~/.cache/gmr-stream` (or below `XDG_CACHE_HOME`).
4. `mnist` and `fashion_mnist` are downloaded from their publishers into the cache.

An archive holds `train_x`, `train_y`, `test_x`, `test_y`, or, for a stream without a
test set, `all_x` and `all_y`; optional are `class_names`, `feature_names` and
`drift_points`. Nothing is ever unpickled.
"""

from __future__ import annotations

import difflib
import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clients.data.download import PUBLISHED, download
from clients.data.files import open_source, read_file, read_source
from clients.data.formats.arrays import load_npz
from clients.data.formats.image import ImageSource
from clients.data.formats.rows import as_features, check_count
from clients.data.table_reading import AS_IT_IS, TableReading
from clients.data.tasks import SLT
from clients.extras import naming_the_extra
from clients.http.errors import InputError
from core.counted import counted

TEST_SHARE = 0.2
"""Share held out of a data set that brings no test set."""

# The label says whether the price will rise, so the price gives it away, and the date is
# not a feature but the order of the stream.
_LEFT_OUT = {"stream_elec2": ("date", "nswprice")}

_NONE: NDArray[Any] = np.array([])

_CLASS_NAMES = {
    "mnist": tuple("0123456789"),
    "fashion_mnist": (
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    ),
}


@dataclass(frozen=True)
class Dataset:
    """Samples and labels, cut into a training and a test part.

    Attributes:
        name: What it was asked for as.
        train_x: Samples, with shape (N, D), uint8 (k stands for k/255) or float32.
        train_y: Labels, with shape (N,), int64 or text.
        test_x: Samples, with shape (M, D); M is 0 for a stream without a test set.
        test_y: Labels, with shape (M,).
        image_shape: (H, W) where samples are images, else None.
        class_names: Name of class 0, 1, ..., where they have names.
        drift_points: Samples before which the stream is known to change.
        remarks: What its features do not tell of a table, for people.
    """

    name: str
    train_x: NDArray[Any]
    train_y: NDArray[Any]
    test_x: NDArray[Any]
    test_y: NDArray[Any]
    image_shape: tuple[int, int] | None = None
    class_names: tuple[str, ...] = ()
    drift_points: tuple[int, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def n_features(self) -> int:
        """D."""
        return int(self.train_x.shape[1])

    @property
    def classes(self) -> tuple[int | str, ...]:
        """Labels that occur, sorted."""
        return tuple(np.unique(np.concatenate([self.train_y, self.test_y])).tolist())

    @property
    def has_test_set(self) -> bool:
        """False for a stream, which is tested on itself: first score, then learn."""
        return len(self.test_x) > 0

    def split(self, n_test: int, seed: int = 0) -> Dataset:
        """The same samples, with `n_test` of the training part moved to the test part.

        Every class gives its share, to within one sample. The choice depends only on the
        labels and the seed.

        Raises:
            InputError: there are not that many samples.
        """
        if not 0 < n_test < len(self.train_y):
            raise InputError(
                f"{n_test} test samples were asked for out of the {len(self.train_y)} of "
                f"{self.name}. Expected at least one on either side."
            )
        chosen = stratified(self.train_y, n_test, seed)
        kept = np.setdiff1d(np.arange(len(self.train_y)), chosen)
        return replace(
            self,
            train_x=self.train_x[kept],
            train_y=self.train_y[kept],
            test_x=np.concatenate([self.test_x, self.train_x[chosen]]),
            test_y=np.concatenate([self.test_y, self.train_y[chosen]]),
        )

    def with_test_set(self) -> Dataset:
        """The same, or with a fifth of each class held out where there is no test set."""
        if self.has_test_set:
            return self
        return self.split(max(1, round(TEST_SHARE * len(self.train_y))), seed=0)

    def limited(self, slt: SLT, most: int | None, seed: int) -> Dataset:
        """The same with at most `most` training samples per sub-task, chosen at random."""
        if most is None:
            return self
        chosen = [
            np.random.default_rng([seed, index, most]).permutation(slt.rows(self.train_y, index))
            for index in range(len(slt.sub_tasks))
        ]
        rows = np.sort(np.concatenate([part[:most] for part in chosen]))
        return replace(self, train_x=self.train_x[rows], train_y=self.train_y[rows])


def load_dataset(source: str | Path, reading: TableReading = AS_IT_IS) -> Dataset:
    """A data set by name, or any labelled file that `clients.data.files` reads.

    Arguments:
        source: `digits`, `mnist`, `fashion_mnist`, `devanagari`, the name of any `.npz` in
            the data folder, or the path of a file or of a folder of images.
        reading: How a table is read.

    Raises:
        InputError: it is nowhere to be found, or cannot be read; the message names the
            remedies.

    Example:
        >>> digits = load_dataset("digits")
        >>> digits.train_x.shape, digits.test_x.shape, digits.image_shape
        ((1437, 64), (360, 64), (8, 8))
    """
    name = str(source)
    path = Path(name)
    is_path = bool(path.suffix) or name != path.name
    if reading != AS_IT_IS and (not is_path or path.suffix == ".npz"):
        raise InputError(
            f"It was said how the columns of {name} are read, but it is a data set of arrays. "
            f"Expected the path of a table (.csv, .tsv, .jsonl, .parquet). Leave out "
            f"--label-column, --id-column, --columns, --drop, --encoding, --decimal and "
            f"--skip-bad-rows."
        )
    if name == "digits":
        return _digits()
    if is_path:
        return _from_file(path, reading)
    for folder in data_folders():
        if (folder / f"{name}.npz").is_file():
            return _from_archive(name, folder / f"{name}.npz")
    if name in PUBLISHED:
        return _from_archive(name, download(name, cache_folder()))
    raise _not_found(name)


def known_datasets() -> tuple[str, ...]:
    """Names that can be loaded here: what always can, and what the folders hold."""
    found = {path.stem for folder in data_folders() for path in folder.glob("*.npz")}
    return ("digits", *sorted(found | set(PUBLISHED)))


def data_folders() -> list[Path]:
    """Folders that are looked through, existing or not, in order."""
    if chosen := os.environ.get("GMR_DATASETS"):
        folders = [Path(chosen).expanduser()]
    else:
        roots = (Path.cwd(), Path(__file__).resolve().parents[2])
        folders = [root.parent / "shared" / "datasets" for root in roots]
    return list(dict.fromkeys([*folders, cache_folder()]))


def cache_folder() -> Path:
    """Where downloads are kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "gmr-stream"


def stratified(labels: NDArray[Any], n: int, seed: int) -> NDArray[np.int64]:
    """`n` indices, sorted, that hold every class in proportion, to within one sample.

    Arguments:
        labels: Labels, with shape (N,).
        n: How many, at most N.
        seed: Of the choice within each class.

    Example:
        >>> chosen = stratified(np.array([0] * 6 + [1] * 3), 3, seed=0)
        >>> np.sort(np.array([0] * 6 + [1] * 3)[chosen]).tolist()
        [0, 0, 1]
    """
    classes, counts = np.unique(labels, return_counts=True)
    exact = counts * n / len(labels)
    quota = np.floor(exact).astype(int)
    # Largest remainders get the samples that rounding down left over.
    quota[np.argsort(quota - exact, kind="stable")[: n - quota.sum()]] += 1
    rng = np.random.default_rng(seed)
    parts = [
        rng.permutation(np.flatnonzero(labels == label))[:k]
        for label, k in zip(classes, quota, strict=True)
    ]
    return np.sort(np.concatenate(parts))


def _digits() -> Dataset:
    # Imported here: it takes a second, and only this data set needs it.
    with naming_the_extra("The data set digits", "engine"):
        from sklearn.datasets import load_digits

    digits = load_digits()
    # Grey levels run from 0 to 16; as uint8 a sample is 64 bytes on the wire.
    x = np.rint(digits.data * (255 / 16)).astype(np.uint8)
    y = digits.target.astype(np.int64)
    whole = Dataset("digits", x, y, x[:0], y[:0], (8, 8), tuple("0123456789"))
    return whole.split(360, seed=0)


def _from_archive(name: str, path: Path) -> Dataset:
    arrays = load_npz(path)
    if "all_x" in arrays and "all_y" in arrays:
        train = _part(arrays, "all", path)
        test = train[0][:0], train[1][:0]
    elif "train_x" in arrays and "train_y" in arrays:
        train = _part(arrays, "train", path)
        has_test = "test_x" in arrays and "test_y" in arrays
        test = _part(arrays, "test", path) if has_test else (train[0][:0], train[1][:0])
    else:
        x, y = read_file(path)
        if y is None:
            raise _unlabelled(path)
        train, test = (x, y), (x[:0], y[:0])
    features = arrays.get("train_x", arrays.get("all_x"))
    shape = features.shape[1:] if features is not None and features.ndim == 3 else None
    dataset = Dataset(
        name,
        *train,
        *test,
        image_shape=shape if shape is not None else _square(train[0]),
        class_names=tuple(arrays.get("class_names", _NONE).tolist()) or _CLASS_NAMES.get(name, ()),
        drift_points=tuple(arrays.get("drift_points", _NONE).tolist()),
    )
    if left_out := _LEFT_OUT.get(name):
        columns = arrays["feature_names"].tolist()
        kept = [i for i, column in enumerate(columns) if column not in left_out]
        dataset = replace(dataset, train_x=dataset.train_x[:, kept], test_x=dataset.test_x[:, kept])
    return dataset


def _part(
    arrays: dict[str, NDArray[Any]], part: str, path: Path
) -> tuple[NDArray[Any], NDArray[Any]]:
    x, y = arrays[f"{part}_x"], arrays[f"{part}_y"]
    check_count(len(x), len(y), path=path)
    if y.ndim != 1 or y.dtype.kind not in "iubU":
        raise InputError(
            f"{path}: {part}_y has shape {y.shape} and type {y.dtype}; expected (N,) integers or "
            f"text. Turn one-hot rows into integers with argmax."
        )
    return as_features(x, path=path), y if y.dtype.kind == "U" else y.astype(np.int64)


def _from_file(path: Path, reading: TableReading) -> Dataset:
    if path.suffix == ".npz" and path.is_file():
        return _from_archive(path.stem, path)
    # By custom the last column of a table is the class.
    table = path.name.lower().removesuffix(".gz").endswith((".csv", ".tsv", ".parquet"))
    if table and reading.label_column is None:
        reading = replace(reading, label_column="-1")
    source = open_source(path, **vars(reading))
    remarks = list[str]()

    def left_out(n: int) -> None:
        if n:
            remarks.append(f"{counted(n, 'row')} of {path} could not be used, left out.")

    x, y = read_source(source, left_out)
    if y is None:
        raise _unlabelled(path)
    if reading.encoding is not None:
        remarks += reading.encoding.remarks
    shape = _square(x)
    if isinstance(source, ImageSource):
        shape = source.image_shape if len(source.image_shape) == 2 else None
    return Dataset(path.stem, x, y, x[:0], y[:0], shape, remarks=tuple(remarks))


def _square(features: NDArray[Any]) -> tuple[int, int] | None:
    """The image shape that rows of uint8 suggest: pixels of a square."""
    side = math.isqrt(features.shape[1])
    return (side, side) if features.dtype == np.uint8 and side * side == features.shape[1] else None


def _unlabelled(path: Path) -> InputError:
    return InputError(
        f"{path} holds no labels, and a data set needs them. Save integers or text as `labels` "
        f"(or train_y, all_y) beside the samples."
    )


def _not_found(name: str) -> InputError:
    folders = ", ".join(map(str, data_folders()))
    known = known_datasets()
    close = difflib.get_close_matches(name, known, n=1)
    extra = f" Did you mean {close[0]}?" if close else ""
    if name == "devanagari":
        extra = (
            " The Devanagari Handwritten Character Dataset has no stable public address: convert "
            "it to devanagari.npz (train_x, test_x uint8 [N, 32, 32]; train_y, test_y) yourself."
        )
    return InputError(
        f"There is no data set {name!r} in {folders}. Known here: "
        f"{', '.join(known)}. Put {name}.npz into one of these folders, set "
        f"GMR_DATASETS to the folder that holds it, or give the path of a file.{extra}"
    )

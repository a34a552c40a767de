"""Files of samples -> rows of features and labels, whatever the format.

`open_source` finds the format; `clients/data/formats/` holds one module for each and
the rules that all of them keep (`formats/rows.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from clients.data.encoding import TableEncoding
from clients.data.formats.arrays import open_npy, open_npz
from clients.data.formats.idx import IdxSource
from clients.data.formats.image import (
    AS_THEY_ARE,
    PATH_COLUMN,
    ImageForm,
    ImageSource,
    is_image,
)
from clients.data.formats.numerals import Numerals
from clients.data.formats.parquet import ParquetSource
from clients.data.formats.rows import Label, Labels, Rows, Source
from clients.data.formats.text_source import TABLES, TextSource
from clients.http.errors import InputError
from clients.rounding import Rounding

__all__ = ["Label", "Labels", "Rows", "Source", "open_source", "read_file"]

FORMATS = ".npz, .npy, .csv, .tsv, .jsonl, .parquet or IDX (-ubyte, .idx), text and IDX also as .gz"
_KINDS_OF_TABLES: Final = (*TABLES, "parquet")


def open_source(
    path: str | Path,
    *,
    label_column: str | None = None,
    labels: str | Path | None = None,
    id_column: str | None = None,
    columns: Sequence[str] | None = None,
    drop: Sequence[str] = (),
    skip_bad_rows: bool = False,
    decimal: str = ".",
    encoding: TableEncoding | None = None,
    images: ImageForm = AS_THEY_ARE,
    shuffle: int | None = None,
    like: TextSource | None = None,
    first_row: int = 0,
    goes_on: bool = False,
    rounding: Rounding | None = None,
) -> Source:
    """Open a file of samples.

    Arguments:
        path: The file. Its format is known by its ending, or else by its first bytes.
        label_column: Where the labels are: a column's name or index (csv, parquet), an
            index (npy), or the name of an array (npz). An `.npz` with arrays of the usual
            names, an IDX file with its labels beside it, and images in a folder for each class
            need none.
        labels: A file of its own that holds the labels (npy, npz, IDX).
        id_column: Where the ids of samples are: a column's name or index (csv, parquet), the
            name of an array (npz), or "path" (images).
        columns: The columns of a table (csv, parquet) that are features, by name or index, in
            the file's order; None: all but those of labels and ids.
        drop: Columns of a table that are none.
        skip_bad_rows: Leave out the rows of a csv file, or the images, that cannot be used, in
            place of an error.
        decimal: The sign before the decimals of a csv file's numbers, "." or ",".
        encoding: Of a table with categories or missing numbers; it says which columns are features.
        images: What images are made into.
        shuffle: Seed of a random order of images; None: by path.
        like: Of lines that go on (`live.py`): what came before, with the same columns.
        first_row: Number of the first row then.
        goes_on: Lines follow that go on.
        rounding: Looks at numbers of tables and arrays before they are float32.

    Raises:
        InputError: there is no such file, it is of no known format, or it does not have
            the column.
    """
    path = Path(path)
    labels = None if labels is None else Path(labels)
    for file in (path, labels):
        if file is not None and not file.is_file() and (file is labels or not file.is_dir()):
            what = "is a folder, not a file" if file.is_dir() else "does not exist"
            raise InputError(
                f"{file} {what}. Expected a file: {FORMATS}; an image, or a folder of images. "
                f"Check the path."
            )
    kind = kind_of(path)
    if id_column is not None and (kind, id_column) != ("image", PATH_COLUMN):
        check_has_ids(path, kind)
    if encoding is not None and (columns is not None or drop):
        raise InputError(
            "An encoding says which columns are features, and --columns or --drop say so as well. "
            "Leave these out, or make the encoding anew with them."
        )
    if (columns is not None or drop or encoding is not None) and kind not in _KINDS_OF_TABLES:
        raise InputError(
            f"Columns of {path} were chosen, or an encoding was named, but it is an array or image "
            f"({kind}) and no table. Expected a .csv, .tsv, .jsonl or .parquet file. Choose the "
            f"features before the array is saved."
        )
    if skip_bad_rows and kind not in (*TABLES, "image"):
        raise InputError(
            f"Rows of {path} that cannot be used were to be left out, but it is {kind} and "
            f"no text. Expected a .csv, .tsv or .jsonl file, or images. Leave out --skip-bad-rows."
        )
    if (images != AS_THEY_ARE or shuffle is not None) and kind != "image":
        raise InputError(
            f"A size, grey levels or another order were asked for {path}, but it is {kind} and no "
            f"image. Expected an image, or a folder of images. Leave out --size, --grey and "
            f"--shuffle."
        )
    if decimal != "." and kind != "csv":
        raise InputError(
            f"A decimal sign was named for {path}, but it is {kind} and no text table, so that its "
            f"numbers have none. Leave out --decimal."
        )
    if labels is not None and (kind in _KINDS_OF_TABLES or label_column is not None):
        raise InputError(
            f"Labels were asked for both in {labels} and in a column of {path}, or {path} is a "
            f"table, which holds its labels itself. Give either a file of labels (npy, npz, IDX) "
            f"or --label-column."
        )
    if kind == "image":
        if label_column is not None or labels is not None:
            raise InputError(
                f"Labels of {path} were named, but images have those of the folders in it that "
                f"they lie in. Put the images of each class into a folder of its own, and leave "
                f"out --label-column and --labels."
            )
        return ImageSource(
            path, images, with_ids=id_column is not None, skip_bad=skip_bad_rows, shuffle=shuffle
        )
    if kind == "npz":
        return open_npz(path, label_column, labels, id_column, rounding)
    if kind == "npy":
        return open_npy(path, label_column, labels, rounding)
    if kind in TABLES:
        return TextSource(
            path,
            label_column,
            id_column,
            columns,
            drop,
            skip_bad_rows,
            Numerals(decimal),
            encoding,
            kind,
            like,
            first_row,
            goes_on,
            rounding,
        )
    if kind == "parquet":
        return ParquetSource(path, label_column, id_column, columns, drop, encoding, rounding)
    if label_column is not None:
        raise InputError(
            f"{path} is an IDX file, which has no columns. Name the file of its labels with "
            f"--labels instead."
        )
    return IdxSource(path, labels)


def read_file(
    path: str | Path, *, label_column: str | None = None, labels: str | Path | None = None
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """The whole file at once: features (N, D) and labels (N,), or None without labels.

    Labels are int64 when all are integers, else text; a missing label is an error here.

    Raises:
        InputError: as `open_source`, or a label is missing.
    """
    return read_source(open_source(path, label_column=label_column, labels=labels))


def read_source(
    source: Source, skipped: Callable[[int], None] | None = None
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """All samples of an open file at once, as `read_file` gives them.

    Arguments:
        source: The file.
        skipped: Is told how many rows were left out.

    Raises:
        InputError: It cannot be read, or a label is missing.
    """
    path, parts = source.path, list(source.read(65_536))
    if not parts:
        raise InputError(f"{path} holds no samples. Check the file.")
    if skipped is not None:
        skipped(sum(part.skipped for part in parts))
    features = np.concatenate([part.features.reshape(len(part), -1) for part in parts])
    if not source.labelled:
        return features, None
    plain: list[Label | None] = []
    for part in parts:
        found = part.labels
        plain += found.tolist() if isinstance(found, np.ndarray) else found or []
    if None in plain:
        raise InputError(
            f"{path}: the sample at row {plain.index(None)} has no label; expected one for every "
            f"sample here. Drop the rows without."
        )
    if all(isinstance(label, int) for label in plain):
        return features, np.array(plain, dtype=np.int64)
    return features, np.array([str(label) for label in plain])


def check_has_ids(path: Path, kind: str) -> None:
    """Raise `InputError` for a format that has no room for ids."""
    if kind in ("npy", "idx", "image"):
        raise InputError(
            f"{path} is one array or image ({kind}), which has no room for ids; expected a column "
            f"of a .csv or .parquet file, or an array of an .npz. Save samples and ids as two "
            f"arrays of an .npz. Images have their paths as ids: --id-column {PATH_COLUMN}."
        )


def kind_of(path: Path) -> str:
    """The format of what exists: "npz", "npy", "csv", "parquet", "idx" or "image".

    Arguments:
        path: A file, or a folder, which holds images.

    Raises:
        InputError: it is of none.
    """
    name = path.name.lower()
    if path.is_dir() or is_image(path.name):
        return "image"
    plain = name.removesuffix(".gz")
    if name.endswith((".npz", ".npy", ".parquet")):
        return name.rsplit(".", 1)[1]
    if plain.endswith((".csv", ".tsv")):
        return "csv"
    if plain.endswith((".jsonl", ".ndjson")):
        return "jsonl"
    if plain.endswith(("-ubyte", ".idx")) or "idx1" in plain or "idx3" in plain:
        return "idx"
    with path.open("rb") as file:
        magic = file.read(6)
    for prefix, kind in (
        (b"\x93NUMPY", "npy"),
        (b"PK", "npz"),
        (b"PAR1", "parquet"),
        (b"\x00\x00", "idx"),
        (b"\x89PNG", "image"),
        (b"\xff\xd8\xff", "image"),
    ):
        if magic.startswith(prefix):
            return kind
    raise InputError(
        f"{path} is of no known format (it starts with {magic!r}). Expected {FORMATS}; or an "
        f"image. Convert it, or give it the ending of what it is."
    )

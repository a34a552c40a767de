"""NumPy's own formats: `.npy`, read in pieces through a memory map, and `.npz`.

Pickled objects are never loaded: they would run code of whoever wrote the file.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clients.data.formats.ids import as_ids
from clients.data.formats.rows import (
    READ_IDS,
    Rows,
    as_features,
    as_labels,
    check_apart,
    check_count,
    names_of_columns,
)
from clients.http.errors import InputError
from clients.rounding import Rounding
from service.wire import SampleId

SAMPLE_ARRAYS = ("features", "train_x", "all_x", "x", "X", "data", "images", "arr_0")
"""Names under which the samples of an archive are looked for, in this order."""

_LABELS_OF = {
    "features": ("labels",),
    "train_x": ("train_y",),
    "all_x": ("all_y",),
    "x": ("y", "labels"),
    "X": ("y", "Y", "labels"),
    "data": ("target", "labels", "y"),
    "images": ("labels", "y"),
    "arr_0": ("arr_1",),
}


class ArraySource:
    """Samples held by an array, and labels by another or by one of its columns."""

    def __init__(
        self,
        path: Path,
        kind: str,
        features: NDArray[Any],
        labels: NDArray[Any] | None,
        label_column: int | None = None,
        ids: NDArray[Any] | None = None,
        feature_names: NDArray[Any] | None = None,
        rounding: Rounding | None = None,
    ) -> None:
        if features.ndim < 2 or 0 in features.shape:
            raise InputError(
                f"{path} holds samples of shape {features.shape}; expected (N, D) or (N, H, W) "
                f"with at least one sample and one feature. Save one row per sample."
            )
        self.path = path
        self.kind = kind
        self._rounding = rounding
        self._column = None
        if label_column is not None:
            self._column = _column(label_column, features, path)
        if labels is not None:
            if labels.ndim != 1:
                raise InputError(
                    f"{path} holds labels of shape {labels.shape}; expected (N,), one integer or "
                    f"text per sample. Turn one-hot rows into integers with argmax."
                )
            check_count(len(features), len(labels), path=path)
        if ids is not None and ids.shape != (len(features),):
            raise InputError(
                f"{path} holds ids of shape {ids.shape} for {len(features)} samples; expected "
                f"({len(features)},), one integer or text per sample. Check --id-column."
            )
        self._features = features
        self._labels = labels
        self._ids = ids
        self.n_samples: int | None = len(features)
        width = int(np.prod(features.shape[1:]))
        self.n_features = width - (self._column is not None)
        self.feature_names: tuple[str, ...] | None = None
        if feature_names is not None and feature_names.shape == (self.n_features,):
            self.feature_names = names_of_columns([*map(str, feature_names.tolist())])
        self.labelled = labels is not None or self._column is not None

    def read(self, size: int, start: int = 0) -> Iterator[Rows]:
        for first in range(start, len(self._features), size):
            # Copied out of the map: a row is then read from disk exactly once.
            values = np.array(self._features[first : first + size])
            labels = None
            if self._column is not None:
                labels = as_labels(values[:, self._column], path=self.path, start=first)
                values = np.delete(values, self._column, axis=1)
            elif self._labels is not None:
                raw = self._labels[first : first + size]
                labels = as_labels(raw, path=self.path, start=first)
            ids = None
            if self._ids is not None:
                part = self._ids[first : first + size].tolist()
                ids = as_ids(part, path=self.path, start=first)
            features = as_features(
                values,
                path=self.path,
                start=first,
                rounding=self._rounding,
                names=self.feature_names,
            )
            if values.ndim in (3, 4):
                # Their shape declares them as images, and says how they are drawn.
                features = features.reshape(values.shape)
            yield Rows(first, features, labels, ids)

    def read_ids(self) -> Iterator[list[SampleId]]:
        if self._ids is None:
            return
        for first in range(0, len(self._ids), READ_IDS):
            part = self._ids[first : first + READ_IDS].tolist()
            yield as_ids(part, path=self.path, start=first)


def open_npy(
    path: Path,
    label_column: str | None,
    labels: Path | None,
    rounding: Rounding | None = None,
) -> ArraySource:
    """A `.npy` file; labels come from a column (its index) or from a file of their own."""
    index = None
    if label_column is not None:
        try:
            index = int(label_column)
        except ValueError:
            raise InputError(
                f"The label column {label_column!r} is a name, but the columns of {path} have "
                f"none. Give its index, for example --label-column -1 for the last."
            ) from None
    return ArraySource(
        path,
        "npy",
        load_npy(path),
        None if labels is None else load_npy(labels),
        index,
        rounding=rounding,
    )


def open_npz(
    path: Path,
    label_column: str | None,
    labels: Path | None,
    id_column: str | None = None,
    rounding: Rounding | None = None,
) -> ArraySource:
    """An `.npz` archive; `label_column` and `id_column` are names of arrays.

    An array `feature_names`, with shape (D,), says what the features are called.
    """
    arrays = load_npz(path)
    check_apart(label_column, id_column, path=path)
    name = next((name for name in SAMPLE_ARRAYS if name in arrays), None)
    if name is None:
        raise InputError(
            f"{path} holds the arrays {', '.join(arrays) or '(none)'}; expected the samples under "
            f"one of {', '.join(SAMPLE_ARRAYS)}. Save them as `features`, labels as `labels`."
        )
    if labels is not None:
        found: NDArray[Any] | None = load_npy(labels)
    elif label_column is not None:
        found = array_of(arrays, label_column, "labels", path)
    else:
        found = next((arrays[key] for key in _LABELS_OF[name] if key in arrays), None)
    ids = None if id_column is None else array_of(arrays, id_column, "ids", path)
    names = arrays.get("feature_names")
    return ArraySource(
        path, "npz", arrays[name], found, ids=ids, feature_names=names, rounding=rounding
    )


def array_of(arrays: dict[str, NDArray[Any]], name: str, what: str, path: Path) -> NDArray[Any]:
    """The array of a name.

    Raises:
        InputError: there is none.
    """
    if name not in arrays:
        raise InputError(
            f"{path} has no array called {name!r}; it holds {', '.join(arrays)}. "
            f"Name the one with the {what}."
        )
    return arrays[name]


def load_npy(path: Path) -> NDArray[Any]:
    """The array of a `.npy` file, memory mapped."""
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise _unreadable(path, error) from error
    if not isinstance(array, np.ndarray):
        raise InputError(f"{path} is an archive, not one array. Give it the ending .npz.")
    return array


def load_npz(path: Path) -> dict[str, NDArray[Any]]:
    """All arrays of an `.npz` archive, by name, in the archive's order."""
    try:
        # Opened here: of a broken archive np.load would leave its own file open.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise _unreadable(path, error) from error
    except TypeError:  # a lone array cannot be left like an archive
        raise InputError(f"{path} is one array, not an archive. Give it the ending .npy.") from None


def _unreadable(path: Path, error: Exception) -> InputError:
    if "pickle" in str(error):
        return InputError(
            f"{path} holds Python objects, which are never loaded because they could run code. "
            f"Expected plain numbers or text. Save it with np.save(..., allow_pickle=False)."
        )
    return InputError(
        f"{path} cannot be read as a NumPy file ({error}). Check that it is complete and that its "
        f"ending says what it is."
    )


def _column(index: int, features: NDArray[Any], path: Path) -> int:
    if features.ndim != 2 or not -features.shape[1] <= index < features.shape[1]:
        raise InputError(
            f"There is no column {index} in {path}, whose samples have shape "
            f"{features.shape[1:]}. Expected an index from {-features.shape[1]} to "
            f"{features.shape[1] - 1} of an (N, D) array."
        )
    return index % int(features.shape[1])

"""IDX, the format of MNIST and its relatives: a big-endian header, then the array.

Plain or gzipped, read in pieces either way. Labels are in a file of their own,
which by custom differs from the images' only by `labels-idx1` for `images-idx3`.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from clients.data.formats.rows import Rows, as_features, as_labels, check_count
from clients.http.errors import InputError
from service.wire import SampleId

_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path: Path) -> NDArray[Any]:
    """The whole array of an IDX file.

    Raises:
        InputError: the file is no IDX file, or shorter than its header says.
    """
    with IdxArray(path) as array:
        return array.rows(0, array.shape[0])


class IdxArray:
    """An open IDX file whose rows are read on demand."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = _open(path)
        try:
            magic = self._read(4)
            zeros, kind, n_dims = struct.unpack(">HBB", magic)
            if zeros or kind not in _DTYPES or not 1 <= n_dims <= 4:
                raise InputError(
                    f"{path} starts with the bytes {magic.hex()}, which is no IDX file. Expected "
                    f"0000, an element type (08 to 0e) and the number of dimensions. "
                    f"Check the path."
                )
            self.dtype = np.dtype(_DTYPES[kind])
            self.shape: tuple[int, ...] = struct.unpack(f">{n_dims}I", self._read(4 * n_dims))
        except BaseException:
            self._file.close()
            raise
        self._header = 4 + 4 * n_dims
        self._row_bytes = math.prod(self.shape[1:]) * self.dtype.itemsize

    def __enter__(self) -> IdxArray:
        return self

    def __exit__(self, *exc: object) -> None:
        self._file.close()

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        """Rows from `start` to before `stop`, in native byte order."""
        stop = min(stop, self.shape[0])
        self._file.seek(self._header + start * self._row_bytes)
        data = self._read((stop - start) * self._row_bytes)
        array = np.frombuffer(data, self.dtype).reshape(stop - start, *self.shape[1:])
        return array.astype(self.dtype.newbyteorder("="), copy=False)

    def _read(self, size: int) -> bytes:
        try:
            data = self._file.read(size)
        except (OSError, EOFError, zlib.error) as error:
            raise InputError(
                f"{self.path} cannot be read to its end ({error}). It is probably a broken "
                f"download: fetch it again."
            ) from error
        if len(data) != size:
            raise InputError(
                f"{self.path} ends {size - len(data)} bytes before what its header announces. "
                f"It is probably a broken download: fetch it again."
            )
        return data


class IdxSource:
    """Samples of an IDX file, with the labels of the file beside it or of `labels`."""

    kind = "idx"
    feature_names: tuple[str, ...] | None = None

    def __init__(self, path: Path, labels: Path | None = None) -> None:
        self.path = path
        self._labels = labels or sibling_labels(path)
        with IdxArray(path) as images:
            self.n_samples: int | None = images.shape[0]
            self.n_features = math.prod(images.shape[1:])
        self.labelled = self._labels is not None
        if self._labels is not None:
            with IdxArray(self._labels) as codes:
                check_count(self.n_samples or 0, codes.shape[0], path=path)

    def read(self, size: int, start: int = 0) -> Iterator[Rows]:
        codes = None if self._labels is None else read_idx(self._labels)
        with IdxArray(self.path) as images:
            for first in range(start, images.shape[0], size):
                values = images.rows(first, first + size)
                features = as_features(values, path=self.path, start=first)
                if values.ndim in (3, 4):
                    # Their shape declares them as images, and says how they are drawn.
                    features = features.reshape(values.shape)
                labels = None
                if codes is not None:
                    labels = as_labels(codes[first : first + size], path=self.path, start=first)
                yield Rows(first, features, labels)

    def read_ids(self) -> Iterator[list[SampleId]]:
        yield from ()


def sibling_labels(path: Path) -> Path | None:
    """The labels file that belongs to an images file by its name, if it is there."""
    for images, labels in (("images-idx3", "labels-idx1"), ("images.idx3", "labels.idx1")):
        if images in path.name:
            stem = path.name.replace(images, labels)
            names = {stem, stem.removesuffix(".gz"), stem.removesuffix(".gz") + ".gz"}
            for name in sorted(names):
                if (path.parent / name).is_file():
                    return path.parent / name
    return None


def _open(path: Path) -> IO[bytes]:
    if path.suffix == ".gz":
        return cast(IO[bytes], gzip.open(path, "rb"))
    return path.open("rb")

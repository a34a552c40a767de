"""MNIST and FashionMNIST from their publishers, checked, into one `.npz` each.

The checksums are those that torchvision publishes for the same files, so a mirror
can be slow or gone but not wrong. What is written is complete or not there at all.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clients.data.formats.idx import read_idx
from clients.http.errors import InputError

_FILES = {
    "train_x": "train-images-idx3-ubyte.gz",
    "train_y": "train-labels-idx1-ubyte.gz",
    "test_x": "t10k-images-idx3-ubyte.gz",
    "test_y": "t10k-labels-idx1-ubyte.gz",
}

PUBLISHED: dict[str, tuple[tuple[str, ...], dict[str, str]]] = {
    "mnist": (
        (
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
        ),
        {
            "train_x": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train_y": "d53e105ee54ea40749a09fcbcd1e9432",
            "test_x": "9fb629c4189551a2d022fa330f9573f3",
            "test_y": "ec29112dd5afa0611ce80d1b7f02629c",
        },
    ),
    "fashion_mnist": (
        (
            "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        ),
        {
            "train_x": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train_y": "25c81989df183df01b3e8a0aad5dffbe",
            "test_x": "bef4ecab320f06d8554ea6380940ec79",
            "test_y": "bb300cfdad3c16e7a12a480ee83cd310",
        },
    ),
}
"""Name -> mirrors, tried in order, and the MD5 of each file."""

_MAX_BYTES = 64 * 2**20  # the largest of these files has 26 MB


def download(name: str, folder: Path) -> Path:
    """Fetch a published data set.

    Arguments:
        name: One of `PUBLISHED`.
        folder: Where `NAME.npz` will be written; made where missing.

    Returns:
        Path of the archive.

    Raises:
        InputError: no mirror answered with the right bytes; the message names the remedies.
    """
    mirrors, checksums = PUBLISHED[name]
    target = folder / f"{name}.npz"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix=".download-") as scratch:
            arrays = {
                part: _fetch(name, mirrors, file, checksums[part], Path(scratch) / file)
                for part, file in _FILES.items()
            }
            whole = Path(scratch) / target.name
            np.savez_compressed(whole, **arrays)  # type: ignore[arg-type]  # keyword arrays
            os.replace(whole, target)
    except OSError as error:
        raise InputError(
            f"The data set {name!r} cannot be kept in {folder} ({error}). Set XDG_CACHE_HOME to a "
            f"folder that can be written, or GMR_DATASETS to one that holds {name}.npz."
        ) from error
    return target


def _fetch(
    name: str, mirrors: tuple[str, ...], file: str, checksum: str, path: Path
) -> NDArray[Any]:
    failures = []
    for mirror in mirrors:
        try:
            digest = hashlib.md5(usedforsecurity=False)
            with path.open("wb") as out:
                for block in _blocks(mirror + file):
                    digest.update(block)
                    out.write(block)
        except ConnectionError as error:
            failures.append(f"{mirror + file}: {error}")
            continue
        if digest.hexdigest() == checksum:
            return read_idx(path)
        failures.append(f"{mirror + file}: checksum {digest.hexdigest()}, expected {checksum}")
    raise InputError(
        f"The data set {name!r} could not be downloaded. Tried {'; '.join(failures)}. "
        f"On a machine without a network, put {name}.npz into a folder and set GMR_DATASETS to "
        f"it, or use the data set `digits`, which needs no download."
    )


def _blocks(url: str) -> Iterator[bytes]:
    """The body of a GET, bounded in time and size; any failure is a ConnectionError."""
    import httpx2  # imported here: only a download needs it, and it takes a while

    timeout = httpx2.Timeout(30, connect=10)
    # The files are compressed themselves, and their checksums are of the compressed bytes.
    headers = {"accept-encoding": "identity"}
    received = 0
    try:
        with httpx2.stream(
            "GET", url, headers=headers, timeout=timeout, follow_redirects=True
        ) as answer:
            answer.raise_for_status()
            for block in answer.iter_raw():
                received += len(block)
                if received > _MAX_BYTES:
                    raise ConnectionError(f"more than {_MAX_BYTES} bytes")
                yield block
    except httpx2.HTTPError as error:
        raise ConnectionError(f"{type(error).__name__}: {error}") from error

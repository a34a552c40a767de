"""The provenance of a checkpoint: what has written it, in a line.

The same stream makes the same model, bit for bit, by the same code on the same kind of processor.
So each checkpoint says by what it was made: the release, a digest of our own sources that decide
about bits, the libraries that compute, and the processor. Whoever finds other bits in it than he
computes knows by this line whether that is a fault.

The sources are read when this module is imported, as the code itself is: a process goes on with
what it has imported, whatever is installed over it meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Final

import numba
import numpy
import torch
from numba.core.registry import cpu_target

from core import extensions
from core.config import EngineConfig
from core.drift.baselines.river import RIVER
from core.engine.checkpoint import FORMAT
from core.errors import InvalidCheckpoint
from core.tensors import unpack
from service.distribution import own_version
from service.store.kept import Kept

WRITTEN_BY: Final = "written_by"
"""Key of the line, in a checkpoint and in its note."""

DECIDING: Final = ("core", "service/wire", "service/trainer/effects.py")
"""What makes a state of a state and an entry, with the settings alone."""

ON: Final = " on "
"""Between the code and the processor."""

DIGITS: Final = 12
"""Of the digest, in hexadecimal."""


def digest_of(root: Path, deciding: Sequence[str] = DECIDING) -> str:
    """A digest of Python sources, the same wherever they lie and however their lines end.

    Arguments:
        root: Folder that they are in.
        deciding: Files and folders there.
    """
    found = [
        path
        for place in (root / name for name in deciding)
        for path in (place.rglob("*.py") if place.is_dir() else [place])
        if path.is_file()
    ]
    digest = sha256()
    for name, path in sorted((path.relative_to(root).as_posix(), path) for path in found):
        source = path.read_bytes().replace(b"\r\n", b"\n")
        digest.update(b"%s %d\n%s" % (name.encode(), len(source), source))
    return digest.hexdigest()[:DIGITS]


DIGEST: Final = digest_of(Path(__file__).parents[2])
"""Of the sources here: two states of them have one version."""

LIBRARIES: Final = {one.__name__: str(one.__version__) for one in (torch, numpy, numba)}
"""Those that compute, with their versions."""


def written_by(config: EngineConfig, device: torch.device) -> str:
    """What this process writes of itself.

    Arguments:
        config: Of the model, which may have parts of other packages.
        device: On which it computes.
    """
    return f"{code(config)}{ON}{_processor() if device.type == 'cpu' else device.type}"


def code(config: EngineConfig) -> str:
    """That line without the processor: the code that is installed here."""
    libraries = {**LIBRARIES, **dict(_chosen(config))}
    return ", ".join(
        [f"{own_version()} {DIGEST}", *(f"{name} {version}" for name, version in libraries.items())]
    )


def code_of(line: str) -> str:
    """The code by a line that `written_by` has made somewhere."""
    return line.rpartition(ON)[0]


def writer_of(kept: Kept) -> str:
    """What wrote a checkpoint that `load` refuses; empty where nothing can be read of that."""
    try:
        _, text = unpack(FORMAT, kept.read())
    except (OSError, InvalidCheckpoint):
        return ""
    return text.get(WRITTEN_BY, "")


@cache
def _processor() -> str:
    """The kind of processor for which loops are compiled."""
    _, name, _ = cpu_target.target_context.codegen().magic_tuple()
    return str(name)


def _chosen(config: EngineConfig) -> Iterator[tuple[str, str]]:
    """Packages, with their versions, that have a part of the engine which the settings name."""
    if config.detector in RIVER:
        yield "river", metadata.version("river")
    for group, name in (
        (extensions.DETECTORS, config.detector),
        (extensions.LEARNERS, config.preset),
    ):
        point = extensions.offered(group).get(name)
        if point is not None and point.dist is not None:
            yield point.dist.name, point.dist.version

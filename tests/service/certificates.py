"""An authority and certificates of loopback, made by openssl for one run of the tests."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

OPENSSL = shutil.which("openssl")
NEEDS_OPENSSL = pytest.mark.skipif(OPENSSL is None, reason="no openssl, which makes certificates")
KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True)
class Pair:
    """A certificate and its key."""

    certificate: Path
    key: Path


def authority(folder: Path, name: str = "authority") -> Pair:
    """Whose certificate signs others."""
    made = Pair(folder / f"{name}.pem", folder / f"{name}.key")
    extensions = ["-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=keyCertSign"]
    _openssl("req", "-x509", *KEY, "-subj", f"/CN={name}", "-days", "2", *extensions, made)
    return made


def signed(folder: Path, name: str, by: Pair) -> Pair:
    """A certificate of loopback, good for servers and clients."""
    made = Pair(folder / f"{name}.pem", folder / f"{name}.key")
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    names += ["-addext", "basicConstraints=CA:FALSE"]
    issuer = ["-CA", str(by.certificate), "-CAkey", str(by.key)]
    _openssl("req", "-x509", *KEY, "-subj", f"/CN={name}", "-days", "2", *names, *issuer, made)
    return made


def _openssl(*arguments: str | Pair) -> None:
    *first, pair = arguments
    assert isinstance(pair, Pair)
    assert OPENSSL is not None
    command = [OPENSSL, *map(str, first), "-out", str(pair.certificate), "-keyout", str(pair.key)]
    subprocess.run(command, check=True, capture_output=True)

"""Tests for the authorities that a client trusts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from clients.http.trust import trusted
from tests.service.certificates import NEEDS_OPENSSL, authority


def test_authorities_are_read_once_and_anew_where_another_file_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    usual = trusted()
    assert trusted() is usual
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "missing.pem"))
    with pytest.raises(FileNotFoundError):
        trusted()
    monkeypatch.delenv("SSL_CERT_FILE")
    assert trusted() is usual


@NEEDS_OPENSSL
def test_a_file_of_authorities_is_read_again_once_it_has_changed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first, later = (authority(tmp_path, name) for name in ("first", "later"))
    file = tmp_path / "trusted.pem"
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    file.write_bytes(first.certificate.read_bytes())
    before = trusted()
    assert trusted() is before
    file.write_bytes(later.certificate.read_bytes())
    os.utime(file, ns=(0, 1))  # however coarse the file system's clock is
    subjects = [
        [part for one in context.get_ca_certs() for (part,) in one["subject"]]
        for context in (before, trusted())
    ]
    assert subjects == [[("commonName", "first")], [("commonName", "later")]]

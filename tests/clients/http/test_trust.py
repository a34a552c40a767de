"""Tests for the authorities that a client trusts."""

from __future__ import annotations

from pathlib import Path

import pytest

from clients.http.trust import trusted


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

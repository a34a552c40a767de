"""Tests for clients.data.standard_input: what came by it is called by its name."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from clients.data.files import open_source
from clients.data.live import live_input, open_samples
from clients.data.standard_input import STANDARD_INPUT, named_file
from clients.http.client import GMRClient
from clients.http.errors import InputError
from clients.sending.feature_names import NameMatcher
from tests.clients.scripted import ScriptedServer, answer

ROWS = b"b,a,other\n1,2,3\n4,5,6\n"


def test_what_is_wrong_with_it_is_not_told_of_a_temporary_file() -> None:
    with (
        pytest.raises(InputError, match=r"^Standard input: row 1, ") as told,
        named_file(STANDARD_INPUT, io.BytesIO(b"a,b\n1,2\n3,x\n")) as path,
    ):
        list(open_source(path).read(10))
    assert "gmr-" not in str(told.value)
    assert told.value.context["row"] == 1


def test_what_is_wrong_with_lines_as_they_come_is_not_either() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"a,b\n1,2\n3,x\n")
    os.close(writing)
    with (
        os.fdopen(reading, "rb") as stream,
        pytest.raises(InputError, match=r"^Standard input: row 1, "),
        live_input(stream, 0.1, 10) as coming,
    ):
        list(open_samples(coming.path, coming).read(10))


@pytest.mark.parametrize(
    ("kept", "said"),
    [(["b", "a"], "Of standard input only"), (["a", "b", "other"], "columns of standard input")],
)
def test_remarks_speak_of_standard_input(kept: list[str], said: str) -> None:
    script = answer(200, {"feature_names": kept})
    with (
        ScriptedServer(script) as server,
        GMRClient(server.url) as client,
        named_file(STANDARD_INPUT, io.BytesIO(ROWS)) as path,
    ):
        matcher = NameMatcher(client)
        [remark] = matcher.match(open_source(path, columns=matcher.columns_of(path, None))).remarks
    assert said in remark
    assert "gmr-" not in remark


def test_a_file_keeps_its_name(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"a,b\n1,2\n3,x\n")
    with pytest.raises(InputError, match=r"a\.csv: row 1"), named_file(path) as named:
        list(open_source(named).read(10))

"""Tests for clients.data.live."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.data import live
from clients.data.live import LiveLines, input_of, live_input, open_samples
from clients.http.errors import InputError

LONG = 60.0  # nothing here waits for so long, unless it fails


class Pipe:
    """A pipe into which a test writes."""

    def __init__(self) -> None:
        read, self._write = os.pipe()
        self.stream: IO[bytes] = os.fdopen(read, "rb", buffering=0)
        self._open = True

    def write(self, text: str | bytes) -> None:
        os.write(self._write, text if isinstance(text, bytes) else text.encode())

    def end(self) -> None:
        if self._open:
            os.close(self._write)
        self._open = False


@contextmanager
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    try:
        yield made
    finally:
        made.end()
        # Who still reads would read from the next file that has this one's number.
        for thread in threading.enumerate():
            if thread.name == "live-lines":
                thread.join(10)
        made.stream.close()


@given(st.lists(st.sampled_from(["1,2\n", "x\r\n", "\n", " \n", "last"]), max_size=8), st.data())
def test_lines_are_those_that_were_written_however_they_come(
    texts: list[str], data: st.DataObject
) -> None:
    text = "".join(texts).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=4)))
    with pipe() as source:
        lines = LiveLines(source.stream, LONG)
        for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
            if begin < end:
                source.write(text[begin:end])
        source.end()
        found: list[bytes] = []
        while piece := lines.next(3):
            assert len(piece) <= 3
            found += piece
        assert found == [line for line in text.splitlines(keepends=True) if line.strip()]


def test_lines_are_given_when_enough_have_come_or_have_waited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pipe() as source:
        lines = LiveLines(source.stream, LONG)
        source.write("1\n2\n3\n4\nhalf")
        assert lines.next(3) == [b"1\n", b"2\n", b"3\n"]
        lines._wait_s = 0.05
        assert lines.next(3) == [b"4\n"]
        source.write(" a line\n")
        assert lines.next(3) == [b"half a line\n"]
        threading.Timer(0.05, lines.close).start()
        assert lines.next(3) == []
    monkeypatch.setattr(live, "_LONGEST_LINE", 100)
    with pipe() as source:
        lines = LiveLines(source.stream, LONG)
        source.write("x" * 101)
        with pytest.raises(InputError, match="a line of more than"):
            lines.next(1)


@given(st.integers(1, 5), st.integers(0, 3000), st.booleans())
def test_what_has_come_when_no_more_is_wanted_is_given_whole(
    most: int, n: int, ended: bool
) -> None:
    expected = [b"%d\n" % row for row in range(n)]  # and of the line that is not whole nothing
    with pipe() as source:
        source.write(b"".join(expected) + b"half")
        lines = LiveLines(source.stream, LONG)
        lines.finish()
        if ended:  # who writes was stopped as well
            source.end()
        found: list[bytes] = []
        while piece := lines.next(most):
            found += piece
        assert found == expected


def test_of_what_never_pauses_no_more_is_read_than_a_pipe_holds(tmp_path: Path) -> None:
    line = b"1,2,3,4\n"
    (tmp_path / "long.csv").write_bytes(line * (1 << 20))
    with (tmp_path / "long.csv").open("rb") as file:
        lines = LiveLines(file, LONG)
        lines.finish()
        n = 0
        while piece := lines.next(100_000):
            n += len(piece)
    # Whole blocks, some of them read before: behind them more would be ready at any time.
    assert 0 < n * len(line) < 4 * live._PIPE_HOLDS


def test_a_signal_ends_the_lines_and_the_next_one_the_process(
    capfd: pytest.CaptureFixture[str],
) -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    for number in (signal.SIGINT, signal.SIGTERM):
        with pipe() as source:
            source.write("x,y\n1,2\n3,4\n5,6\n7,")
            with opened(source) as (found, _):
                pieces = found.read(2)
                assert len(next(pieces)) == 1
                signal.raise_signal(number)
                assert [row for rows in pieces for row in rows.features.tolist()] == [
                    *([3, 4], [5, 6]),
                ]
                assert "Ctrl-C again" in capfd.readouterr().err
                with pytest.raises(KeyboardInterrupt):
                    signal.raise_signal(signal.SIGINT)
        assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_a_signal_that_is_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pipe() as source:
            source.write("x,y\n1,2\n")
            source.end()
            with opened(source):
                assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def opened(source: Pipe, first: int = 2, **options: Any) -> Any:
    """Samples of a pipe, and their input, in a context."""

    @contextmanager
    def made() -> Iterator[Any]:
        with live_input(source.stream, LONG, first) as coming:
            yield open_samples(coming.path, coming, **options), coming

    return made()


@pytest.mark.parametrize(
    ("text", "options", "labels"),
    [
        ("x,y,kind\n1,2,a\n3,4,b\n5,6,a\n7,8,2\n", {"label_column": "kind"}, ["a", "b", "a", 2]),
        # Of what follows the first line is a sample, whatever it looks like.
        ("1,2,9\n3,4,a\n5,6,b\n7,8,2\n", {"label_column": "2"}, [9, "a", "b", 2]),
        (
            '{"x": 1, "y": 2}\n{"y": 4, "x": 3}\n{"y": 6, "x": 5, "z": 0}\n{"x": 7, "y": 8}\n',
            {},
            None,
        ),
        ("\ufeffx;y\n1;2\n3;4\n5;6\n7;8\n", {}, None),
    ],
)
def test_what_comes_later_is_read_as_what_came_first(
    text: str, options: dict[str, Any], labels: list[Any] | None
) -> None:
    with pipe() as source:
        source.write(text)
        source.end()
        with opened(source, **options) as (found, coming):
            assert (found.n_samples, found.n_features) == (None, 2)
            features: list[Any] = []
            told: list[Any] = []
            for rows in found.read(1):
                assert rows.start == len(features)
                features += rows.features.tolist()
                told += [] if rows.labels is None else [*rows.labels]
    assert features == [[1, 2], [3, 4], [5, 6], [7, 8]]
    assert told == (labels or [])
    assert coming.untold == 0
    assert not coming.path.parent.exists()


def test_samples_are_there_while_the_stream_goes_on() -> None:
    with pipe() as source:
        source.write("x,y\n1,2\n")
        with opened(source) as (found, coming):
            pieces = found.read(1)
            assert next(pieces).features.tolist() == [[1, 2]]
            source.write("3,4\n")
            assert next(pieces).features.tolist() == [[3, 4]]
            source.write("5,x\n")
            with pytest.raises(InputError, match=r"row 2, column 1 \('y'\) holds 'x'"):
                next(pieces)
            coming.close()


@pytest.mark.parametrize("names", ["0,1,kind", "x,y,kind"])
def test_the_first_line_may_come_alone(names: str) -> None:
    """It names columns, which may show by the next line only."""
    with pipe() as source:
        source.write(f"{names}\n")
        threading.Timer(0.3, source.write, ["5,6,1\n7,8,2\n"]).start()
        with live_input(source.stream, 0.02, 10) as coming:
            pieces = open_samples(coming.path, coming, label_column="2").read(10)
            assert next(pieces).features.tolist()[0] == [5, 6]


def test_rows_of_json_are_counted_on_as_well() -> None:
    with pipe() as source:
        source.write('{"x": 1}\n{"x": 2}\n{"x": 3}\n{"y": \n')
        source.end()
        with opened(source) as (found, _), pytest.raises(InputError, match="row 3 is no JSON"):
            [*found.read(2)]


def test_who_writes_faster_than_it_is_read_has_to_wait() -> None:
    with pipe() as source:
        lines = LiveLines(source.stream, LONG)
        os.set_blocking(source._write, False)
        written, refused, block = 0, 0, b"1,2\n" * 4096
        while refused < 5 and written < 1 << 26:
            try:
                written += os.write(source._write, block)
                refused = 0
            except BlockingIOError:
                refused += 1
                time.sleep(0.1)
        assert written < 1 << 22
        lines.close()


def test_rows_that_cannot_be_used_are_counted() -> None:
    with pipe() as source:
        source.write("x,y\n1,2\nbad\nbad,bad\n3,4\n5\n7,8\n9\n")
        source.end()
        with opened(source, skip_bad_rows=True) as (found, coming):
            pieces = [*found.read(2)]
    places = [place for rows in pieces for place in rows.places]
    assert places == [0, 3, 5]
    assert sum(rows.skipped for rows in pieces) + coming.untold == 4


@pytest.mark.parametrize(
    "text",
    ["x,y\n1,\n2,\n3,4\n5,6\n", '{"x": 1, "y": null}\n{}\n{"x": 3, "y": 4}\n{"y": 6, "x": 5}'],
)
def test_a_stream_may_begin_with_rows_that_cannot_be_used(text: str) -> None:
    with pipe() as source:
        source.write(text)
        source.end()
        with opened(source, 2, skip_bad_rows=True) as (found, coming):
            pieces = [*found.read(2)]
    assert [place for rows in pieces for place in rows.places] == [2, 3]
    assert sum(rows.skipped for rows in pieces) + coming.untold == 2


def test_what_is_no_live_input_is_refused(tmp_path: Path) -> None:
    with pipe() as source:
        source.end()
        with pytest.raises(InputError, match="brought nothing"), opened(source):
            pass
    with (
        pytest.raises(InputError, match="--live is for standard input"),
        input_of(tmp_path / "a.csv", live=True, wait_s=1, most=1),
    ):
        pass
    with pipe() as source:
        source.write("x,y\n1,2\n")
        source.end()
        with opened(source) as (found, _), pytest.raises(InputError, match="another row"):
            [*found.read(1, 1)]

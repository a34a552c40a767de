"""Tests for clients.data.tasks."""

from __future__ import annotations

import numpy as np
import pytest

from clients.data.tasks import PAPER_SLTS, SLT, stream
from clients.http.errors import InputError

X = np.arange(200, dtype=np.float32).reshape(100, 2)
Y = np.arange(100) % 10


@pytest.mark.parametrize("name", PAPER_SLTS)
def test_each_slt_of_the_paper_holds_every_digit_once(name: str) -> None:
    assert sorted(SLT.parse(name).classes) == list(range(10))


def test_the_five_sub_tasks_are_those_of_the_paper() -> None:
    assert SLT.parse("D2-2-2-2-2b").sub_tasks == ((1, 7), (0, 2), (6, 8), (4, 5), (3, 9))
    assert SLT.parse("D9-1b").sub_tasks[1] == (3,)


def test_names_are_found_whatever_their_case() -> None:
    assert SLT.parse(" d5-5A ").name == "D5-5a"


def test_an_slt_can_be_written_out() -> None:
    slt = SLT.parse("0,1/2,3/12")
    assert slt.sub_tasks == ((0, 1), (2, 3), (12,))
    assert slt.n_boundaries == 2


@pytest.mark.parametrize(
    ("text", "sub_tasks"),
    [
        ('"A / B",C/"D, E"', (("A / B", "C"), ("D, E",))),
        (' " Login " / "say ""hi""", 007 ', ((" Login ",), ('say "hi"', 7))),
        ('"3","007"', ((3, "007"),)),
        # Quotes elsewhere than around a name belong to it.
        ('5" pipe,say "hi"/"open', (('5" pipe', 'say "hi"'), ('"open',))),
    ],
)
def test_quotes_as_in_csv_hold_names_together(
    text: str, sub_tasks: tuple[tuple[int | str, ...], ...]
) -> None:
    assert SLT.parse(text).sub_tasks == sub_tasks


@pytest.mark.parametrize("text", ["A / B,C", "A / B,C/D,B", "A//B"])
def test_whoever_names_a_class_without_quotes_is_told_of_them(text: str) -> None:
    labels = np.array(["A / B", "C", "D, E"] * 10)
    with pytest.raises(InputError, match="stands in double quotes, as in CSV"):
        list(stream(SLT.parse(text), X[:30], labels))
    with pytest.raises(InputError, match="classes: 'A / B', 'C', 'D, E'"):
        list(stream(SLT.parse("nothing"), X[:30], labels))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("D3-3", "no SLT called"),
        ("0,1/1,2", "Class 1 occurs twice"),
        ("0,1//2", "Sub-task 1 .* names an empty class"),
        ("", "names an empty class"),
    ],
)
def test_what_is_no_slt_is_refused_with_the_reason(text: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        SLT.parse(text)


def test_sub_tasks_hold_their_classes_and_nothing_else() -> None:
    parts = list(stream(SLT.parse("0,1/5"), X, Y))
    assert [sorted(set(part.labels.tolist())) for part in parts] == [[0, 1], [5]]
    assert [len(part) for part in parts] == [20, 10]


def test_samples_keep_their_labels_when_shuffled() -> None:
    for part in stream(SLT.parse("D10"), X, Y, epochs=2):
        assert (part.features[:, 0].astype(int) // 2 % 10 == part.labels).all()


def test_the_same_seed_gives_the_same_stream_and_another_does_not() -> None:
    first, again, other = (
        [part.features.tolist() for part in stream(SLT.parse("D5-5a"), X, Y, seed=seed)]
        for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_every_epoch_shuffles_anew_and_holds_every_sample() -> None:
    (part,) = stream(SLT.parse("D10"), X, Y, epochs=2, seed=3)
    first, second = part.features[:100, 0], part.features[100:, 0]
    assert sorted(first) == sorted(second) == sorted(X[:, 0])
    assert first.tolist() != second.tolist()


def test_a_stream_with_an_order_of_its_own_can_keep_it() -> None:
    (part,) = stream(SLT.parse("D10"), X, Y, shuffle=False)
    assert (part.features == X).all()


def test_no_batch_straddles_a_boundary() -> None:
    parts = stream(SLT.parse("0,1,2/3"), X, Y)
    sizes = [[len(x) for x, _ in part.batches(20)] for part in parts]
    assert sizes == [[20, 10], [10]]


def test_a_class_that_the_data_lack_is_named() -> None:
    with pytest.raises(InputError, match="class 12, which the data does not have"):
        list(stream(SLT.parse("0/12"), X, Y))


def test_text_labels_are_matched_as_text() -> None:
    labels = np.array(["cat", "dog", "3"] * 10)
    (part,) = stream(SLT.parse("cat,3"), X[:30], labels)
    assert set(part.labels.tolist()) == {"cat", "3"}


def test_a_named_class_does_not_fit_integer_labels() -> None:
    with pytest.raises(InputError, match="are integers"):
        list(stream(SLT.parse("cat"), X, Y))

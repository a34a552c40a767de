"""Tests for the core.batch module."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from core.batch import UNLABELLED, Batch
from core.errors import InvalidBatch, InvalidLabels, NonFiniteFeature, ShapeMismatch

X = torch.zeros(3, 2)


def codes(*values: int) -> Tensor:
    return torch.tensor(values)


def test_labels_become_codes_in_order_of_first_appearance() -> None:
    batch = Batch.of(torch.zeros(5, 2), [7, "a", None, 7, "a"])
    assert batch.vocabulary == (7, "a")
    assert batch.codes is not None
    assert batch.codes.tolist() == [0, 1, UNLABELLED, 0, 1]
    assert batch.codes.dtype == torch.int64
    batch.check(2)


def test_a_tensor_of_labels_holds_the_labels_themselves_even_minus_one() -> None:
    batch = Batch.of(X, torch.tensor([5, -1, 5]))
    assert batch.vocabulary == (5, -1)
    assert batch.codes is not None
    assert batch.codes.tolist() == [0, 1, 0]


def test_a_batch_without_labels_has_no_codes_and_no_vocabulary() -> None:
    batch = Batch.of(X)
    assert (batch.codes, batch.vocabulary, len(batch)) == (None, (), 3)
    batch.check(None)


def test_integers_and_strings_that_look_alike_stay_apart() -> None:
    assert Batch.of(X, [1, "1", 1]).vocabulary == (1, "1")


@pytest.mark.parametrize("shape", [(3,), (0, 2), (3, 0), (1, 3, 2), ()])
def test_features_must_be_a_matrix_that_is_not_empty(shape: tuple[int, ...]) -> None:
    with pytest.raises(ShapeMismatch, match=r"expected \(N, D\)") as caught:
        Batch(torch.zeros(shape)).check(None)
    assert caught.value.context["shape"] == list(shape)


def test_a_wrong_number_of_features_is_refused_with_both_numbers() -> None:
    with pytest.raises(ShapeMismatch, match="2 features, but this model was built for 5") as caught:
        Batch(X).check(5)
    assert caught.value.context == {"expected": 5, "got": 2}


@pytest.mark.parametrize(
    ("known", "sent", "advice"),
    [
        ((8, 8, 3), (3, 8, 8), r"moveaxis\(images, 1, -1\)"),
        ((3, 8, 8), (8, 8, 3), r"moveaxis\(images, -1, 1\)"),
        ((28, 28), (14, 56), "Bring the images to that shape"),
        ((28, 28, 1), (14, 56), "Bring the images to that shape"),
    ],
)
def test_images_of_another_shape_are_refused_with_both_shapes(
    known: tuple[int, ...], sent: tuple[int, ...], advice: str
) -> None:
    batch = Batch(torch.zeros(2, *sent)).to_float32(torch.device("cpu"))
    with pytest.raises(ShapeMismatch, match=advice) as caught:
        batch.check(math.prod(known), known)
    assert str(known) in str(caught.value)
    assert str(sent) in str(caught.value)
    assert caught.value.context == {"expected_shape": [*known], "shape": [*sent]}
    Batch(torch.zeros(2, math.prod(sent))).check(math.prod(known), known)  # rows say no shape


@pytest.mark.parametrize("sent", [(28, 28), (28, 28, 1), (1, 28, 28)])
@pytest.mark.parametrize("known", [(28, 28), (28, 28, 1), (1, 28, 28), ()])
def test_one_channel_is_no_other_shape(known: tuple[int, ...], sent: tuple[int, ...]) -> None:
    Batch(torch.zeros(2, *sent)).to_float32(torch.device("cpu")).check(784, known)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_the_first_feature_that_is_no_number_is_named(value: float) -> None:
    x = torch.zeros(4, 3)
    x[2, 1] = x[3, 0] = value
    with pytest.raises(NonFiniteFeature, match="row 2, column 1") as caught:
        Batch(x).check(None)
    assert caught.value.context == {"row": 2, "column": 1}


def test_infinities_that_cancel_out_in_a_sum_are_found() -> None:
    x = torch.zeros(2, 2)
    x[0, 0], x[1, 1] = float("inf"), float("-inf")
    with pytest.raises(NonFiniteFeature, match="row 0, column 0"):
        Batch(x).check(None)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_finite_features_whose_sum_overflows_are_accepted(dtype: torch.dtype) -> None:
    x = torch.full((100, 2), torch.finfo(dtype).max, dtype=dtype)
    assert not x.sum().isfinite()
    Batch(x).check(2)


@pytest.mark.parametrize(
    ("given", "vocabulary", "message"),
    [
        (codes(0, 0), ("a",), "3 samples came with 2 labels"),
        (codes(0, 0, 1), ("a",), "from 0 to 1, but the vocabulary has 1 labels"),
        (codes(-2, 0, 0), ("a",), "from -2 to 0"),
        (codes(0, 0, 0), (), "vocabulary has 0 labels"),
        (codes(0, 1, 1), ("a", "a"), "names 1 of them twice"),
        (codes(0, 0, 0), (1.5,), "1.5 is of type float"),
        (codes(0, 0, 0), (True,), "True is of type bool"),
        (torch.zeros(3), ("a",), "torch.float32; expected int64"),
        (torch.zeros(3, 1, dtype=torch.int64), ("a",), "one per sample"),
    ],
)
def test_labels_that_do_not_fit_are_refused_with_what_to_do(
    given: Tensor, vocabulary: tuple[str, ...], message: str
) -> None:
    with pytest.raises(InvalidLabels, match=message) as caught:
        Batch(X, given, vocabulary).check(2)
    assert isinstance(caught.value, InvalidBatch)
    assert "Send" in str(caught.value)


def test_codes_may_all_be_unlabelled_and_a_vocabulary_may_hold_more_than_occurs() -> None:
    Batch(X, codes(-1, -1, -1)).check(2)
    Batch(X, codes(-1, 1, -1), ("a", "b", "c")).check(2)


def test_an_id_that_names_two_samples_is_refused() -> None:
    with pytest.raises(InvalidLabels, match="'a' names the samples at positions 0 and 2") as caught:
        Batch.of(X, sample_ids=["a", None, "a"])
    assert caught.value.context == {"position": 2}
    with pytest.raises(InvalidLabels, match="positions 0 and 2"):
        Batch(X, sample_ids=("a", None, "a")).check(2)
    Batch.of(X, sample_ids=[1, None, None]).check(2)
    Batch.of(X, sample_ids=[1, "1", None]).check(2)


def test_ids_of_numpy_are_those_of_python() -> None:
    ids = Batch.of(X, sample_ids=np.arange(3)).sample_ids
    assert ids is not None
    assert [type(id) for id in ids] == [int] * 3
    with pytest.raises(InvalidLabels, match=r"The sample id 1\.0 is of type float"):
        Batch.of(X, sample_ids=[1.0, 2, 3])  # type: ignore[list-item]  # what is tested


@pytest.mark.parametrize("wrong", [True, 1.0, np.True_, np.float32(1), (1,), [1]])
@pytest.mark.parametrize("place", [0, 2])
def test_a_label_that_merely_equals_an_integer_is_refused_at_any_place(
    wrong: object, place: int
) -> None:
    labels: list[object] = [1, 1, 1]
    labels[place] = wrong
    with pytest.raises(InvalidLabels, match="expected an integer or a string"):
        Batch.of(X, labels)  # type: ignore[arg-type]  # what is tested


@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8", ">f4", "u1", "<i4", "<u2"])
def test_arrays_and_lists_of_numbers_become_tensors(dtype: str) -> None:
    values = np.arange(6).reshape(3, 2).astype(dtype)
    values.flags.writeable = False
    for sent in (values, values[::-1][::-1], values.tolist()):
        batch = Batch.of(sent, np.array([1, 2, 1]))
        batch.check(2)
        assert batch.features.double().tolist() == [[0, 1], [2, 3], [4, 5]]
        assert batch.plain_labels == [1, 2, 1]
    assert (Batch.of(values).features.dtype == torch.uint8) == (dtype == "u1")


@pytest.mark.parametrize("wrong", [[["a"]], [[1], [1, 2]], np.zeros((2, 2), "M8[s]"), [[True]]])
def test_what_is_no_matrix_of_numbers_is_refused_at_once(wrong: object) -> None:
    with pytest.raises(ShapeMismatch, match="Features"):
        Batch.of(wrong)  # type: ignore[arg-type]  # what is tested

"""Tests for the core.errors module: one tree, messages that help, numbers beside them."""

from __future__ import annotations

import inspect
import json

import pytest

from core import errors
from core.errors import (
    ClassExists,
    GMRError,
    InvalidBatch,
    InvalidLabels,
    InvalidRequest,
    ModelAtRest,
    ModelNotReady,
    NonFiniteFeature,
    ShapeMismatch,
    UnknownClass,
    UnknownProposal,
    UnknownVersion,
)

FAMILY = [
    value
    for _, value in inspect.getmembers(errors, inspect.isclass)
    if issubclass(value, Exception)
]


def test_everything_is_of_one_family_and_named_in_the_tree() -> None:
    assert len(FAMILY) >= 11
    for error in FAMILY:
        assert issubclass(error, GMRError)
        assert error.__name__ in (errors.__doc__ or ""), f"{error.__name__} is not in the tree"
        assert error.__doc__


@pytest.mark.parametrize(
    ("error", "parent"),
    [
        (ShapeMismatch, InvalidBatch),
        (NonFiniteFeature, InvalidBatch),
        (InvalidLabels, InvalidBatch),
        (UnknownClass, InvalidRequest),
        (ClassExists, InvalidRequest),
        (UnknownVersion, InvalidRequest),
    ],
)
def test_the_tree_says_who_can_fix_it(error: type[GMRError], parent: type[GMRError]) -> None:
    assert issubclass(error, parent)


def test_the_numbers_of_a_message_are_at_hand_as_plain_values() -> None:
    made = [
        ShapeMismatch.features(expected=784, got=5),
        NonFiniteFeature.at(row=3, column=2, value=float("nan")),
        UnknownClass.among([9, "x"], [1, "two"]),
    ]
    contexts = [json.loads(json.dumps(error.context)) for error in made]
    assert contexts == [
        {"expected": 784, "got": 5},
        {"row": 3, "column": 2},
        {"unknown": [9, "x"], "known": [1, "two"]},
    ]


def test_messages_say_what_happened_what_was_expected_and_what_to_do() -> None:
    assert str(ShapeMismatch.features(expected=784, got=5)) == (
        "Each sample has 5 features, but this model was built for 784. "
        "Check that images are flattened and that the stream is the right one."
    )
    assert str(NonFiniteFeature.at(row=3, column=2, value=float("nan"))) == (
        "The feature at row 3, column 2 is nan; every feature must be a finite number. "
        "Replace or drop missing values before sending."
    )
    assert str(UnknownClass.among(["x"], [1, "two"])) == (
        "The model has never seen the class 'x'. Known classes: 1, 'two'. Ask for one of these."
    )
    assert "none yet" in str(UnknownClass.among(["x"], []))


def test_messages_say_what_to_do_without_a_service_too() -> None:
    told = str(InvalidLabels.too_many_classes(5, 4))
    assert "raise max_classes (GMR_MAX_CLASSES of a service; while it runs, " in told
    assert told.endswith("gmr settings max_classes=N).")
    assert str(ModelNotReady.nothing_learned()).endswith(
        "Let it learn some (POST /ingest of a service)."
    )
    assert str(UnknownProposal.among(3, [1, 2])).endswith(
        "Choose one of these (GET /drift/proposals of a service)."
    )
    assert "Engine.change_mode" in str(ModelAtRest.of("frozen", "nothing is learned"))


def test_an_error_without_numbers_has_an_empty_context() -> None:
    assert GMRError("no").context == {}

"""Tests for the service.api.flags module."""

from __future__ import annotations

import pytest

from core.errors import InvalidRequest
from service.api.flags import flag_of


@pytest.mark.parametrize(
    ("value", "expected"), [(True, True), (False, False), ("true", True), ("False", False)]
)
def test_a_flag_is_read_from_json_and_from_text(value: object, expected: bool) -> None:
    assert flag_of("p_values", value) is expected


@pytest.mark.parametrize("value", [1, 0, None, "", "yes", [], {"true": True}])
def test_what_is_neither_true_nor_false_is_refused(value: object) -> None:
    with pytest.raises(InvalidRequest, match="`p_values` is neither true nor false"):
        flag_of("p_values", value)

"""Tests for service.api.services."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from service.api.followed import FollowedModels
from service.api.parts import Parts
from service.api.services import Services


def test_a_process_that_ends_lets_the_endless_answers_of_all_its_models_end() -> None:
    drained: list[str] = []
    own: Any = SimpleNamespace(
        settings=None, stream=None, drain=lambda: drained.append("own model")
    )
    followed: Any = SimpleNamespace(drain=lambda: drained.append("named models"))
    Services(cast(Parts, own), cast(FollowedModels, followed)).drain()
    assert drained == ["own model", "named models"]

"""Tests for the named models that an API process follows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from service.settings import Settings
from tests.service.api.stack import of_model, serving, training, wait_until


def test_settings_of_a_model_are_not_made_anew_for_every_request(
    settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To make them takes longer than most requests do."""
    own = settings()
    with training(own), serving(own) as client:
        assert client.put("/models/asked").status_code == 201
        with of_model(client, "asked") as asked:
            wait_until(lambda: asked.get("/drift").status_code == 200)
            made: list[str] = []
            for_model = Settings.for_model

            def counted(self: Settings, name: str, given: dict[str, object]) -> Settings:
                made.append(name)
                return for_model(self, name, given)

            monkeypatch.setattr(Settings, "for_model", counted)
            for _ in range(5):
                assert asked.get("/drift").status_code == 200
    assert not made

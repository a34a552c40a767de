"""Tests for the named models that an API process follows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from core.errors import InvalidSettings
from service.api.followed import Followed, FollowedModels
from service.api.metrics import ApiMetrics
from service.broker.registry import NamedModel
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


@pytest.mark.anyio
async def test_whoever_comes_while_others_wait_waits_with_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else a model would be followed twice, and nobody would let go of the first."""
    process: Any = SimpleNamespace(
        settings=SimpleNamespace(api_models=5), metrics=ApiMetrics(), workers=None
    )
    loading = [0]
    most = 0

    async def follow(*_: object) -> Followed:
        nonlocal most
        number = len(loading)
        loading[:] = [*loading, 1]
        most = max(most, sum(loading))
        await asyncio.sleep(0.05)
        loading[number] = 0
        if number == 1:
            raise InvalidSettings("It cannot be loaded. Expected it to. Try again.")
        return Followed(model, process, [])

    monkeypatch.setattr(FollowedModels, "_follow", follow)
    followed, model, service = FollowedModels(process, "cpu"), NamedModel("m"), Settings()
    stream: Any = None
    first, second = (asyncio.create_task(followed.parts(model, service, stream)) for _ in range(2))
    with pytest.raises(InvalidSettings):
        await first
    third = asyncio.create_task(followed.parts(model, service, stream))
    assert await second is await third is process
    assert (len(loading), most) == (3, 1)

"""Tests for service.api.probe: the health check of a container."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

import orjson
import pytest
import redis
from pydantic import SecretStr

from benchmarks._ports import free_port
from service.api.probe import check, main
from service.broker.keys import Keys
from service.broker.lease import machine
from service.settings import Settings
from tests.service.api.stack import serving, training, wait_until


def test_a_live_api_is_found_and_says_why_it_is_not_ready(
    settings: Callable[..., Settings],
) -> None:
    made = settings(port=free_port())
    with serving(made):
        assert check("live", made) is None
        wrong = check("ready", made)
        assert wrong is not None
        assert "No trainer has reported yet" in wrong
        with training(made):
            wait_until(lambda: check("ready", made) is None)


def test_no_api_is_noticed(settings: Callable[..., Settings]) -> None:
    wrong = check("live", settings(port=free_port()))
    assert wrong is not None
    assert "ConnectionRefusedError" in wrong


def test_the_trainer_is_known_by_its_heartbeat(
    settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = settings()
    assert check("trainer", made) == "the trainer has not reported yet"
    with training(made):
        wait_until(lambda: check("trainer", made) is None)
    monkeypatch.setattr("service.api.probe.HEARTBEAT_S", -1)
    wrong = check("trainer", made)
    assert wrong is not None
    assert wrong.startswith("the trainer last reported")


def test_a_trainer_that_breathes_and_hangs_is_noticed(settings: Callable[..., Settings]) -> None:
    made = settings(stall_s=5)
    status = {"time": time.time(), "stalled_s": 6.0, "last_entry_id": "1-0"}
    with redis.Redis.from_url(str(made.redis_address())) as client:
        client.set(Keys(made.model).status, orjson.dumps(status))
        assert check("trainer", made) == "The trainer has hung for 6 seconds after entry 1-0."
        client.set(Keys(made.model).status, orjson.dumps({**status, "stalled_s": 4.0}))
        assert check("trainer", made) is None


def test_a_redis_that_is_away_is_a_reason() -> None:
    settings = Settings(redis_url=SecretStr(f"redis://127.0.0.1:{free_port()}"))
    wrong = check("trainer", settings)
    assert wrong is not None
    assert wrong.startswith("Redis: ConnectionError")


def test_a_container_is_to_blame_only_for_a_trainer_of_its_own(
    settings: Callable[..., Settings],
) -> None:
    made = settings(stall_s=5)
    keys = Keys(made.model)
    assert check("trainer-here", made) is None  # it starts, or stands by
    status = {"time": time.time(), "stalled_s": 6.0, "last_entry_id": "1-0"}
    with redis.Redis.from_url(str(made.redis_address())) as client:
        client.set(keys.status, orjson.dumps(status))
        client.set(keys.fence, orjson.dumps({"machine": "elsewhere", "pid": 1}))
        assert check("trainer-here", made) is None
        client.set(keys.fence, orjson.dumps({"machine": machine(), "pid": 1}))
        wrong = check("trainer-here", made)
        assert (
            wrong == check("trainer", made) == "The trainer has hung for 6 seconds after entry 1-0."
        )
    away = Settings(redis_url=SecretStr(f"redis://127.0.0.1:{free_port()}"))
    assert check("trainer-here", away) is None


@pytest.mark.parametrize("arguments", [[], ["all"], ["live", "ready"]])
def test_anything_else_is_explained(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 1
    assert "expected one of: live, ready" in capsys.readouterr().err


def test_it_loads_nothing_heavy() -> None:
    code = "import sys, service.api.probe; print({'torch', 'fastapi'} & set(sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "set()"

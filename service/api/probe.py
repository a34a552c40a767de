"""`python -m service.api.probe live|ready|trainer|trainer-here`: the health check of a container.

Ends with status 0 when all is well, else with 1 and the reason. It loads neither torch
nor the framework, so that it may run every few seconds.
"""

from __future__ import annotations

import http.client
import sys
import time
from typing import Final

import orjson
import redis

from core.errors import GMRError
from service.broker.connection import connect, identity_of
from service.broker.keys import Keys
from service.broker.lease import machine
from service.loopback import connection_to_self
from service.settings import Settings
from service.trainer.activity import stall_of

TIMEOUT_S: Final = 3.0
HEARTBEAT_S: Final = 30.0
USAGE: Final = (
    "expected one of: live, ready (ask the API here), trainer (look at its last report), "
    "trainer-here (the same, where the one that began last runs here)"
)


def check(what: str, settings: Settings) -> str | None:
    """What is wrong, or None.

    Arguments:
        what: `live` or `ready` asks the API of this machine, `trainer` looks at its last report.
            `trainer-here` says when to restart this container: one whose trainer stands by, or
            cannot reach Redis, is not to blame.
    """
    if what in ("live", "ready"):
        return _check_api(f"/health/{what}", settings.port, settings.scheme)
    if what in ("trainer", "trainer-here"):
        return _check_trainer(settings, only_here=what == "trainer-here")
    return USAGE


def _check_api(path: str, port: int, scheme: str) -> str | None:
    connection = connection_to_self("127.0.0.1", port, scheme, timeout_s=TIMEOUT_S)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        body = response.read().decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        return f"{path} on port {port}: {type(error).__name__}: {error}"
    finally:
        connection.close()
    return None if response.status == 200 else f"{path}: {response.status} {body}"


def _check_trainer(settings: Settings, *, only_here: bool) -> str | None:
    address = settings.redis_address()
    if address is None:
        return "no GMR_REDIS_URL to look for the trainer's heartbeat in"
    client = connect(address, identity=identity_of(settings))
    keys = Keys(settings.model)
    try:
        began, status = client.get(keys.fence), client.get(keys.status)
    except (redis.RedisError, OSError) as error:
        return None if only_here else f"Redis: {type(error).__name__}: {error}"
    finally:
        client.close()
    if only_here and not _is_here(began):
        return None
    if not isinstance(status, bytes):
        return "the trainer has not reported yet"
    told = orjson.loads(status)
    age = time.time() - float(told["time"])
    if age > HEARTBEAT_S:
        return f"the trainer last reported {age:.0f} s ago"
    return stall_of(told, settings.stall_s)  # it may breathe, and hang at a disk


def _is_here(token: object) -> bool:
    """Whether a holder of the fence is of this container."""
    return isinstance(token, bytes) and orjson.loads(token).get("machine") == machine()


def main(arguments: list[str]) -> int:
    """The exit status."""
    try:
        wrong = check(arguments[0], Settings.load()) if len(arguments) == 1 else USAGE
    except GMRError as error:
        wrong = str(error)
    if wrong is not None:
        print(wrong, file=sys.stderr)
    return 0 if wrong is None else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What Redis may refuse, and what is done about it: one table.

Rules of this module:

1. A refusal is known by its code, the first word of the error. A script that meets one has it
   within a longer text, which differs between versions.
2. Waiting helps against what passes: the trainer goes on waiting, and the API answers 503. What
   does not pass ends the trainer with status 2, because the operator must change something.
3. A refused command has changed nothing. A script that may not go on (`NOPERM`) may have begun.
4. What is said to others names no address, user or file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Refusal:
    """One row of the table.

    Arguments:
        what: Why, for people.
        advice: For whoever runs the service.
        passes: Whether waiting may help.
        soon: Whether it may within seconds, so that the API repeats the command before it answers.
    """

    what: str
    advice: str
    passes: bool = True
    soon: bool = False


REFUSALS: Final[Mapping[str, Refusal]] = {
    "OOM": Refusal(
        "Redis has no memory left",
        "If this lasts, raise its memory (GMR_REDIS_MAXMEMORY_MIB for the embedded one) or lower "
        "GMR_MAX_BACKLOG.",
    ),
    "MISCONF": Refusal(
        "Redis cannot write to its disk",
        "Make room on the disk of Redis, and look at its log.",
    ),
    "NOREPLICAS": Refusal(
        "Redis has fewer replicas than it is set to want",
        "Bring its replicas back, or lower its min-replicas-to-write.",
    ),
    "READONLY": Refusal(
        "this Redis is a replica, which takes no writes",
        "Name the primary in GMR_REDIS_URL, if this is no fail-over.",
        soon=True,
    ),
    "LOADING": Refusal(
        "Redis is still reading its data", "Wait until it has read everything.", soon=True
    ),
    "MASTERDOWN": Refusal(
        "this Redis is a replica that has lost its primary",
        "Bring the primary back, or let a replica take over.",
        soon=True,
    ),
    "CLUSTERDOWN": Refusal(
        "the Redis cluster is down", "Bring back the nodes that are missing.", soon=True
    ),
    "TRYAGAIN": Refusal(
        "the Redis cluster is moving the model to another node", "Wait until it is done.", soon=True
    ),
    "NOPERM": Refusal(
        "the service's user of Redis may not do what this needs",
        "Give it the rights of deploy/redis/users.acl.",
        passes=False,
    ),
    "WRONGPASS": Refusal(
        "Redis does not take the service's user or password",
        "Correct them in GMR_REDIS_URL.",
        passes=False,
    ),
    "NOAUTH": Refusal(
        "Redis wants a user and password",
        "Put them into GMR_REDIS_URL: redis://user:password@host:6379/0.",
        passes=False,
    ),
    "DENIED": Refusal(
        "Redis runs in protected mode, and takes nobody from elsewhere",
        "Give it users with passwords (deploy/redis/users.acl).",
        passes=False,
    ),
}

_CODE: Final = re.compile(rf"(?:^|: -)({'|'.join(REFUSALS)})\b")
_SCRIPT_MAY_NOT: Final = "The user executing the script can't"


def refusal_of(error: BaseException) -> tuple[str, Refusal] | None:
    """The code of an error of Redis and its row; None for what is no refusal.

    Example:
        >>> from redis.exceptions import ResponseError
        >>> text = "Error running script: @user_script: 29: -MISCONF Redis is configured to save"
        >>> code, row = refusal_of(ResponseError(text))
        >>> code, row.passes
        ('MISCONF', True)
        >>> refusal_of(ResponseError("WRONGTYPE Operation against a key")) is None
        True
    """
    for one in (error, error.__cause__):  # the asyncio client wraps what it meets when connecting
        if one is None:
            continue
        code = str(getattr(one, "status_code", None))
        if code in REFUSALS:
            return code, REFUSALS[code]
        text = str(one)
        if _SCRIPT_MAY_NOT in text:
            return "NOPERM", REFUSALS["NOPERM"]
        # Texts of values, such as names of keys, come after the code.
        found = _CODE.search(text[:400])
        if found is not None:
            return found[1], REFUSALS[found[1]]
    return None

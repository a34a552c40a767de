"""What must hold before hosts are begun, and how many buckets a cluster has for ever."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from core.errors import InvalidSettings
from service.broker.connection import SyncClient
from service.broker.keys import Keys
from service.cluster.buckets import service_of
from service.settings import Settings

GCS_VARIABLE: Final = "RAY_REDIS_ADDRESS"
"""By which Ray's head keeps what it knows outside of itself."""


def check(settings: Settings, environment: Mapping[str, str], *, accept_gcs: bool) -> None:
    """Refuse a cluster that could lose itself or what its models have learned.

    Arguments:
        settings: Of the cluster.
        environment: Of the process.
        accept_gcs: Whether a head that forgets all with its process is accepted.

    Raises:
        InvalidSettings: It could.
    """
    if settings.redis_address() is None:
        raise InvalidSettings(
            "A cluster needs a Redis that all its machines reach. Set GMR_REDIS_URL, or try it on "
            "this machine by --local 3."
        )
    if not settings.checkpoints_in_store:
        raise InvalidSettings(
            "A cluster needs checkpoints that all its machines reach. Set GMR_CHECKPOINTS to "
            "s3://BUCKET/PREFIX, gs://, az://, file:///PATH on a shared folder, or, for models of "
            "up to a few megabytes, redis."
        )
    if not environment.get(GCS_VARIABLE) and not accept_gcs:
        raise InvalidSettings(
            f"{GCS_VARIABLE} is not set, so that Ray's head would keep what it knows in memory: "
            f"when it dies, every host is lost and must be begun anew by hand (no model is). Start "
            f"the head with {GCS_VARIABLE} naming a Redis of its own and set it here as well, or "
            f"say --accept-gcs-in-memory."
        )


def begun(client: SyncClient, model: str) -> int | None:
    """The number of buckets of a cluster; None where it was never begun.

    Arguments:
        client: To its Redis.
        model: The `GMR_MODEL` of the cluster.
    """
    found: Any = client.get(Keys(model).cluster)
    return None if found is None else int(found)


def held(client: SyncClient, model: str, buckets: Iterable[int]) -> list[int]:
    """Those of some buckets of which a trainer has the lease, wherever it is.

    Arguments:
        client: To the Redis of the cluster.
        model: The `GMR_MODEL` of the cluster.
        buckets: Which to look at.
    """
    return [one for one in buckets if client.exists(Keys(service_of(model, one)).lease)]


def agree(client: SyncClient, model: str, buckets: int | None, default: int) -> int:
    """The number of buckets of a cluster, fixed when it is first begun.

    Arguments:
        client: To its Redis.
        model: The `GMR_MODEL` of the cluster.
        buckets: What was asked for; None: what it has.
        default: What a new one gets.

    Raises:
        InvalidSettings: It has another number.
    """
    key = Keys(model).cluster
    client.set(key, str(buckets or default), nx=True)
    found: Any = client.get(key)
    has = int(found)
    if buckets is not None and buckets != has:
        raise InvalidSettings(
            f"The cluster {model!r} has {has} buckets, and {buckets} were asked for. The number "
            f"decides which bucket a model belongs to, and cannot change. Leave --buckets out, or "
            f"begin another cluster under another GMR_MODEL."
        )
    return has

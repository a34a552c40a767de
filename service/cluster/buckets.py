"""Which service of a cluster a model belongs to, by its name alone.

A cluster has a fixed number of *buckets*. Each is a service of its own (a `GMR_MODEL` with its
named models, its lease and its fence), so that buckets are led, moved and lost one by one.
"""

from __future__ import annotations

import binascii
from typing import Final

from service.settings import Settings

MOST_BUCKETS: Final = 256


def bucket_of(name: str, buckets: int) -> int:
    """The bucket of a model, for as long as the number of buckets is the same.

    Arguments:
        name: Of the model.
        buckets: How many there are.

    Example:
        >>> [bucket_of(name, 8) for name in ("pump-1", "pump-2", "pump-3")]
        [1, 2, 3]
    """
    # The checksum that Redis Cluster divides keys by: the same everywhere, and for ever.
    return binascii.crc_hqx(name.encode(), 0) % buckets


def service_of(model: str, bucket: int) -> str:
    """The `GMR_MODEL` of a bucket.

    Arguments:
        model: The `GMR_MODEL` of the cluster.
        bucket: From 0.

    Example:
        >>> service_of("plant", 7)
        'plant-b007'
    """
    return f"{model}-b{bucket:03d}"


def settings_of(cluster: Settings, bucket: int) -> Settings:
    """The settings of the service that is a bucket.

    Arguments:
        cluster: Settings of the cluster.
        bucket: From 0.

    Example:
        >>> own = settings_of(Settings(model="plant", data_dir="data"), 7)
        >>> own.model, own.data_dir.as_posix(), own.snapshot_store
        ('plant-b007', 'data/b007', 'redis')
    """
    changes = {
        "model": service_of(cluster.model, bucket),
        "data_dir": cluster.data_dir / f"b{bucket:03d}",
        "snapshot_store": "redis",  # whoever answers need not be where it is learned
    }
    return cluster.model_copy(update=changes)

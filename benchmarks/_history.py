"""A long history of batches, written as a trainer writes it, without the hours that it takes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import orjson

from core.events import BatchLearned, BatchSetAside
from service.broker.connection import connect
from service.broker.keys import Keys

FIRST_S = 1_795_000_000


def event(index: int, first_s: int = FIRST_S) -> dict[str, Any]:
    """What the trainer reports of batch `index`, one a second; 100 samples each.

    Arguments:
        index: Of the batch, from 0.
        first_s: When the first one came, in seconds since 1970.
    """
    armed, aside = index % 1000 > 50, index % 500 in (490, 491)
    rate = 0.9 - 0.4 * aside + 0.05 * math.sin(index / 30)
    said: dict[str, Any] = {
        "batch_index": index,
        "sample_index": 100 * index,
        "samples": 100,
        "labelled": 100 * (index % 3 > 0),
        "sub_task": index // 1000,
        "inlier_rate": rate if armed else None,
        "inlier_rate_mean": 0.9 if armed else None,
        "log_likelihood_mean": 300 + 20 * math.sin(index / 200),
        "statistic": 20.0 * aside + abs(math.sin(index / 40)),
        "threshold": 10.0 if armed else 0.0,
        "statistics": {"fused": 20.0 * aside + abs(math.sin(index / 40)), "paper": rate / 10},
        "thresholds": {"fused": 10.0 if armed else 0.0, "paper": 0.2},
        "armed": armed,
        "prequential_accuracy": 0.95 if index % 3 else None,
        "prequential_accuracy_mean": 0.95,
        "model_version": index,
    }
    made = (
        BatchSetAside(**said, set_aside_batches=1, set_aside_samples=100)
        if aside
        else BatchLearned(**said, replayed=0, components=10, classes=2)
    )
    record_id = f"{1000 * (first_s + index)}-0"
    return {**made.to_dict(), "entry_id": record_id, "time": float(first_s + index)}


def write(redis_url: str, model: str, batches: int, first_s: int = FIRST_S) -> None:
    """Put so many batches into the history of a model."""
    keys = Keys(model)
    with connect(redis_url) as client:
        for part in _parts(batches):
            pipe = client.pipeline(transaction=False)
            for index in part:
                row = event(index, first_s)
                pipe.xadd(keys.history, {"data": orjson.dumps(row)}, id=row["entry_id"])
            pipe.execute()


def _parts(batches: int, size: int = 1000) -> Iterator[range]:
    for begin in range(0, batches, size):
        yield range(begin, min(begin + size, batches))

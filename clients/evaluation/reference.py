"""A fresh model for each sub-task: what forward transfer is measured against.

Each sub-task after the first is streamed once more, batch by batch and with the same labels, to a
named model of the same service and settings, which knows nothing else. It is taken down afterwards.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Sequence
from typing import Any

from numpy.typing import NDArray

from clients.http.client import GMRClient

Batch = tuple[NDArray[Any], Sequence[Any]]
"""Samples, and labels as they are sent: None for one that is hidden."""


def reference_accuracy(client: GMRClient, batches: Iterator[Batch]) -> float:
    """The prequential accuracy of a model that learns these batches and nothing else.

    Arguments:
        client: Of the service whose settings the model has.
        batches: Of one sub-task, in order.

    Returns:
        0 to 1; the first batch, of which it knows no class, counts as wrong. NaN without labels.

    Raises:
        ClientError: The service failed, or keeps as many named models as it may.
    """
    name = f"reference-{secrets.token_hex(6)}"
    client.make_model(name)
    try:
        sent = labelled = 0
        with GMRClient(client.url, model=name) as fresh:
            for x, labels in batches:
                fresh.ingest(x, labels)
                shown = sum(label is not None for label in labels)
                sent, labelled = sent + 1, labelled + shown
            fresh.wait_until_learned()
            points = fresh.history(max(1, sent))
        right = sum(
            point.prequential_accuracy * point.raw["labelled"]
            for point in points
            if point.prequential_accuracy is not None
        )
        return right / labelled if labelled else math.nan
    finally:
        client.take_down_model(name)

"""Kafka to gmr-stream: every message of a topic is a batch, and is learned once.

    pip install 'gmr-stream[kafka]'
    python examples/kafka_bridge.py readings --brokers localhost:9092

A message is JSON like the body of POST /ingest: `features` (rows of numbers), and where there
are any `labels` and `sample_ids`. Its place in Kafka (topic, partition, offset) is the batch's
name. The place is committed once the service holds the batch, and a message that comes again
has the same name, so that it is learned once, however often this program or Kafka is stopped
(for as long as the service remembers names: GMR_DEDUPE_TTL_S).

What can never be learned is left out, with a line that says why. Whatever else is wrong (the
service away, a key that does not count) ends the program before the message is committed.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any

import typer
from confluent_kafka import Consumer, KafkaException

from gmr import GMRClient, InvalidBatch, RequestRefused


def learn(message: Any, client: GMRClient) -> None:
    """Hand on one message of Kafka; when this returns, the service holds it or never will."""
    name = f"{message.topic()}-{message.partition()}-{message.offset()}"
    try:
        body = json.loads(message.value())
        client.ingest(
            body["features"],
            body.get("labels"),
            sample_ids=body.get("sample_ids"),
            batch_id=name,
        )
    except (KeyError, TypeError, ValueError, InvalidBatch, RequestRefused) as error:
        if isinstance(error, RequestRefused) and error.status not in (413, 422):
            raise  # such as no model of this name: not the message's fault
        print(f"{name} is left out: {error!r}", file=sys.stderr)


def bridge(consumer: Any, client: GMRClient, going: Callable[[], bool] = lambda: True) -> None:
    """Hand on what comes, in the order of each partition, as long as `going()`."""
    while going():
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error():
            raise KafkaException(message.error())
        learn(message, client)
        consumer.commit(message=message, asynchronous=False)


def main(
    topic: str,
    brokers: str = "localhost:9092",
    group: str = "gmr-stream",
    url: Annotated[str | None, typer.Option(help="Of the service; GMR_URL without it.")] = None,
    model: Annotated[str | None, typer.Option(help="A named model.")] = None,
) -> None:
    """Hand on TOPIC, from where this group stopped."""
    consumer = Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,  # only what the service holds is done
        }
    )
    consumer.subscribe([topic])
    try:
        with suppress(KeyboardInterrupt), GMRClient(url, model=model) as client:
            bridge(consumer, client)
    finally:
        consumer.close()


if __name__ == "__main__":
    typer.run(main)

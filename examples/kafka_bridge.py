"""Kafka to gmr-stream: every message of a topic is learned once, those that wait together at once.

    pip install 'gmr-stream[kafka]'
    python examples/kafka_bridge.py readings --brokers localhost:9092

A message is JSON like the body of POST /ingest: `features` (rows of numbers), and where there
are any `labels` and `sample_ids`. Messages of a partition that have come by the time go as one
batch, so that a topic of single samples is followed, too.

A batch is named by its place in Kafka (topic, partition, first and last offset). Before several
messages are sent, Kafka is told which belong together: the offset of the first is committed, with
that of the last as its metadata. Once the service holds them, the place behind them is committed.
So wherever this program, Kafka or the service is stopped, the group's next reader sends the same
messages under the same name, and they are learned once (for as long as the service remembers
names: GMR_DEDUPE_TTL_S).

What can never be learned is left out, with a line that says why. Whatever else is wrong (the
service away, a key that does not count) ends the program before the messages are committed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Annotated, Any

import typer
from confluent_kafka import Consumer, KafkaException, TopicPartition

from gmr import GMRClient, GMRError, Message, hand_on

WAIT_S = 0.1
"""Seconds for which messages are gathered, unless there are enough."""


class Bridge:
    """Hands on what a consumer reads, in the order of each partition.

    Arguments:
        consumer: That commits nothing by itself.
        client: Of the model that learns.
        together: Messages that are sent at once, at most.
    """

    def __init__(self, consumer: Any, client: GMRClient, together: int = 100) -> None:
        self._consumer = consumer
        self._client = client
        self._together = together
        self._read: dict[tuple[str, int], list[Any]] = {}  # and not sent, of each partition
        self._last: dict[
            tuple[str, int], int | None
        ] = {}  # offset that was promised to end a batch

    def run(self, going: Callable[[], bool] = lambda: True) -> None:
        """Hand on what comes, as long as `going()`."""
        while going():
            for message in self._consumer.consume(self._together, WAIT_S):
                if message.error():
                    raise KafkaException(message.error())
                self._read.setdefault((message.topic(), message.partition()), []).append(message)
            for partition, messages in self._read.items():
                if messages:
                    self._read[partition] = self._sent(partition, messages)

    def forget(self) -> None:
        """Partitions are given out anew: what is not committed comes again, to whomever."""
        self._read, self._last = {}, {}

    def _sent(self, partition: tuple[str, int], messages: list[Any]) -> list[Any]:
        """Send what belongs together; returns what is left."""
        if partition not in self._last:
            self._last[partition] = self._promised(partition)
        last = self._last[partition]
        if last is None:
            batch, left = messages[: self._together], messages[self._together :]
            if len(batch) > 1:
                promise = str(batch[-1].offset())
                self._commit(TopicPartition(*partition, batch[0].offset(), promise))
        elif messages[-1].offset() < last:
            return messages  # the others of a promise come next
        else:
            batch = [message for message in messages if message.offset() <= last]
            left = messages[len(batch) :]
        self._last[partition] = None
        if not batch:
            return left  # Kafka keeps the promised ones no longer
        place = f"{partition[0]}-{partition[1]}-"
        names = [f"{place}{message.offset()}" for message in batch]
        values = [message.value() or b"" for message in batch]
        made = [Message(value, name, name) for value, name in zip(values, names, strict=True)]
        hand_on(made, self._client)
        self._commit(TopicPartition(*partition, batch[-1].offset() + 1))
        return left

    def _promised(self, partition: tuple[str, int]) -> int | None:
        """The last offset of the batch that was being sent when the group's last reader ended."""
        [place] = self._consumer.committed([TopicPartition(*partition)], timeout=10)
        known = place.metadata or ""
        return int(known) if known.isdigit() else None  # or it is another program's

    def _commit(self, place: TopicPartition) -> None:
        self._consumer.commit(offsets=[place], asynchronous=False)


def main(
    topic: str,
    brokers: str = "localhost:9092",
    group: str = "gmr-stream",
    together: Annotated[int, typer.Option(help="Messages that are sent at once, at most.")] = 100,
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
    try:
        with suppress(KeyboardInterrupt), GMRClient(url, model=model) as client:
            bridge = Bridge(consumer, client, together)
            consumer.subscribe([topic], on_assign=lambda *_: bridge.forget())
            bridge.run()
    except (GMRError, KafkaException) as error:
        raise SystemExit(
            f"The bridge ends, and what is not committed comes again: {error}"
        ) from None
    finally:
        consumer.close()


if __name__ == "__main__":
    typer.run(main)

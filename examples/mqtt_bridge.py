"""MQTT to gmr-stream: every message of a topic is a batch.

    pip install 'gmr-stream[mqtt]'
    python examples/mqtt_bridge.py plant/+/readings --host localhost

A message is JSON like the body of POST /ingest: `features` (rows of numbers), and where there
are any `labels`, `sample_ids` and `batch_id`. The broker keeps what comes while this program is
away (quality of service 1, a session that lasts), and a message is acknowledged once the
service holds it. So none is lost; one that the broker sends again is learned once if it
carries a `batch_id`, because MQTT itself gives a message no name that lasts.

What can never be learned is left out, with a line that says why. Whatever else is wrong (the
service away, a key that does not count) ends the program before the message is acknowledged.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Annotated

import typer
from paho.mqtt.client import CallbackAPIVersion, Client, MQTTMessage

from gmr import GMRClient, InvalidBatch, RequestRefused


def learn(message: MQTTMessage, client: GMRClient) -> None:
    """Hand on one message; when this returns, the service holds it or never will."""
    try:
        body = json.loads(message.payload)
        client.ingest(
            body["features"],
            body.get("labels"),
            sample_ids=body.get("sample_ids"),
            batch_id=body.get("batch_id"),
        )
    except (KeyError, TypeError, ValueError, InvalidBatch, RequestRefused) as error:
        if isinstance(error, RequestRefused) and error.status not in (413, 422):
            raise  # such as no model of this name: not the message's fault
        print(f"a message of {message.topic} is left out: {error!r}", file=sys.stderr)


def bridge(
    topic: str,
    client: GMRClient,
    *,
    host: str = "localhost",
    port: int = 1883,
    name: str = "gmr-stream",
    going: Callable[[], bool] = lambda: True,
) -> None:
    """Hand on what comes to `topic`, in order, as long as `going()`."""
    waiting: SimpleQueue[MQTTMessage] = SimpleQueue()
    mqtt = Client(CallbackAPIVersion.VERSION2, name, clean_session=False, manual_ack=True)
    mqtt.on_connect = lambda mqtt, *_: mqtt.subscribe(topic, qos=1)  # again after a break, too
    mqtt.on_message = lambda mqtt, data, message: waiting.put(message)
    mqtt.connect(host, port)
    mqtt.loop_start()
    try:
        while going():
            try:
                message = waiting.get(timeout=0.2)
            except Empty:
                continue
            learn(message, client)
            mqtt.ack(message.mid, message.qos)
    finally:
        mqtt.disconnect()
        mqtt.loop_stop()


def main(
    topic: str,
    host: str = "localhost",
    port: int = 1883,
    name: Annotated[str, typer.Option(help="Of the session that the broker keeps.")] = "gmr-stream",
    url: Annotated[str | None, typer.Option(help="Of the service; GMR_URL without it.")] = None,
    model: Annotated[str | None, typer.Option(help="A named model.")] = None,
) -> None:
    """Hand on TOPIC, which may have wildcards."""
    with suppress(KeyboardInterrupt), GMRClient(url, model=model) as client:
        bridge(topic, client, host=host, port=port, name=name)


if __name__ == "__main__":
    typer.run(main)

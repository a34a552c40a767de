"""MQTT to gmr-stream: every message of a topic is learned, those that wait together at once.

    pip install 'gmr-stream[mqtt]'
    python examples/mqtt_bridge.py plant/+/readings --host localhost

A message is JSON like the body of POST /ingest: `features` (rows of numbers), and where there
are any `labels`, `sample_ids` and `batch_id`. Messages without a `batch_id` that have come by the
time go as one batch, so that a topic of single samples is followed, too; a broker sends only so
many before the first is acknowledged (Mosquitto: 20, unless its configuration says more).

The broker keeps what comes while this program is away (quality of service 1, a session that
lasts), and a message is acknowledged once the service holds it. So none is lost; one that the
broker sends again is learned once if it carries a `batch_id`, because MQTT itself gives a message
no name that lasts.

What can never be learned is left out, with a line that says why. Whatever else is wrong (the
service away, a key that does not count) ends the program before the message is acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Annotated

import typer
from paho.mqtt.client import CallbackAPIVersion, Client, MQTTMessage

from gmr import GMRClient, GMRError, Message, hand_on


def gathered(waiting: SimpleQueue[MQTTMessage], together: int) -> list[MQTTMessage]:
    """What has come by the time, `together` at most: nothing after a fifth of a second without."""
    messages: list[MQTTMessage] = []
    with suppress(Empty):
        messages.append(waiting.get(timeout=0.2))
        while len(messages) < together:
            messages.append(waiting.get_nowait())
    return messages


def bridge(
    topic: str,
    client: GMRClient,
    *,
    host: str = "localhost",
    port: int = 1883,
    name: str = "gmr-stream",
    together: int = 100,
    going: Callable[[], bool] = lambda: True,
) -> None:
    """Hand on what comes to `topic`, in order and `together` at once at most, while `going()`."""
    waiting: SimpleQueue[MQTTMessage] = SimpleQueue()
    mqtt = Client(CallbackAPIVersion.VERSION2, name, clean_session=False, manual_ack=True)
    mqtt.on_connect = lambda mqtt, *_: mqtt.subscribe(topic, qos=1)  # again after a break, too
    mqtt.on_message = lambda mqtt, data, message: waiting.put(message)
    mqtt.connect(host, port)
    mqtt.loop_start()
    try:
        while going():
            messages = gathered(waiting, together)
            hand_on([Message(one.payload, f"a message of {one.topic}") for one in messages], client)
            for one in messages:
                mqtt.ack(one.mid, one.qos)
    finally:
        mqtt.disconnect()
        mqtt.loop_stop()


def main(
    topic: str,
    host: str = "localhost",
    port: int = 1883,
    name: Annotated[str, typer.Option(help="Of the session that the broker keeps.")] = "gmr-stream",
    together: Annotated[int, typer.Option(help="Messages that are sent at once, at most.")] = 100,
    url: Annotated[str | None, typer.Option(help="Of the service; GMR_URL without it.")] = None,
    model: Annotated[str | None, typer.Option(help="A named model.")] = None,
) -> None:
    """Hand on TOPIC, which may have wildcards."""
    try:
        with suppress(KeyboardInterrupt), GMRClient(url, model=model) as client:
            bridge(topic, client, host=host, port=port, name=name, together=together)
    except OSError as error:
        raise SystemExit(f"No broker answers at {host}, port {port}: {error}") from None
    except GMRError as error:
        raise SystemExit(
            f"The bridge ends; what is not acknowledged comes again: {error}"
        ) from None


if __name__ == "__main__":
    typer.run(main)

"""Tests for the bridges of examples/: a real service, Kafka's mock brokers, a real MQTT broker."""

from __future__ import annotations

import contextlib
import json
import runpy
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from benchmarks._ports import free_port
from gmr import GMRClient, RetryPolicy, ServiceUnreachable
from tests.service.api.stack import (
    labels,
    make_settings,
    redis_server,
    samples,
    serving,
    training,
    wait_until,
)

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    directory = tmp_path_factory.mktemp("bridges")
    with redis_server(directory / "redis") as redis:
        settings = make_settings(redis.url, directory / "data")
        with training(settings), serving(settings) as client:
            yield client


@pytest.fixture
def model(service: httpx2.Client, request: pytest.FixtureRequest) -> Iterator[GMRClient]:
    """A fresh named model."""
    url, name = str(service.base_url).rstrip("/"), request.node.name.replace("_", "-")[:60]
    with GMRClient(url) as client:
        client.make_model(name)
    with GMRClient(url, model=name) as client:
        yield client


def batch(seed: int) -> dict[str, Any]:
    return {"features": samples(10, seed=seed).tolist(), "labels": labels(10)}


def counted(model: GMRClient) -> int:
    """Samples that the model was given, once all is learned."""
    info = model.wait_until_learned()
    return info.samples_seen + int(info.raw["unknown"])


def until(condition: Callable[[], bool]) -> Callable[[], bool]:
    """`going` of a bridge: on until the condition holds, or for half a minute."""
    late = threading.Event()
    timer = threading.Timer(30, late.set)
    timer.daemon = True
    timer.start()
    return lambda: not (late.is_set() or condition())


def test_kafka_messages_are_learned_once_however_often_they_come(
    model: GMRClient, capsys: pytest.CaptureFixture[str]
) -> None:
    kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
    bridge = runpy.run_path(str(EXAMPLES / "kafka_bridge.py"))["bridge"]
    quiet = {"log_level": 0}
    producer = kafka.Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 1, **quiet})
    [broker] = producer.list_topics(timeout=10).brokers.values()

    def consumer(group: str) -> Any:
        made = kafka.Consumer(
            {
                "bootstrap.servers": f"{broker.host}:{broker.port}",
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **quiet,
            }
        )
        # From where the group stopped; without a subscription, which the mock is slow to balance.
        made.assign([kafka.TopicPartition("readings", 0, kafka.OFFSET_STORED)])
        return made

    def read(reader: Any, offset: int) -> bool:
        # A bridge asks whether to go on after it has committed what it read.
        [place] = reader.position([kafka.TopicPartition("readings", 0)])
        return bool(place.offset >= offset)

    def send(*messages: bytes) -> None:
        for message in messages:
            producer.produce("readings", message, partition=0)
        producer.flush(10)

    send(*(json.dumps(batch(seed)).encode() for seed in range(3)), b"no JSON", b'{"features": []}')
    first = consumer("one")
    try:
        bridge(first, model, until(lambda: read(first, 5)))
    finally:
        first.close()
    assert counted(model) == 30
    left_out = capsys.readouterr().err.splitlines()
    assert [line.split(" is left out: ")[0] for line in left_out] == [
        "readings-0-3",
        "readings-0-4",
    ]

    # The same group goes on where it stopped.
    send(json.dumps(batch(3)).encode())
    second = consumer("one")
    try:
        bridge(second, model, until(lambda: read(second, 6)))
    finally:
        second.close()
    assert counted(model) == 40
    assert capsys.readouterr().err == ""

    # Another group, which has committed nothing, reads everything again: nothing is learned twice.
    again = consumer("two")
    try:
        bridge(again, model, until(lambda: read(again, 6)))
    finally:
        again.close()
    assert counted(model) == 40


def test_kafka_messages_stay_where_the_service_is_away(model: GMRClient) -> None:
    pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
    learn = runpy.run_path(str(EXAMPLES / "kafka_bridge.py"))["learn"]

    class Message:
        topic = staticmethod(lambda: "readings")
        partition = staticmethod(lambda: 0)
        offset = staticmethod(lambda: 0)
        value = staticmethod(lambda: json.dumps(batch(0)).encode())

    away = GMRClient(f"http://127.0.0.1:{free_port()}", retry=RetryPolicy(total_s=0))
    with away, pytest.raises(ServiceUnreachable):
        learn(Message(), away)


@contextlib.contextmanager
def mosquitto(directory: Path) -> Iterator[int]:
    """A real broker, and its port."""
    program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin")
    if program is None:
        pytest.skip("mosquitto is not installed (Debian: apt-get install mosquitto)")
    port = free_port()
    configuration = directory / "mosquitto.conf"
    configuration.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n", "utf-8")
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen([program, "-c", configuration], stdout=log, stderr=log)
    try:
        yield port
    finally:
        process.terminate()
        process.wait(10)


def test_mqtt_messages_wait_for_the_bridge_and_are_learned(
    model: GMRClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mqtt = pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not installed")
    bridge = runpy.run_path(str(EXAMPLES / "mqtt_bridge.py"))["bridge"]
    with mosquitto(tmp_path) as port:
        sender = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "sender")

        def connected() -> bool:
            with contextlib.suppress(OSError):
                return bool(sender.connect("127.0.0.1", port) == 0)
            return False

        wait_until(connected)
        sender.loop_start()

        def send(topic: str, body: bytes) -> None:
            sender.publish(topic, body, qos=1).wait_for_publish(10)

        def seen(n: int) -> Callable[[], bool]:
            return until(lambda: counted(model) == n)

        # The session must have been there once, for the broker to keep what comes.
        bridge("plant/+/readings", model, port=port, going=iter([True] * 5 + [False]).__next__)
        send("plant/1/readings", json.dumps({**batch(0), "batch_id": "one"}).encode())
        send("plant/2/readings", json.dumps(batch(1)).encode())
        send("plant/2/mood", json.dumps(batch(2)).encode())
        send("plant/2/readings", b"\xff")
        bridge("plant/+/readings", model, port=port, going=seen(20))
        # A name that came before is learned once.
        send("plant/1/readings", json.dumps({**batch(0), "batch_id": "one"}).encode())
        send("plant/1/readings", json.dumps(batch(3)).encode())
        bridge("plant/+/readings", model, port=port, going=seen(30))
        assert counted(model) == 30
        assert "a message of plant/2/readings is left out" in capsys.readouterr().err
        sender.loop_stop()
        sender.disconnect()

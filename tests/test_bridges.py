"""Tests for the bridges of examples/: a real service, Kafka's mock brokers, a real MQTT broker."""

from __future__ import annotations

import contextlib
import inspect
import json
import re
import runpy
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import httpx2
import pytest

from benchmarks._ports import free_port
from gmr import GMRClient, Message, RetryPolicy, ServiceUnreachable, hand_on
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


class Topic:
    """A topic of one partition, on Kafka's mock brokers."""

    def __init__(self) -> None:
        self.kafka = pytest.importorskip("confluent_kafka", reason="it is not installed")
        quiet = {"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 0}
        self._producer = self.kafka.Producer(quiet)
        [broker] = self._producer.list_topics(timeout=10).brokers.values()
        self._servers = f"{broker.host}:{broker.port}"

    def send(self, *messages: bytes) -> None:
        for message in messages:
            self._producer.produce("readings", message, partition=0)
        self._producer.flush(10)

    @contextlib.contextmanager
    def reader(self, group: str = "one") -> Iterator[Any]:
        made = self.kafka.Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
            }
        )
        # From where the group stopped; without a subscription, which the mock is slow to balance.
        made.assign([self.kafka.TopicPartition("readings", 0, self.kafka.OFFSET_STORED)])
        try:
            yield made
        finally:
            made.close()

    def committed(self, reader: Any) -> int:
        [place] = reader.committed([self.kafka.TopicPartition("readings", 0)], timeout=10)
        return int(place.offset)

    def hand_on(self, model: GMRClient, offset: int, together: int = 100) -> None:
        """Run the bridge until all before an offset is committed."""
        with self.reader() as reader:
            bridge(reader, model, together).run(until(lambda: self.committed(reader) >= offset))
            assert self.committed(reader) == offset


def bridge(*arguments: Any) -> Any:
    return runpy.run_path(str(EXAMPLES / "kafka_bridge.py"))["Bridge"](*arguments)


@pytest.fixture
def topic() -> Topic:
    return Topic()


def single(seed: int) -> bytes:
    return json.dumps({"features": samples(1, seed=seed).tolist(), "labels": ["a"]}).encode()


def test_kafka_messages_are_learned_in_batches_from_where_the_group_stopped(
    topic: Topic, model: GMRClient, capsys: pytest.CaptureFixture[str]
) -> None:
    topic.send(*(json.dumps(batch(seed)).encode() for seed in range(3)), b"no JSON", b"{}")
    topic.hand_on(model, 5)
    assert counted(model) == 30
    left_out = capsys.readouterr().err.splitlines()
    names = [line.split(" is left out: ")[0] for line in left_out]
    assert names == ["readings-0-3", "readings-0-4"]
    topic.send(*map(single, range(250)))
    topic.hand_on(model, 255)
    assert counted(model) == 280
    assert model.model().batches_seen < 30
    assert capsys.readouterr().err == ""


class Killed(Exception):
    """The bridge is gone."""


class Mortal:
    """A consumer whose n-th commit is the bridge's last deed, and comes to nothing."""

    def __init__(self, reader: Any, n: int) -> None:
        self.consume, self.committed = reader.consume, reader.committed
        self._reader, self._left = reader, n

    def commit(self, **what: Any) -> None:
        self._left -= 1
        if not self._left:
            raise Killed
        self._reader.commit(**what)


def test_kafka_messages_are_learned_once_wherever_the_bridge_is_killed(
    topic: Topic, model: GMRClient
) -> None:
    topic.send(*map(single, range(30)))
    for n in (1, 2, 3):
        with topic.reader() as reader, pytest.raises(Killed):
            bridge(Mortal(reader, n), model, 20).run(until(lambda: False))
        # What comes meanwhile must not be taken for a part of what was being sent.
        topic.send(*map(single, range(100 * n, 100 * n + 7)))
    topic.hand_on(model, 51, together=20)
    assert counted(model) == 51


def test_what_was_promised_to_another_reader_is_forgotten_with_its_partition(
    topic: Topic, model: GMRClient
) -> None:
    topic.send(*map(single, range(4)))
    with topic.reader() as reader:
        one = bridge(reader, model)
        one.run(until(lambda: topic.committed(reader) == 4))
        # Kafka gives the partition out anew: another reader promises a batch, and ends.
        topic.send(*map(single, range(4, 10)))
        promised = topic.kafka.TopicPartition("readings", 0, 4, "6")
        reader.commit(offsets=[promised], asynchronous=False)
        places = [f"readings-0-{seed}" for seed in (4, 5, 6)]
        values = [single(seed) for seed in (4, 5, 6)]
        hand_on([Message(*both, both[1]) for both in zip(values, places, strict=True)], model)
        one.forget()
        one.run(until(lambda: topic.committed(reader) == 10))
    assert counted(model) == 10


def test_kafka_messages_stay_where_the_service_is_away(topic: Topic, model: GMRClient) -> None:
    topic.send(*map(single, range(3)))
    away = GMRClient(f"http://127.0.0.1:{free_port()}", retry=RetryPolicy(total_s=0))
    with topic.reader() as reader, away, pytest.raises(ServiceUnreachable):
        bridge(reader, away).run(until(lambda: False))
    topic.hand_on(model, 3)
    assert counted(model) == 3


def test_messages_that_kafka_has_deleted_are_waited_for_no_longer(
    topic: Topic, model: GMRClient
) -> None:
    topic.send(*map(single, range(10)))
    with topic.reader() as reader:
        promised = topic.kafka.TopicPartition("readings", 0, 4, "3")
        reader.commit(offsets=[promised], asynchronous=False)
    topic.hand_on(model, 10)
    assert counted(model) == 6


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


@pytest.mark.parametrize("kind", ["kafka", "mqtt"])
def test_a_bridge_has_the_options_that_the_page_names(kind: str) -> None:
    pytest.importorskip({"kafka": "confluent_kafka", "mqtt": "paho.mqtt.client"}[kind])
    page = (EXAMPLES.parent / "docs" / "howto" / "brokers.md").read_text("utf-8")
    options = set(re.findall(r"`--([a-z]+)`", page))
    main = runpy.run_path(str(EXAMPLES / f"{kind}_bridge.py"))["main"]
    assert "together" in options
    assert options <= set(inspect.signature(main).parameters)


def test_as_many_mqtt_messages_are_gathered_as_may_go_together() -> None:
    pytest.importorskip("paho.mqtt.client", reason="paho-mqtt is not installed")
    gathered = runpy.run_path(str(EXAMPLES / "mqtt_bridge.py"))["gathered"]
    waiting: SimpleQueue[int] = SimpleQueue()
    for one in range(5):
        waiting.put(one)
    assert [gathered(waiting, 3), gathered(waiting, 3), gathered(waiting, 3)] == [
        [0, 1, 2],
        [3, 4],
        [],
    ]


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
        before = model.model().batches_seen
        for seed in range(60):
            send("plant/1/readings", single(seed))
        bridge("plant/+/readings", model, port=port, going=seen(90))
        assert counted(model) == 90
        assert model.model().batches_seen - before < 30
        assert "a message of plant/2/readings is left out" in capsys.readouterr().err
        sender.loop_stop()
        sender.disconnect()

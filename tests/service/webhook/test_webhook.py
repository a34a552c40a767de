"""The webhook as a whole: a trainer that learns, and a receiver that hears of it, or does not."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from pydantic import SecretStr

from service.broker.feature_names import FeatureNames
from service.broker.keys import Keys
from service.logs import configure_logs
from service.settings import Settings
from service.wire import Control
from tests.service.running import ask, send, sub_tasks, training, wait_for_backlog, wait_until
from tests.service.trainer.test_named_models import register
from tests.service.webhook.listening import SECRET, is_signed, listening

MakeSettings = Callable[..., Settings]


def with_webhook(settings: MakeSettings, url: str, **overrides: object) -> Settings:
    return settings(webhook_url=SecretStr(url), webhook_secret=SecretStr(SECRET), **overrides)


def boundary_ids(settings: Settings) -> list[str]:
    return [record.id for record in ask(settings, lambda stream: stream.reports.boundaries())]


def test_the_receiver_hears_of_every_boundary_with_its_explanation(settings: MakeSettings) -> None:
    with listening() as there:
        made = with_webhook(settings, there.url)
        send(made, *sub_tasks(0, 1, 2))
        with training(made) as trainer:
            wait_for_backlog(made)
            expected = boundary_ids(made)
            assert len(expected) == 2
            wait_until(lambda: len(there.received) == 2)
            wait_until(
                lambda: (
                    b'deliveries_total{outcome="delivered"} 2'
                    in trainer.default._parts.metrics.text()
                )
            )
        assert there.ids == [event["id"] for event in there.events] == expected
        assert all(is_signed(SECRET, headers, body) for headers, body in there.received)
        told = there.events[0]["data"]
        assert told["boundary"] == 1
        assert told["estimated_start_entry_id"]
        assert {row["name"] for row in told["explanation"]["features"]} == {None}
        assert "prototypes" not in told["explanation"]
        assert there.events[0]["source"] == f"/gmr/models/{made.model}"


def test_the_receiver_hears_of_a_change_that_is_not_crossed(settings: MakeSettings) -> None:
    with listening() as there:
        made = with_webhook(settings, there.url)
        send(made, *sub_tasks(0), Control("mode", mode="detect_only"), *sub_tasks(1))
        with training(made):
            wait_for_backlog(made)
            wait_until(lambda: there.received)
        assert there.events[0]["type"] == "gmr.change_detected"
        assert boundary_ids(made) == []


def test_attempts_are_counted_from_none(settings: MakeSettings) -> None:
    """A series that begins at 1 has no increase, and the alert would not end with the first."""
    with listening() as there:
        made = with_webhook(settings, there.url)
        with training(made) as trainer:
            text = trainer.default._parts.metrics.text().decode()
    for outcome in ("delivered", "failed", "refused"):
        assert f'\ngmr_webhook_deliveries_total{{outcome="{outcome}"}} 0.0\n' in text


def test_the_receiver_hears_the_names_of_features(settings: MakeSettings) -> None:
    with listening() as there:
        made = with_webhook(settings, there.url)
        batches = sub_tasks(0, 1)
        send(made, *batches)
        names = [f"sensor {i}" for i in range(batches[0].n_features)]
        ask(made, lambda stream: FeatureNames(stream).keep(names))
        with training(made):
            wait_until(lambda: len(there.received) == 1)
        [event] = there.events
        features = event["data"]["explanation"]["features"]
        assert features
        assert all(row["name"] == names[row["feature"]] for row in features)


def test_a_receiver_that_is_down_neither_stops_learning_nor_misses_anything(
    settings: MakeSettings,
) -> None:
    with listening() as gone:
        pass
    port = int(gone.url.split(":")[2].split("/")[0])
    made = with_webhook(settings, gone.url)
    with training(made):
        send(made, *sub_tasks(0, 1, 2))
        wait_for_backlog(made)
        assert len(boundary_ids(made)) == 2
    # The trainer has gone and come again; now there is someone to hear of both.
    with listening(port) as there, training(made):
        wait_until(lambda: len(there.received) == 2)
        assert there.ids == boundary_ids(made)


def test_only_the_kinds_that_are_set_are_told_and_without_a_webhook_none_wait(
    settings: MakeSettings,
) -> None:
    with listening() as there:
        made = with_webhook(settings, there.url, webhook_events="class_discovered, yet_to_come")
        with training(made):
            send(made, *sub_tasks(0, 1, batches=2))
            wait_until(lambda: len(there.received) == 2)
        assert {event["type"] for event in there.events} == {"gmr.class_discovered"}
    plain = settings()
    with training(plain) as trainer:
        send(plain, *sub_tasks(3, batches=1))
        wait_for_backlog(plain)
        assert trainer._client.xlen(trainer.default.feed.keys.outbox) == 0


def test_a_named_model_that_is_quiet_tells_what_waits(settings: MakeSettings) -> None:
    with listening() as gone:
        pass
    port = int(gone.url.split(":")[2].split("/")[0])
    made = with_webhook(settings, gone.url, unload_after_s=0.3, settle_after_s=0.1)
    own, silent = register(made, "pump"), register(made, "silent")
    with training(made) as trainer:
        for batch in sub_tasks(0, 1):
            send(own, batch)
        send(silent, *sub_tasks(3, batches=1))
        wait_for_backlog(own)
        assert len(boundary_ids(own)) == 1
        wait_until(lambda: [slot.model.name for slot in trainer._named.loaded] == ["pump"])
    with training(made) as trainer:  # nothing comes, and somebody is there to hear of it
        wait_until(lambda: trainer._named.loaded)
        with listening(port) as there:
            wait_until(lambda: len(there.received) == 1)
            assert there.ids == boundary_ids(own)
            wait_until(lambda: not trainer._named.loaded)


def test_a_model_that_was_let_go_for_room_tells_the_rest_later(
    settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.trainer.named_models.TELL_AGAIN_S", 0.2)
    with listening() as gone:
        pass
    port = int(gone.url.split(":")[2].split("/")[0])
    made = with_webhook(settings, gone.url, settle_after_s=0.1)
    own = register(made, "pump")
    with training(made) as trainer:
        send(own, *sub_tasks(0, 1))
        wait_for_backlog(own)
        monkeypatch.setattr("service.trainer.named_models.MIB", 0)  # no room at all
        wait_until(lambda: not trainer._named.loaded)
        assert trainer._client.xlen(Keys(own.model).outbox) == 1
        with listening(port) as there:
            wait_until(lambda: there.ids == boundary_ids(own))


@pytest.mark.parametrize("level", ["info", "debug"])
def test_no_part_of_the_address_is_logged(
    settings: MakeSettings, capfd: pytest.CaptureFixture[str], level: str
) -> None:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    with listening() as gone:
        pass
    port = int(gone.url.split(":")[2].split("/")[0])
    url = f"http://watcher:s3cret-word@127.0.0.1:{port}/hook/t0ken-in-path?key=t0ken-in-query"
    made = with_webhook(settings, url, log_level=level)
    try:
        configure_logs(made, "trainer")
        with training(made) as trainer:
            send(made, *sub_tasks(0, 1))

            def told(outcome: str) -> bool:
                text = trainer.default._parts.metrics.text().decode()
                return f'deliveries_total{{outcome="{outcome}"}} ' in text.replace(" 0.0", "")

            wait_until(lambda: told("failed"))
            with listening(port) as there:
                wait_until(lambda: there.received)
                wait_until(lambda: told("delivered"))
    finally:
        root.handlers, root.level = before
    log = capfd.readouterr().err
    assert "was not taken" in log
    assert "delivered" in log
    for part in ("watcher", "s3cret", "t0ken", str(port), "/hook"):
        assert part not in log

"""Images of a watched folder are sent once each, whatever happens in between."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from PIL import Image

from clients.data.arrivals import Arrival, arrival_of
from clients.data.formats.image import ImageForm
from clients.http.answers import Ingested, IngestState
from clients.http.calls import Call
from clients.http.client import GMRClient
from clients.http.errors import (
    ClientError,
    InputError,
    RequestConflict,
    RequestRefused,
    ServiceError,
)
from clients.sending.group_log import GroupLog, ImageGroup
from clients.sending.samples import Totals
from clients.sending.watched_images import WatchedImages
from service.api.problems import PROBLEMS
from service.broker.stream_errors import BatchConflict
from service.wire import unpack

_CONFLICT = PROBLEMS[BatchConflict].type


def state(**facts: Any) -> IngestState:
    """Of a service that holds all that was sent, but for what is said."""
    return IngestState(**{"features": None, "last_entry_id": "9-0", "backlog": 0, **facts})


class Service:
    """Takes each id once; fails at the n-th batch, before or after it is durable.

    Refuses batches of more than `most` samples, by a status.
    """

    def __init__(
        self,
        fail_at: int | None = None,
        *,
        durable: bool = False,
        most: int = 100,
        status: int = 413,
    ) -> None:
        self._most, self._status = most, status
        self.batches: dict[str, tuple[np.ndarray[Any, Any], Any, Any]] = {}
        self.calls, self._fail_at, self._durable = 0, fail_at, durable
        self.known = state()

    def ingest_state(self) -> IngestState:
        return self.known

    def send(self, call: Call[Any]) -> Any:
        self.calls += 1
        fails = self.calls == self._fail_at
        if fails and not self._durable:
            raise KeyboardInterrupt
        assert call.body is not None
        tensors, facts = unpack(call.body)
        names = None
        if "labels" in tensors:
            vocabulary = json.loads(facts["vocabulary"])
            codes = tensors["labels"].tolist()
            names = [vocabulary[code] if code >= 0 else None for code in codes]
        if len(tensors["features"]) > self._most:
            kind = RequestConflict if self._status == 409 else RequestRefused
            raise kind(status=self._status, title="too many")
        again = facts["batch_id"] in self.batches
        if again and not np.array_equal(self.batches[facts["batch_id"]][0], tensors["features"]):
            raise RequestConflict(status=409, title="other content", type=_CONFLICT)
        self.batches.setdefault(
            facts["batch_id"], (tensors["features"], names, facts.get("sample_ids"))
        )
        if fails:
            raise KeyboardInterrupt
        return Ingested(f"{self.calls}-0", facts["batch_id"], 1, 1, again)

    def close(self) -> None:
        """Nothing."""

    def levels(self) -> list[int]:
        """The first pixel of every image that was learned."""
        return [int(image.ravel()[0]) for x, _, _ in self.batches.values() for image in x]


class Silent:
    def sent(self, totals: Totals) -> None:
        """Nothing."""


def watched(
    folder: Path, service: Service, errors: list[ClientError] | None = None, **options: Any
) -> WatchedImages:
    """Whoever sends, as after a start."""
    chosen = {"form": ImageForm(), "with_labels": True, "with_ids": False, "rate": None, **options}
    return WatchedImages(
        folder,
        cast(GMRClient, service),
        service,
        GroupLog(folder.parent / "log.jsonl"),
        "watch",
        **chosen,
        tell=[].append if errors is None else errors.append,
        listener=Silent(),
    )


def image(folder: Path, name: str, level: int, size: tuple[int, int] = (4, 3)) -> Arrival:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", size, level).save(path)
    found = arrival_of(folder, path)
    assert found is not None
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "inbox"


def test_the_folder_of_an_image_is_its_class_and_its_path_its_id(folder: Path) -> None:
    service = Service()
    group = [image(folder, "cat/a.png", 1), image(folder, "b.png", 2), image(folder, "7/c.png", 3)]
    watched(folder, service, with_ids=True).send(group)
    ((x, labels, ids),) = service.batches.values()
    assert x.shape == (3, 3, 4)
    assert labels == ["cat", None, 7]
    assert ids is not None
    assert json.loads(ids) == ["cat/a.png", "b.png", "7/c.png"]
    plain = Service()
    watched(folder, plain, with_labels=False).send(group)
    assert [labels for _, labels, _ in plain.batches.values()] == [None]


@pytest.mark.parametrize("durable", [False, True])
def test_a_group_that_was_under_way_is_sent_again_as_it_was(folder: Path, durable: bool) -> None:
    """Also where more images have come since, which would have made another group."""
    service = Service(2, durable=durable)
    first = watched(folder, service)
    first.send([image(folder, "a.png", 1)])
    with pytest.raises(KeyboardInterrupt):
        first.send([image(folder, "b.png", 2), image(folder, "c.png", 3)])
    later = image(folder, "d.png", 4)
    second = watched(folder, service)
    assert [one.file for one in second.log.images] == ["a.png", "b.png", "c.png"]
    second.send_what_is_left()
    second.send([later])
    assert service.levels() == [1, 2, 3, 4]
    assert len(service.batches) == 3
    third = watched(folder, service)
    third.send_what_is_left()
    assert service.levels() == [1, 2, 3, 4]
    assert third.totals.batches == 0


@pytest.mark.parametrize("lost", [{"last_entry_id": "1-0"}, {"restored_entry_id": "5-0"}])
def test_what_the_service_does_not_hold_any_more_is_sent_again(
    folder: Path, lost: dict[str, str]
) -> None:
    """Its data were removed, or a rollback has dropped a part: it knows the ids that it holds."""
    service = Service()
    first = watched(folder, service)
    for name, level in (("a.png", 1), ("b.png", 2), ("gone.png", 3)):
        first.send([image(folder, name, level)])
    held = dict(service.batches)
    (folder / "gone.png").unlink()
    service.known = state(**lost)
    again = watched(folder, service)
    again.send_what_is_left()
    assert (again.totals.samples, again.totals.duplicate_samples) == (2, 2)
    assert service.batches.keys() == held.keys()


def test_what_has_changed_since_is_not_part_of_a_group_that_is_sent_again(folder: Path) -> None:
    service = Service(1)
    first = watched(folder, service)
    with pytest.raises(KeyboardInterrupt):
        first.send([image(folder, "a.png", 1), image(folder, "b.png", 2)])
    image(folder, "b.png", 9)
    watched(folder, service).send_what_is_left()
    assert service.levels() == [1]


def test_a_group_that_the_service_holds_whole_is_not_sent_again_in_part(folder: Path) -> None:
    """Under its id the service knows other content, and says so."""
    service = Service(1, durable=True)
    first = watched(folder, service)
    with pytest.raises(KeyboardInterrupt):
        first.send([image(folder, "a.png", 1), image(folder, "b.png", 2)])
    (folder / "b.png").unlink()
    again = watched(folder, service)
    again.send_what_is_left()
    again.send([image(folder, "c.png", 3)])
    assert service.levels() == [1, 2, 3]
    assert watched(folder, service).log.left(service.known) == []


def test_what_the_service_refuses_may_come_in_other_groups(folder: Path) -> None:
    """Else a batch that is too large would stand in the way for ever."""
    service, errors = Service(most=2), list[ClientError]()
    group = [image(folder, f"{level}.png", level) for level in (1, 2, 3)]
    first = watched(folder, service, errors)
    first.send(group)
    assert service.levels() == []
    assert [str(error) for error in errors] == ["too many (HTTP 413)"]
    assert first.unusable == {"1.png", "2.png", "3.png"}
    again = watched(folder, service, errors)
    again.send_what_is_left()
    assert again.log.images == []
    again.send(group[:2])
    again.send(group[2:])
    assert service.levels() == [1, 2, 3]
    assert len(errors) == 1


@pytest.mark.parametrize("status", [403, 409])
def test_what_is_no_fault_of_these_images_is_told_at_once(folder: Path, status: int) -> None:
    """Whoever asks may not send, or the service takes nothing for now."""
    service = Service(most=0, status=status)
    with pytest.raises(ServiceError, match=str(status)):
        watched(folder, service).send([image(folder, "a.png", 1)])


def test_after_a_rollback_what_was_sent_since_is_known_to_be_held(folder: Path) -> None:
    service = Service()
    service.known = state(restored_entry_id="5-0")
    watched(folder, service).send([image(folder, "a.png", 1)])
    again = watched(folder, service)
    again.send_what_is_left()
    assert again.totals.batches == 0


def test_images_of_one_content_are_batches_of_their_own_by_their_names(folder: Path) -> None:
    service = Service()
    sender = watched(folder, service)
    for name in ("a.png", "b.png"):
        sender.send([image(folder, name, 1)])
    assert service.levels() == [1, 1]


def test_no_more_images_a_second_are_sent_than_is_asked_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused: list[float] = []
    monkeypatch.setattr("clients.sending.watched_images.time.sleep", paused.append)
    sender = watched(folder, Service(), rate=0.001)
    for name in ("a.png", "b.png", "c.png"):
        sender.send([image(folder, name, 1)])
    assert [round(pause, -2) for pause in paused] == [0, 1000, 2000]


def test_an_image_that_cannot_be_used_is_told_and_the_others_go_on(folder: Path) -> None:
    service, errors = Service(), list[ClientError]()
    good, large = image(folder, "good.png", 1), image(folder, "large.png", 2, (9, 9))
    bad = folder / "bad.png"
    bad.write_text("no image", "utf-8")
    torn = arrival_of(folder, bad)
    assert torn is not None
    sender = watched(folder, service, errors)
    sender.send([good, torn, large])
    sender.send([torn])
    assert service.levels() == [1]
    told = " ".join(map(str, errors))
    assert "bad.png is no image" in told
    assert "large.png is an image of 9 x 9 pixels in grey; those before are of 3 x 4" in told
    assert len(errors) == 3
    assert sender.unusable == {"bad.png", "large.png"}
    sender.send([image(folder, "bad.png", 3)])
    assert service.levels() == [1, 3]
    assert sender.unusable == {"large.png"}


def test_images_become_what_the_service_knows(folder: Path) -> None:
    service, errors = Service(), list[ClientError]()
    service.known = state(features=36, image_shape=[3, 4, 3])
    watched(folder, service, errors).send([image(folder, "a.png", 1)])
    ((x, _, _),) = service.batches.values()
    assert x.shape == (1, 3, 4, 3)
    grey = Service()
    grey.known = state(features=12)
    sender = watched(folder, grey, errors)
    sender.send([image(folder, "wide.png", 5, (9, 9))])
    sender.send([image(folder, "b.png", 6)])
    assert grey.levels() == [6]
    assert "The service expects 12 features" in str(errors[0])


def test_a_log_outlives_a_line_that_was_torn(tmp_path: Path) -> None:
    log = GroupLog(tmp_path / "state" / "log.jsonl")
    images = (Arrival("a.png", 1, 2), Arrival("ü/b c.png", 3, 4))
    log.begin(ImageGroup("one", images))
    log.acknowledged(0, "5-0", "")
    log.begin(ImageGroup("two", images[:1]))
    whole = log.path.read_bytes()
    log.path.write_bytes(whole + b'{"id":"two","ent')
    torn = GroupLog(log.path)
    assert torn.groups == log.groups
    torn.acknowledged(1, "6-0", "")
    assert GroupLog(log.path).groups == torn.groups
    assert [group.entry_id for group in torn.groups] == ["5-0", "6-0"]
    assert torn.left(state()) == []
    assert torn.left(state(last_entry_id="1-0", backlog=3)) == []  # they are on their way
    log.begin(ImageGroup("one", images))  # the same images, for they were sent again
    log.acknowledged(2, "7-0", "")
    assert [group.entry_id for group in GroupLog(log.path).groups] == ["5-0", "6-0", "7-0"]
    torn.forget()
    assert GroupLog(log.path).groups == []


def test_where_nothing_can_be_kept_it_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(InputError, match="XDG_STATE_HOME"):
        GroupLog(tmp_path / "file" / "log.jsonl").begin(ImageGroup("one", ()))

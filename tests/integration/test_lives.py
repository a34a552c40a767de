"""Random lives of a model, as a state machine: nothing is lost, and nothing is counted twice.

A life is what people do to a model over HTTP, in any order: batches with labels, without, and with
ids; labels that come later, names, bursts, repeats, boundaries, freezes, rollbacks, downloads,
uploads, other settings, other names of classes and classes that become one; while its trainer is
killed and ended. Whenever it is quiet the ledger adds up to what was sent. In the end the fates of
its batches add up, too, and its archive makes the same model again, bit for bit.
"""

from __future__ import annotations

import contextlib
import json
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
from hypothesis import Phase
from hypothesis import settings as of_hypothesis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from service.settings import Settings
from service.store.in_folder import kept_in
from service.upkeep.rebuild import rebuild
from tests.chaos.oracle import as_a_trainer
from tests.service.api.stack import (
    SAFETENSORS,
    make_settings,
    of_model,
    redis_server,
    serving,
    wait_until,
)
from tests.service.forked import TRAINER, Forked, forked

D = 6
N_CLASSES = 6
CENTRES = np.random.default_rng(7).uniform(0, 6, (N_CLASSES, D))
FATES = ("learned", "set_aside", "awaiting", "unknown", "quarantined", "passed")
"""Of samples that are accepted and applied."""
GONE = ("rejected", "dropped", "lost")
ROUTES = (
    *("/model", "/model/versions", "/drift", "/drift/history", "/drift/boundaries", "/drift/curve"),
    *("/drift/quarantine", "/drift/proposals", "/deadletters", "/sample?n=3", "/metrics"),
)
BINARY = {"Content-Type": SAFETENSORS}
ASKED: dict[str, tuple[float | int | None, ...]] = {
    "cooldown": (None, 0, 200, 1000),
    "outlier_c": (None, 1.5, 3.0),
    "outlier_false_positive_rate": (None, 0.01, 0.2),
    "set_aside_limit": (None, 60, 1000),
    "label_wait_samples": (None, 200, 2000),
    "awaiting_limit": (None, 50, 500),
    "proposal_samples": (None, 0, 10),
    "max_classes": (None, 30, 100),
}
"""Settings that are asked for while a model lives, and what they may be: no batch is refused."""
AGAIN = " again"
"""The end of the other name of a class."""
SIZES = st.sampled_from((1, 5, 30, 100, 100, 250))
KINDS = st.sampled_from(("labels", "labels", "some", "none", "ids"))


class Service:
    """A service, in which each life is that of a model of its own.

    Arguments:
        settings: Of it.
        client: Of its API.
        logs: A folder for those of its trainers.
    """

    def __init__(self, settings: Settings, client: httpx2.Client, logs: Path) -> None:
        self.settings, self.client, self.logs = settings, client, logs
        self.lives = self.trainers = 0
        self._ends = contextlib.ExitStack()
        self._begin()

    def _begin(self) -> None:
        self.trainers += 1
        log = self.logs / str(self.trainers)
        made = forked(TRAINER, variables=self.settings.environment(), output=log)
        self.trainer: Forked = self._ends.enter_context(made)

    def replace_trainer(self, how: int, between: Callable[[bool], None] = lambda _: None) -> None:
        """End it by a signal, and begin another.

        Arguments:
            how: The signal.
            between: Called while there is none, with whether it ended in order: one that has just
                begun cannot.
        """
        self.trainer.send_signal(how)
        status = self.trainer.wait(60)
        assert status in (0, -how), self.said()
        try:
            between(status == 0)
        finally:
            self._begin()

    def said(self) -> str:
        """All that its trainers have logged."""
        return "".join((self.logs / str(n + 1)).read_text() for n in range(self.trainers))

    def said_last(self) -> str:
        """What the one that runs has logged."""
        return (self.logs / str(self.trainers)).read_text()

    def close(self) -> None:
        self._ends.close()


class Life(RuleBasedStateMachine):
    """Of one model."""

    service: Service

    def __init__(self) -> None:
        super().__init__()
        self.service.lives += 1
        self.name = f"life-{self.service.lives}"
        self.service.client.put(f"/models/{self.name}").raise_for_status()
        self.client = of_model(self.service.client, self.name)
        self.rng = np.random.default_rng(0)
        self.sent: dict[str, dict[str, Any]] = {}
        self.accepted = 0  # samples, as the answers say
        self.without_label: dict[str, str] = {}
        self.checkpoints: list[bytes] = []
        self.went_back = False
        self.rollbacks: set[str] = set()  # accepted ones, their entries
        self.called: dict[str, str] = {}  # what samples of a class are labelled as

    def teardown(self) -> None:
        try:
            self._is_whole()
        finally:
            self.service.client.delete(f"/models/{self.name}").raise_for_status()
            self.client.close()

    # What is sent ---------------------------------------------------------------

    def _samples(self, first: int, n: int, shift: float) -> tuple[list[list[float]], list[str]]:
        classes = (first + self.rng.integers(0, 2, n)) % N_CLASSES
        x = CENTRES[classes] + self.rng.normal(0, 0.3, (n, D)) + shift
        labels = [f"c{one}" for one in classes]
        return x.astype("f4").tolist(), [self.called.get(one, one) for one in labels]

    def _ingest(self, batch_id: str) -> None:
        answer = self._done(
            self.client.post("/ingest", params={"batch_id": batch_id}, json=self.sent[batch_id]),
            # A repeat from before a rollback that is not done yet.
            *((503,) if self.went_back else ()),
        )
        if answer.status_code == 202 and not answer.json()["duplicate"]:
            self.accepted += len(self.sent[batch_id]["features"])

    def _new(self, body: dict[str, Any]) -> None:
        batch_id = f"b{len(self.sent)}"
        self.sent[batch_id] = body
        self._ingest(batch_id)

    @staticmethod
    def _done(answer: httpx2.Response, *refused: int) -> httpx2.Response:
        """An answer: what was asked for was done, or is refused as it may be."""
        assert answer.status_code in (200, 202, *refused), (answer.request.url, answer.text)
        return answer

    @rule(
        kind=KINDS, first=st.integers(0, N_CLASSES - 1), n=SIZES, shift=st.sampled_from((0, 0, 2))
    )
    def send(self, kind: str, first: int, n: int, shift: float) -> None:
        """A batch of two classes, which are known already or are not."""
        features, labels = self._samples(first, n, shift)
        body: dict[str, Any] = {"features": features}
        if kind == "labels":
            body["labels"] = labels
        elif kind == "some":
            body["labels"] = [label if i % 2 else None for i, label in enumerate(labels)]
        elif kind == "ids":
            body["sample_ids"] = [f"{len(self.sent)}-{i}" for i in range(n)]
            self.without_label |= dict(zip(body["sample_ids"], labels, strict=True))
        self._new(body)

    @rule(first=st.integers(0, N_CLASSES - 1), batches=st.integers(2, 5))
    def a_stretch(self, first: int, batches: int) -> None:
        """Some batches that are alike: a sub-task, or a part of one."""
        for _ in range(batches):
            self.send("labels", first, 100, 0)

    @rule(n=SIZES)
    def burst(self, n: int) -> None:
        """Samples unlike all others."""
        x = self.rng.normal(40, 3, (n, D))
        self._new({"features": x.astype("f4").tolist()})

    @precondition(lambda self: self.sent)
    @rule(which=st.integers(0, 10))
    def repeat(self, which: int) -> None:
        """Of a batch: its sender does not know whether it was accepted."""
        self._ingest(list(self.sent)[-1 - which % len(self.sent)])

    @precondition(lambda self: self.without_label)
    @rule(n=st.sampled_from((1, 10, 60)), newest=st.booleans())
    def label(self, n: int, newest: bool) -> None:
        """Some samples by their ids; some of them twice."""
        ids = list(self.without_label)
        ids = ids[-n:] if newest else ids[:n]
        body = {"sample_ids": ids, "labels": [self.without_label[one] for one in ids]}
        self._done(self.client.post("/labels", json=body))

    @rule(label=st.sampled_from(("new", "c3", None)))
    def name(self, label: str | None) -> None:
        """A class that the model proposes; or dismiss it."""
        for one in self.client.get("/drift/proposals").json()["proposals"][:1]:
            body = {"proposal": one["proposal"], "label": label}
            self._done(self.client.post("/labels", json=body), 404, 409)

    @rule(what=st.sampled_from(("shape", "nan", "ids", "text")))
    def send_nonsense(self, what: str) -> None:
        """It is refused, or nothing comes of it."""
        if what == "ids":
            body = {"sample_ids": ["nobody"], "labels": ["c1"]}
            self._done(self.client.post("/labels", json=body))
            return
        told = {
            "shape": {"features": [[1.0] * (D + 1)]},
            "nan": {"features": [[None] * D]},
            "text": {"features": [["warm"] * D]},
        }[what]
        if what == "shape" and not self.sent:
            return  # it would be the first
        answer = self.client.post("/ingest", json=told)
        if answer.status_code == 202:  # until the first batch is learned, any shape may be right
            assert what == "shape"
            self.accepted += 1
        else:
            assert 400 <= answer.status_code < 500, answer.text

    # What is asked for ----------------------------------------------------------

    @rule()
    def declare_a_boundary(self) -> None:
        self._done(self.client.post("/drift/boundary", json={}), 404, 409)

    @rule(mode=st.sampled_from(("learn", "learn", "frozen", "detect_only")))
    def be(self, mode: str) -> None:
        self._done(self.client.put("/model/mode", json={"mode": mode}), 404, 409)

    @rule(name=st.sampled_from(sorted(ASKED)), which=st.integers(0, 3))
    def change_settings(self, name: str, which: int) -> None:
        body = {"settings": {name: ASKED[name][which % len(ASKED[name])]}}
        self._done(self.client.patch("/model/settings", json=body))

    @rule(which=st.integers(0, 2 * N_CLASSES), heard=st.booleans())
    def call_otherwise(self, which: int, heard: bool) -> None:
        """A class, or as it was called before. Who sends its samples hears of it, or does not."""
        answer = self.client.get("/model")
        if answer.status_code == 200 and (known := answer.json()["classes"]):
            label = known[which % len(known)]["label"]
            first = label.removesuffix(AGAIN)
            to = first if label.endswith(AGAIN) else first + AGAIN
            body = {"label": label, "to": to}
            # It may go by the other name by now, or another class has that.
            answer = self._done(self.client.post("/model/rename-class", json=body), 404, 409)
            if heard and answer.status_code in (200, 202):
                self.called[first] = to

    @rule(which=st.integers(0, 2 * N_CLASSES), other=st.integers(0, 2 * N_CLASSES))
    def let_two_be_one(self, which: int, other: int) -> None:
        """Two classes, of which samples may go on to come by both names."""
        answer = self.client.get("/model")
        if answer.status_code == 200 and len(known := answer.json()["classes"]) > 1:
            label, into = (known[one % len(known)]["label"] for one in (which, other))
            body = {"label": label, "into": into}
            # They may be one already, or the same, or the model is at rest.
            self._done(self.client.post("/model/merge-classes", json=body), 404, 409, 422)

    @rule(which=st.integers(0, 20))
    def roll_back(self, which: int) -> None:
        """To any of the versions that are kept."""
        answer = self.client.get("/model/versions")
        if answer.status_code == 200 and (kept := answer.json()["versions"]):
            version = kept[which % len(kept)]["version"]
            body = {"version": version}
            # It may have gone meanwhile; once the request is accepted, it stays.
            answer = self._done(self.client.post("/model/rollback", json=body), 404, 409)
            if answer.status_code in (200, 202):
                self.rollbacks.add(answer.json()["entry_id"])
            self.went_back = True

    @rule()
    def download(self) -> None:
        answer = self._done(self.client.get("/model/checkpoint"), 404, 409)
        if answer.status_code == 200:
            self.checkpoints.append(answer.content)

    @rule(which=st.integers(0, 3))
    def upload(self, which: int) -> None:
        if not self.checkpoints:
            return
        data = self.checkpoints[-1 - which % len(self.checkpoints)]
        self._done(self.client.put("/model/checkpoint", content=data, headers=BINARY), 409, 429)
        self.went_back = True

    @rule(again=st.booleans())
    def handle_dead_letters(self, again: bool) -> None:
        for one in self.client.get("/deadletters").json()["deadletters"][:2]:
            path = f"/deadletters/{one['id']}"
            answer = self.client.post(path) if again else self.client.delete(path)
            assert answer.status_code < 500 or answer.status_code == 503, answer.text

    @rule(how=st.sampled_from((signal.SIGKILL, signal.SIGTERM)))
    def replace_trainer(self, how: int) -> None:
        self.service.replace_trainer(how)

    @rule(n=st.integers(1, 5))
    def ask(self, n: int) -> None:
        """Whatever can be asked is answered, in strict JSON."""
        features, _ = self._samples(0, n, 0)
        answers = [self.client.get(route) for route in ROUTES]
        answers += [
            self.client.post(route, json={"features": features})
            for route in ("/classify", "/outliers")
        ]
        for answer in answers:
            assert answer.status_code in (200, 404, 409, 503), (answer.request.url, answer.text)
            if "json" in answer.headers["content-type"]:
                json.loads(answer.text, parse_constant=_no_number)

    # What always holds ----------------------------------------------------------

    @rule()
    def adds_up(self) -> None:
        """The ledger, once everything is applied."""
        self._ledger()

    def _ledger(self) -> dict[str, Any]:
        def at_rest() -> dict[str, Any] | None:
            assert self.service.trainer.poll() is None, self.service.said()
            answer = self.client.get("/ledger")
            quiet = answer.status_code == 200 and answer.json()["waiting_entries"] == 0
            return answer.json() if quiet else None

        ledger: dict[str, Any] = wait_until(at_rest)
        parts = sum(ledger[one] for one in ("waiting", *FATES, *GONE))
        assert ledger["unaccounted"] == 0, ledger
        assert ledger["accepted"] == self.accepted == parts, (ledger, self.accepted)
        return ledger

    def _is_whole(self) -> None:
        """Nothing is lost of the life, and nothing is told wrongly of it."""
        ledger, fates = wait_until(self._told)
        assert ledger["lost"] == 0
        letters = self.client.get("/deadletters?limit=1000").json()["deadletters"]
        assert not [one for one in letters if one["entry_id"] in self.rollbacks]
        if not self.went_back:
            assert {one: fates[one] for one in FATES} == {one: ledger[one] for one in FATES}
        if ledger["entries_applied"]:
            wait_until(lambda: self._is_led(ledger["entries_applied"]))
            # With a trainer, the model might settle between two looks.
            self.service.replace_trainer(signal.SIGTERM, self._is_made_again)

    def _told(self) -> tuple[dict[str, Any], Counter[str]] | None:
        """The ledger, and what all batches say together; None where the model settled meanwhile."""
        ledger, fates = self._ledger(), Counter[str]()
        for batch_id, body in self.sent.items():
            answer = self.client.get(f"/batches/{batch_id}")
            if answer.status_code == 404:
                continue  # refused when it was sent
            told, n = answer.json(), len(body["features"])
            if told["counts"]:
                assert sum(told["counts"].values()) == n, told
                fates.update(told["counts"])
            else:
                fates[told["state"]] += n
        return (ledger, fates) if ledger == self._ledger() else None

    def _is_led(self, n: int) -> bool:
        """Whether the trainer has begun with the model, or has nothing to do for it: n entries are
        kept. One that ends in order before has not read again what a killed one had."""
        kept = kept_in(self.service.settings.for_model(self.name, {}).data_dir / "checkpoints")
        led = f"/{self.name}', version" in self.service.said_last()
        return led or kept[0].entries_applied >= n

    def _is_made_again(self, in_order: bool) -> None:
        again = as_a_trainer(rebuild)(self.service.settings.for_model(self.name, {}))
        assert not again.notes
        assert again.comparisons
        assert all(one.equal for one in again.comparisons), again.described()
        if in_order:
            assert again.comparisons[-1].entries_applied == again.entries_applied


def _no_number(text: str) -> None:
    raise AssertionError(f"{text} is no JSON")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("lives")
    with redis_server(folder) as redis:
        made = make_settings(
            redis.url,
            folder / "data",
            n_components=9,
            archive_mib=64,
            checkpoint_interval_s=0.3,
            settle_after_s=1,
        )
        with serving(made) as client:
            logs = folder / "logs"
            logs.mkdir()
            one = Service(made, client, logs)
            try:
                yield one
            finally:
                one.close()


def test_whatever_happens_to_a_model_nothing_is_lost(service: Service) -> None:
    case: Callable[..., Any] = type("Bound", (Life,), {"service": service}).TestCase
    # A life takes seconds, and is never the same in time: a shorter one that fails is not sought.
    plan = of_hypothesis(
        max_examples=4, stateful_step_count=40, deadline=None, phases=[Phase.generate]
    )
    case.settings = plan  # type: ignore[attr-defined]
    case("runTest").runTest()
    assert "Traceback" not in service.said()

"""Tests for service.trainer.key_shares: counts by key, and the cap, on random streams and a real
one."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.snapshot import Snapshot
from service.broker.dead_letters import DeadLetters
from service.broker.snapshots import SnapshotFiles
from service.settings import Settings
from service.trainer.key_shares import (
    BLOCK,
    BLOCKS,
    FEWEST_JUDGED,
    MOST_KEYS,
    SLACK,
    KeyOutliers,
    KeyShare,
    Window,
    add,
    check,
    check_outliers,
    sums,
    told,
)
from service.trainer.totals import Totals
from tests.service.conftest import MakeSettings
from tests.service.running import (
    ask,
    batch,
    learned_directly,
    send,
    snapshot_bytes,
    training,
    wait_for_backlog,
)

Stream = list[tuple[str | None, int, int]]
SENT = st.tuples(st.sampled_from(["a", "b", "c", None]), st.integers(1, 4000), st.integers(0, 5))
STREAMS = st.lists(SENT, max_size=120)


def plain(stream: Stream) -> dict[str, list[int]]:
    """The same counts from the batches themselves, one after the other."""
    blocks: list[list[tuple[str, int, int]]] = []
    for by, samples, outliers in stream:
        names = {name for block in blocks for name, _, _ in block}
        if len(names) == 1 and (by or "") not in names:
            blocks = [[(name, 0, 0) for name in names]]
        if not blocks or sum(n for _, n, _ in blocks[-1]) >= BLOCK:
            blocks = [*blocks, []][-BLOCKS - 1 :]
        blocks[-1].append((by or "", samples, outliers))
    kept = [one for block in blocks for one in block]
    return {
        who: [sum(n for by, n, _ in kept if by == who), sum(n for by, _, n in kept if by == who)]
        for who, _, _ in kept
    }


@given(STREAMS)
def test_shares_equal_a_plain_count(stream: Stream) -> None:
    window: Window = []
    for one in stream:
        add(window, *one)
    counted = plain(stream)
    assert sums(window) == counted
    document = told(window)
    assert document["samples"] == sum(n for n, _ in counted.values())
    assert {row["name"] or "": row["samples"] for row in document["keys"]} == {
        name: n for name, (n, _) in counted.items()
    }
    assert not stream or sum(row["share"] for row in document["keys"]) == pytest.approx(1)


def fates(stream: Stream, cap: float, restart: int) -> list[bool]:
    """Which batches are learned; a checkpoint is written and read before batch `restart`."""
    totals, found = Totals(), []
    for index, (by, samples, outliers) in enumerate(stream):
        if index == restart:
            totals = Totals.from_json(totals.to_json())
        try:
            check(totals.key_shares, by, samples, cap)
        except KeyShare:
            found.append(False)
            continue
        found.append(True)
        before = sums(totals.key_shares)
        add(totals.key_shares, by, samples, outliers)
        if len(before) > 1:
            own = samples + before.get(by or "", [0])[0]
            share = max(cap, 1 / len({*before, by or ""}))
            assert own <= share * (samples + sum(n for n, _ in before.values())) + SLACK
    return found


@given(STREAMS, st.floats(0.05, 0.95), st.integers(0, 120))
def test_a_capped_share_holds_and_a_replay_gives_the_same_fates(
    stream: Stream, cap: float, restart: int
) -> None:
    assert fates(stream, cap, restart) == fates(stream, cap, -1)


def test_a_flood_is_refused_and_stays_refused_while_others_are_heard() -> None:
    flood: Stream = [("good", 100, 0), *[("bad", 500, 0)] * 300, ("good", 100, 0)]
    learned = fates(flood, 0.5, -1)
    assert learned[0]
    assert learned[-1]
    assert sum(learned[1:-1]) == 4  # 2,000 samples: the half of these, and 1,000
    assert not any(learned[5:-1])


@given(st.lists(st.integers(1, 20_000), max_size=60), st.floats(0.01, 0.99))
def test_a_key_alone_is_never_refused(sizes: list[int], cap: float) -> None:
    assert all(fates([("a", n, 0) for n in sizes], cap, -1))
    assert all(fates([(None, n, 0) for n in sizes], cap, -1))


@given(STREAMS, st.floats(0.01, 0.99))
def test_of_several_keys_one_may_always_go_on(stream: Stream, cap: float) -> None:
    window: Window = []
    for by, samples, outliers in stream:
        try:
            check(window, by, samples, cap)
        except KeyShare:
            least = min(sums(window).items(), key=lambda one: one[1][0])[0]
            check(window, least, SLACK, cap)
        else:
            add(window, by, samples, outliers)


@given(
    st.lists(st.tuples(st.integers(1, 3000), st.floats(0, 1)), max_size=30), st.floats(0.01, 0.99)
)
def test_a_key_alone_is_never_held_back_for_outliers(
    sent: list[tuple[int, float]], cap: float
) -> None:
    window: Window = []
    for samples, strange in sent:
        check_outliers(window, "a", cap)
        add(window, "a", samples, int(samples * strange))


@given(st.floats(0.01, 0.9), st.floats(0, 1), st.floats(0, 1))
def test_outliers_are_judged_by_what_others_send(cap: float, own: float, others: float) -> None:
    window: Window = [{"bad": [1000, int(1000 * own)], "good": [1000, int(1000 * others)]}]
    share, usual = int(1000 * own) / 1000, int(1000 * others) / 1000
    if share > cap and share > 3 * usual:
        with pytest.raises(KeyOutliers, match="GMR_MAX_KEY_OUTLIERS"):
            check_outliers(window, "bad", cap)
    else:
        check_outliers(window, "bad", cap)


def test_few_samples_are_not_judged() -> None:
    few = FEWEST_JUDGED - 1
    check_outliers([{"bad": [few, few], "good": [9000, 0]}], "bad", 0.1)
    check_outliers([{"bad": [9000, 9000], "good": [few, 0]}], "bad", 0.1)
    with pytest.raises(KeyOutliers):
        check_outliers([{"bad": [few + 1, few], "good": [few + 1, 0]}], "bad", 0.1)


def test_keys_beyond_the_most_count_together() -> None:
    window: Window = []
    for index in range(MOST_KEYS + 36):
        add(window, f"key {index}", 10, 1)
    document = told(window)
    assert len(document["keys"]) == MOST_KEYS
    assert document["other"]["samples"] == 10 * 36
    assert document["other"]["outliers"] == 36
    with pytest.raises(KeyShare, match="beyond the first 64 together"):
        check(window, "key 1000", 5000, 0.1)


def no_room(*_: object, **__: object) -> None:
    raise OSError("no space left on device")


def published(settings: Settings) -> Snapshot:
    notice = ask(settings, lambda stream: stream.reports.last_notice())
    data = SnapshotFiles(settings.data_dir / "snapshots").read(notice.location)
    return Snapshot.from_bytes(data)[0]


def refused(settings: Settings) -> list[str]:
    letters = ask(settings, lambda stream: DeadLetters(stream).page())
    assert {letter.facts["reason"] for letter in letters} == {"key_share"}
    return [letter.facts["batch_id"] for letter in letters]


def test_a_stream_read_again_has_the_same_fates_and_gives_the_same_model(
    settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    capped = settings(settle_after_s=3600, max_key_share=0.5)
    names = ["cam", *["bad"] * 8, "cam", "bad", "bad", "cam"]
    stream = [replace(batch(0, seed, n=400), by=by) for seed, by in enumerate(names)]
    # "bad" may have 2,000 samples, and 2,400 after another 400 of "cam".
    expected = ["0-6", "0-7", "0-8", "0-11"]

    with monkeypatch.context() as broken, training(capped):
        # As if it had been killed before its first checkpoint: none reaches the disk.
        broken.setattr("service.store.in_folder.write_atomically", no_room)
        send(capped, *stream)
        wait_for_backlog(capped)
        assert refused(capped) == expected
    send(capped, replace(batch(0, 99, n=400), by="cam"))
    with training(capped):
        wait_for_backlog(capped)
        assert refused(capped) == expected
        snapshot = published(capped)
    kept = [one for one in stream if one.batch_id not in expected]
    state = learned_directly(capped, [*kept, batch(0, 99, n=400)])
    assert snapshot.to_bytes({}) == snapshot_bytes(capped, state)

"""The accuracy that is expected where no label comes, by what labels said of answers before."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from core.memory.reliability import BINS, FEWEST, Answered, Reliability, bins_of

CLASSES = 2
COUNTS = (1000, 1000)


def answered(
    n: int,
    generator: torch.Generator,
    *,
    right: float | None,
    sure: float = 0.9,
    unnamed: float = 0.0,
    codes: int | None = None,
) -> Answered:
    """Answers to n samples, all equally sure; with labels that say how many are right, or none."""
    labelled = torch.full((n,), right is not None)
    hits = torch.rand(n, generator=generator) < (right or 0.0)
    named = torch.randint(CLASSES, (n,), generator=generator)
    if codes is not None:
        named = torch.full((n,), codes)
    lies = (torch.rand(n, generator=generator) < unnamed).double()
    sure_of = torch.full((n,), sure)
    nothing = torch.zeros(n)
    return Answered(sure_of, named, lies, 1.0, labelled, labelled, hits, named, nothing)


def fed(*parts: Answered) -> Reliability:
    told = Reliability()
    for part in parts:
        told = told.observed(part)
    return told


def test_answers_are_as_reliable_as_labels_showed_however_sure_they_are() -> None:
    generator = torch.Generator().manual_seed(0)
    learned = [answered(100, generator, right=0.7, sure=0.99) for _ in range(20)]
    learned += [answered(100, generator, right=0.4, sure=0.55) for _ in range(20)]
    for sure, accuracy in ((0.99, 0.7), (0.55, 0.4)):
        hidden = [answered(100, generator, right=None, sure=sure) for _ in range(40)]
        found = fed(*learned, *hidden).estimate(COUNTS)
        assert found is not None
        assert found.accuracy == pytest.approx(accuracy, abs=0.05)
        assert found.low < accuracy < found.high
        assert found.unseen == 0


def stretch(generator: torch.Generator, sure: float, right: float, *, told: bool) -> Answered:
    """A hundred answers, of which a share is sure; as many are right whatever that share is."""
    answers = answered(100, generator, right=right if told else None)
    is_sure = torch.rand(100, generator=generator) < sure
    # Sure answers are right more often than others of the same stretch.
    more = 0.2 * (1 - sure), -0.2 * sure
    chance = right + torch.where(is_sure, *(torch.tensor(one) for one in more))
    hits = torch.rand(100, generator=generator) < chance
    return answers._replace(confidence=torch.where(is_sure, 0.99, 0.55), hits=hits)


def test_where_sure_stretches_are_right_no_more_often_their_sureness_promises_nothing() -> None:
    """Within each stretch it does, and so it does in bins."""
    generator = torch.Generator().manual_seed(9)
    turns = [stretch(generator, 0.2 + 0.6 * (i % 2), 0.75, told=True) for i in range(60)]
    errors = []
    for sure in (0.05, 0.95):
        hidden = [stretch(generator, sure, 0.75, told=False) for _ in range(20)]
        found = fed(*turns, *hidden).estimate(COUNTS)
        assert found is not None
        assert found.low < 0.75 < found.high
        errors.append(abs(found.accuracy - 0.75))
    assert max(errors) < 0.03


@pytest.mark.parametrize("size", [10, 20, 50, 100])
def test_stretches_are_compared_by_the_hundred_labels_in_whichever_batches(size: int) -> None:
    """What the first labels of a hundred say of the others is no promise that comes true."""
    generator = torch.Generator().manual_seed(9)
    told = Reliability()
    for i in range(90):
        turn = stretch(generator, 0.2 + 0.6 * (i // 3 % 2), 0.75, told=True)
        for rows in torch.arange(100).split(size):
            parts = [one[rows] if isinstance(one, torch.Tensor) else one for one in turn]
            told = told.observed(Answered(*parts))
    assert told._slope() < 0.4


def test_where_sure_stretches_are_right_more_often_their_sureness_counts() -> None:
    generator = torch.Generator().manual_seed(10)
    turns = [
        answered(100, generator, right=right, sure=sure)
        for sure, right in ((0.99, 0.95), (0.55, 0.6)) * 30
    ]
    for sure, right in ((0.99, 0.95), (0.55, 0.6)):
        hidden = [answered(100, generator, right=None, sure=sure) for _ in range(40)]
        found = fed(*turns, *hidden).estimate(COUNTS)
        assert found is not None
        assert found.accuracy == pytest.approx(right, abs=0.03)


def test_nothing_is_said_before_enough_labels_came() -> None:
    generator = torch.Generator().manual_seed(1)
    assert fed(answered(500, generator, right=None)).estimate(COUNTS) is None
    few = fed(answered(int(FEWEST) - 1, generator, right=0.9))
    assert few.estimate(COUNTS) is None
    assert few.observed(answered(9, generator, right=0.9)).estimate(COUNTS) is not None
    assert Reliability().estimate(()) is None


def test_the_interval_is_wider_where_reliability_comes_and_goes() -> None:
    generator = torch.Generator().manual_seed(2)
    steady = [answered(200, generator, right=0.8) for _ in range(40)]
    moving = [answered(200, generator, right=0.65 + 0.3 * (i % 2)) for i in range(40)]
    calm, unsure = (fed(*parts).estimate(COUNTS) for parts in (steady, moving))
    assert calm is not None
    assert unsure is not None
    assert unsure.high - unsure.low > 2 * (calm.high - calm.low)


def test_a_few_hundred_labels_tell_that_answers_are_right_less_often() -> None:
    generator = torch.Generator().manual_seed(8)
    good = [answered(100, generator, right=0.9) for _ in range(30)]
    worse = [answered(10, generator, right=0.7) for _ in range(50)]
    hidden = answered(1000, generator, right=None)
    before, after = (fed(*parts, hidden).estimate(COUNTS) for parts in (good, good + worse))
    assert before is not None
    assert after is not None
    assert before.accuracy == pytest.approx(0.9, abs=0.03)
    assert after.accuracy == pytest.approx(0.7, abs=0.05)
    assert after.low < 0.7 < after.high


@pytest.mark.parametrize("right", [0.0, 1.0])
@pytest.mark.parametrize("n", [100, 10_000])
def test_a_large_batch_that_turns_out_otherwise_leaves_an_estimate(right: float, n: int) -> None:
    generator = torch.Generator().manual_seed(9)
    before = [answered(100, generator, right=right) for _ in range(30)]
    found = fed(*before, answered(n, generator, right=1 - right)).estimate(COUNTS)
    assert found is not None
    assert 0 <= found.low <= found.accuracy <= found.high <= 1
    # It has moved towards what came.
    assert abs(found.accuracy - right) > 0.02


def test_samples_of_an_unseen_class_count_as_wrong() -> None:
    generator = torch.Generator().manual_seed(3)
    learned = [answered(100, generator, right=0.95) for _ in range(20)]
    strange = [answered(100, generator, right=None, unnamed=0.95, codes=0) for _ in range(20)]
    found = fed(*learned, *strange).estimate((1000, 1000))
    assert found is not None
    assert found.unseen > 0.7
    assert found.accuracy < 0.3
    assert found.low <= found.accuracy <= found.high


def test_where_classes_come_as_before_on_unnamed_components_the_interval_holds_both() -> None:
    """Known classes may have moved, or others may have taken their places."""
    generator = torch.Generator().manual_seed(3)
    learned = [answered(100, generator, right=0.95) for _ in range(20)]
    moved = [answered(100, generator, right=None, unnamed=0.95) for _ in range(20)]
    found = fed(*learned, *moved).estimate((1000, 1000))
    assert found is not None
    assert found.unseen < 0.1
    assert found.accuracy == pytest.approx(0.95, abs=0.1)
    assert found.low < 0.3
    assert found.high > 0.95


def test_of_samples_that_moved_those_called_more_often_than_before_count_as_wrong() -> None:
    generator = torch.Generator().manual_seed(3)
    learned = [answered(100, generator, right=0.95) for _ in range(20)]
    parts = [answered(80, generator, right=None, unnamed=0.95) for _ in range(20)]
    more = [answered(20, generator, right=None, unnamed=0.95, codes=0) for _ in range(20)]
    both = [part for pair in zip(parts, more, strict=True) for part in pair]
    found = fed(*learned, *both).estimate((1000, 1000))
    assert found is not None
    assert 0 < found.unseen < 0.2
    assert found.low < 0.3
    assert found.high > 0.95


def test_samples_held_back_count_by_their_share_of_the_newest() -> None:
    generator = torch.Generator().manual_seed(3)
    told = fed(*(answered(100, generator, right=0.9) for _ in range(60)))
    ages = [age for age in range(6000) if age % 5 == 0]
    bare, proposed, unknown, all_of_them = (
        told.estimate(COUNTS, *held) for held in ((), (ages,), ((), ages), (range(6000),))
    )
    assert bare is not None
    assert proposed is not None
    assert unknown is not None
    assert all_of_them is not None
    assert proposed.unseen == pytest.approx(0.2, abs=0.01)
    assert proposed.accuracy == pytest.approx(0.8 * bare.accuracy, abs=0.01)
    # Others may be rare samples of known classes.
    assert unknown.accuracy == bare.accuracy
    assert unknown.low == proposed.low == pytest.approx(0.8 * bare.low, abs=0.01)
    assert proposed.high == unknown.high == bare.high
    assert all_of_them.accuracy == pytest.approx(0, abs=0.01)
    # As many as labels lead to expect of known classes do not count.
    half = told.estimate(COUNTS, ages, known_share=0.5)
    assert half is not None
    assert half.unseen == pytest.approx(0.1, abs=0.01)
    assert (half.low, half.high) == (proposed.low, proposed.high)


def test_unlabelled_samples_of_known_classes_are_not_unseen() -> None:
    generator = torch.Generator().manual_seed(4)
    learned = [answered(100, generator, right=0.95) for _ in range(20)]
    # As many without a label as with one, so that half of these components have no name.
    usual = [answered(100, generator, right=None, unnamed=0.5) for _ in range(20)]
    found = fed(*learned, *usual).estimate((1000, 1000))
    assert found is not None
    assert found.unseen == 0
    assert found.accuracy == pytest.approx(0.95, abs=0.03)


def beside_labels(unnamed: float, of_labelled: float) -> Reliability:
    """Of a hundred samples each 70 have a label; the others are all called 0."""
    generator = torch.Generator().manual_seed(11)
    told = fed(*(answered(100, generator, right=0.95) for _ in range(20)))
    for _ in range(30):
        told = told.observed(answered(70, generator, right=0.95, unnamed=of_labelled))
        told = told.observed(answered(30, generator, right=None, unnamed=unnamed, codes=0))
    return told


def test_samples_of_an_unseen_class_beside_labelled_ones_count_as_wrong() -> None:
    """However many were called so before: they lie where labelled samples do not."""
    found = beside_labels(0.95, 0.02).estimate((2050, 2050))
    assert found is not None
    assert found.unseen == pytest.approx(0.3, abs=0.05)
    assert found.accuracy == pytest.approx(0.95 * 0.7, abs=0.05)


def test_unlabelled_samples_beside_labelled_ones_that_lie_there_as_often_are_not_unseen() -> None:
    found = beside_labels(0.6, 0.6).estimate((2050, 2050))
    assert found is not None
    assert found.unseen == 0
    assert found.accuracy == pytest.approx(0.95, abs=0.03)


@pytest.mark.parametrize(("of_labelled", "unseen"), [(0.0, True), (0.45, False)])
def test_where_few_samples_have_labels_these_tell_how_many_lie_on_unnamed_components(
    of_labelled: float, unseen: bool
) -> None:
    """The number of unlabelled samples would explain that most of them do."""
    generator = torch.Generator().manual_seed(13)
    told = fed(*(answered(100, generator, right=0.95) for _ in range(3)))
    for _ in range(60):
        told = told.observed(answered(10, generator, right=0.95, unnamed=of_labelled))
        told = told.observed(answered(90, generator, right=None, unnamed=0.45, codes=0))
    found = told.estimate((450, 450))
    assert found is not None
    assert (found.unseen > 0.3) is unseen
    assert (found.accuracy < 0.65) is unseen


def test_an_earlier_release_told_no_labelled_answers_apart() -> None:
    told = beside_labels(0.95, 0.02)
    earlier = replace(told, answers=told.answers[:, :3].clone())
    assert earlier.estimate((2050, 2050)) is not None
    generator = torch.Generator().manual_seed(12)
    assert earlier.observed(answered(10, generator, right=None)).answers.shape == (CLASSES, 5)


def test_what_is_kept_does_not_grow_with_the_stream() -> None:
    generator = torch.Generator().manual_seed(5)
    told = fed(*(answered(50, generator, right=0.9) for _ in range(200)))
    assert told.counts.shape == told.hits.shape == told.recent.shape == (BINS,)
    assert told.answers.shape == (CLASSES, 5)
    assert told.usual.shape == (CLASSES,)


def test_a_late_label_tells_as_much_as_one_that_came_with_its_sample() -> None:
    generator = torch.Generator().manual_seed(6)
    at_once = answered(400, generator, right=0.6)
    late = Reliability().tested(bins_of(at_once.confidence), at_once.hits)
    assert torch.equal(late.counts, fed(at_once).counts)
    assert torch.equal(late.hits, fed(at_once).hits)


@pytest.mark.parametrize("right", [0.0, 1.0])
def test_answers_that_were_all_right_or_all_wrong_are_not_known_for_certain(right: float) -> None:
    generator = torch.Generator().manual_seed(4)
    few, many = (
        fed(answered(n, generator, right=right)).estimate(COUNTS) for n in (int(FEWEST), 900)
    )
    assert few is not None
    assert many is not None
    assert few.accuracy == pytest.approx(right)
    assert few.high - few.low == pytest.approx(1 - 0.025 ** (1 / 100))  # scipy's exact interval
    assert 0 < many.high - many.low < few.high - few.low
    assert few.low <= few.accuracy <= few.high


def test_the_estimate_is_of_samples_as_old_as_the_newest_thousand() -> None:
    """Five hundred samples leave a third of what was before: samples are as old on average."""
    generator = torch.Generator().manual_seed(7)
    told = fed(*(answered(100, generator, right=0.9) for _ in range(100)))
    for _ in range(5):
        sure = answered(100, generator, right=0.9)
        told = told.observed(sure._replace(confidence=torch.zeros(100)))
    unsure = float(told.recent[0] / told.recent.sum())
    assert unsure == pytest.approx(1 - math.exp(-1), abs=0.01)

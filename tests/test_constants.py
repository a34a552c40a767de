"""Numbers on the pages of the method and its parts are the constants of the code."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from core.config import EngineConfig
from core.density import conformity
from core.density.factors import outline, refining
from core.drift.sequential import cells, counts, dependence, detector, features, online, thinning
from core.engine import candidates, class_discovery, clusters, inliers, recurrence, step
from core.experts import features as waves
from core.experts import neighbours, new_names, panel
from core.learners.per_class import flush, relabelling, windowed
from core.learners.per_class.flat import learner as flat
from core.learners.per_class.flat import stepwise
from core.learners.per_class.mfa import learner as mfa
from core.memory import burst, course, fingerprints, proposals, reliability
from core.model.sampling import noise_of_a_class
from core.outliers import calibration, margin, p_values, unknown

ROOT = Path(__file__).parents[1]
DEFAULT = EngineConfig()
PIXELS = 784

METHOD = (
    f"a model of at least {outline.FEWEST_COMPONENTS} components of at least "
    f"{outline.FEWEST_FACTORS} factors in at least {outline.FEWEST_FEATURES} features",
    f"in the {outline.DIRECTIONS} directions",
    f"within D / {outline.FEATURES_PER_NAT} nats of the best is scored exactly, too "
    f"({refining.MOST} more at most)",
    f"L is `n_factors` ({DEFAULT.n_factors})",
    f"with fewer than {p_values.FEWEST_ROWS} calibration rows",
    f"raised to a floor ({DEFAULT.variance_floor} in standardised units)",
    f"at most `window` samples ({DEFAULT.window:,}), a class at most {windowed.MOST_HELD:,}",
    f"for every {windowed.SAMPLES_PER_COMPONENT} of its samples, at most "
    f"{windowed.MOST_PER_OWNER} in a sub-task",
    f"at most one new component for {windowed.SAMPLES_PER_NEWCOMER} of its samples",
    f"T = D / {mfa.FEATURES_PER_DEGREE} (at least 1)",
    f"with T = D / {mfa.SHIFTED_FEATURES_PER_DEGREE}, over the sample and its shifted versions",
    f"is multiplied by {noise_of_a_class(PIXELS / mfa.FEATURES_PER_DEGREE):.2f} at D = {PIXELS}",
    f"T = D / {flat.FEATURES_PER_DEGREE}, also where shifts are heard. The deviation of drawn "
    f"noise is multiplied by {noise_of_a_class(PIXELS / flat.FEATURES_PER_DEGREE):.2f}",
    f"2)^-{stepwise.STEP_EXPONENT}. A step is due for every {stepwise.STEP_SAMPLES} samples",
    f"{waves.PAIRS + waves.FULL} random Fourier features, {waves.PAIRS} of two features each and "
    f"{waves.FULL} of all",
    f"the five nearest of {neighbours.MOST:,} micro-clusters",
    f"of {panel.FEWEST_ROWS} to {2 * panel.FEWEST_ROWS - 1} (more in more than "
    f"{panel.FEWEST_ROWS / panel.ROWS_PER_FEATURE:g} features",
)

P_VALUES = (
    f"exp(-M_k / {2 * conformity.SOFTNESS:g})",
    f"up to log odds of {margin.SURE}",
    f"at most e^(D / {p_values.PER_COMPONENT}) times less",
    f"differences of up to {p_values.GRAIN} nats",
    f"conformity scores of at most {calibration.PER_BATCH} samples of every batch",
    f"The first {step.UNCALIBRATED_SAMPLES} samples of a sub-task "
    f"({step.FIRST_UNCALIBRATED_SAMPLES} of the first one)",
    f"(at least {calibration.FEWEST}, {calibration.FEWEST_OF_FIRST} of the first one; at most "
    f"{calibration.RECENT:,}), and {calibration.PAST:,} rows of all earlier",
)

LABELS = (
    f"among the last {relabelling.LATELY:g} samples",
    f"in {reliability.BINS} bins of confidence. The counts fade over {reliability.FADING:,.0f}",
    f"in blocks of {reliability.BLOCK:g} labelled samples",
    f"an excess of {reliability.EXCESS} (of {reliability.EXCESS * reliability.SURE} where",
    f"lies {unknown.UNKNOWN_DEVIATIONS} deviations below",
    f"At least {DEFAULT.proposal_samples} of them become a proposed class",
    f"in units of {candidates.GAIN} T",
    f"The last {proposals.MOST_RECENT} samples",
    f"after {proposals.FIRST_LOOK} such samples, and then whenever half as many more have come "
    f"({proposals.LEAST_BETWEEN} to {proposals.MOST_BETWEEN:,})",
    f"its samples gain {candidates.LEAST_GAIN} on average. Below {candidates.SURE:g} nats",
    f"a temperature of {clusters.DEGREES} sqrt(D)",
    f"mean overlap is at least {clusters.LEAST_OVERLAP}",
)

DETECTOR = (
    f"or {detector.LONGEST_LIFETIME:,} samples longer",
    f"that came before the successor, {detector.LONGEST_WATCH:,} at most",
    f"faded over {cells.MEMORIES[0]:g} or {cells.MEMORIES[1]:g} samples",
    "(cut at {}, {}, {} and {})".format(*counts.EDGES),
    f"where there are at most {features.MOST_FEATURES}",
    "at {:g}, {:g} and {:g} on either side".format(*features.EDGES[3:]),
    f"so that A = ert / {detector.OVERSHOOT}",
    f"{math.log1p(DEFAULT.ert / detector.OVERSHOOT):.1f} for ten million samples",
    f"(b = {online.RARE_SHARE}, e = {online.RARE_POWER})",
    f"by chance by {online.STAYING} deviations",
    f"all gains are divided by {dependence.AUTOCORRELATION_OF_FEW};",
    f"a fee of {dependence.FEE_OF_FEW} nats",
    f"where samples {thinning.LONGEST} apart still agree",
    f"the change has lasted {detector.CONFIRMED} samples",
    f"(b up to {detector.THIN}), {detector.CONFIRMED_THIN} samples are asked for",
    f"with a rank below {detector.LEAST_TYPICAL}",
    f"or within {burst.GAP} samples",
    f"{burst.FEWEST} of them at least, and {100 * burst.SHARE:g} % of all samples",
    f"(for {cells.RENEWAL:g} samples nothing is betted on them)",
    f"in at most {course.MOST_BLOCKS} blocks of {course.BLOCK:g} samples or more",
    f"(p at most {course.BY_CHANCE}, at most {course.EARLY} in either half), and by "
    f"{course.LEAST_MOVED} of the change",
    f"({fingerprints.MOST:,} are kept",
    f"whenever it passes {detector.PROBE_ERT:,.0f} / {detector.OVERSHOOT}",
)


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("method", METHOD),
        ("p-values", P_VALUES),
        ("labels", LABELS),
        ("detector", DETECTOR),
    ],
)
def test_pages_have_the_numbers_of_the_code(page: str, said: tuple[str, ...]) -> None:
    text = " ".join((ROOT / f"docs/{page}.md").read_text("utf-8").split())  # wherever lines end
    assert [phrase for phrase in said if phrase not in text] == []


def test_numbers_that_pages_have_in_words_are_those_of_the_code() -> None:
    assert (windowed.FIRST_ROUNDS, windowed.PASSING_ROUNDS, windowed.ROUNDS) == (5, 2, 4)
    assert flush.LARGEST_SHARE == 1 / 20
    assert (relabelling.MEMORY, relabelling.RENAMED, relabelling.PRIOR_SAMPLES) == (20, 5, 2)
    assert (relabelling.STRAY, relabelling.LEAST_EXPECTED, relabelling.COMING) == (0.5, 2, 0.25)
    assert (calibration.NEWEST, calibration.CURRENT, calibration.MOVED) == (4, 0.5, 0.1)
    assert (calibration.APART, calibration.NEIGHBOURS, calibration.MOST_APART) == (6, 5, 0.3)
    assert (new_names.MOST, new_names.ALIKE, new_names.STILL) == (3 / 5, 0.7, 0.85)
    assert (new_names.SOON, new_names.RARELY, new_names.RARE) == (46, 1 / 3, 1 / 4)
    assert (new_names.HARDLY, new_names.PER_CLASS) == (1 / 10, 50)
    assert (inliers.REFITTED, inliers.REFITTED_SHARE) == (128, 1 / 20)
    assert class_discovery.MOST_OF_STREAM == 0.3
    assert proposals.MOST_OPEN == 8
    assert (detector.SUSPICION, detector.LASTING, detector.OVER) == (2 / 3, 2, 7)
    assert (detector.EARLY, detector.MOST_AWAITED) == (0.1, 4)
    assert (burst.RECURRENT, course.EVIDENT, course.FEWEST_BLOCKS) == (5, 3, 6)
    assert (fingerprints.NEARLY_ALL, fingerprints.BY_CHANCE) == (0.9, 0.1)
    assert (recurrence.LEAST_LABELLED, recurrence.MOST_OTHERS) == (0.5, 0.02)
    assert (recurrence.LEAST_BACK, recurrence.LEAST_LIKELY, recurrence.FAR) == (0.8, 0.9, 3)

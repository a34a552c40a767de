"""A boundary, and its explanation."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from clients.http.answers.building import Label
from clients.http.notebook import drawings, table


def feature_title(feature: int, name: str | None) -> str:
    """What people read of a feature: its name and place, or its place alone."""
    place = f"feature {feature}"
    return place if name is None else f"{name} ({place})"


def told_apart(first: float | None, second: float | None) -> tuple[str, str]:
    """Two numbers in as few digits as tell one from the other, four at least.

    Example:
        >>> told_apart(2.0, -1.0), told_apart(1764000128.0, 1764003712.0)
        (('2', '-1'), ('1764000128', '1764003712'))
        >>> told_apart(1.5, None)
        ('1.5', 'unknown')
    """
    if first is None or second is None:
        one, other = ("unknown" if value is None else f"{value:.4g}" for value in (first, second))
        return one, other
    for digits in range(4, 17):
        texts = f"{first:.{digits}g}", f"{second:.{digits}g}"
        if texts[0] != texts[1]:
            break
    else:
        texts = f"{first:.4g}", f"{second:.4g}"
    # Seconds of a clock are read as such, not as 1.764e+09.
    short = all(abs(one) < 1e15 and one == round(one) for one in (first, second))
    return (f"{first:.0f}", f"{second:.0f}") if short and "e" in "".join(texts) else texts


MOMENTS = ("mean now", "before", "deviation now", "before")
"""Heads of the columns that tell how a feature has changed."""


MANY_TIMES: Final = 10.0
"""Times that a mean is what it was, from which on this says more than by how much it rose."""

HIGHER: Final = 0.5
"""Deviations by which a mean is called higher or lower."""

WIDER: Final = 1.5
"""Times that a deviation is what it was, from which on a feature is said to vary more, or less."""


@dataclass(frozen=True)
class FeatureChange:
    """A feature that takes part in a change."""

    feature: int  # its place in a sample, 0 for the first
    share: float  # of what all features together add to the change, 0 to 1
    mean: float  # of the new samples, in the units that were sent
    expected: float  # by the components that the samples fell on
    name: str | None = None  # what it is called; None where it has no name
    before: float | None = None  # mean in the sub-task that ended; None where not known, as
    deviation_before: float | None = None  # its standard deviation
    deviation_now: float | None = None  # that of the new samples

    @property
    def title(self) -> str:
        """What people read: its name and place, or its place alone.

        Example:
            >>> FeatureChange(3, 0.8, 2.0, -1.0).title
            'feature 3'
            >>> FeatureChange(3, 0.8, 2.0, -1.0, "pressure").title
            'pressure (feature 3)'
        """
        return feature_title(self.feature, self.name)

    @property
    def moments(self) -> tuple[str, str, str, str]:
        """What people read under `MOMENTS`.

        Example:
            >>> stuck = FeatureChange(3, 0.8, 61.37, 61.44, None, 62.5, 1.5, 0.0)
            >>> stuck.moments
            ('61.37', '62.5', '0', '1.5')
        """
        deviations = told_apart(self.deviation_now, self.deviation_before)
        return *told_apart(self.mean, self.before), *deviations

    @property
    def in_words(self) -> str:
        """How it has changed, in a sentence without its end.

        Example:
            >>> FeatureChange(3, 0.8, 61.44, 61.44, "oil", 62.5, 1.5, 0.0).in_words
            'oil (feature 3) stays at 61.44; before it varied by 1.5'
            >>> FeatureChange(1, 0.8, 310000.0, 3.1, None, 3.1, 0.2, 20000.0).in_words
            'feature 1 is 3.1e+05, about 100,000 times what it was (3.1)'
            >>> FeatureChange(0, 0.8, 12.0, 9.0, None, 9.0, 2.0, 2.1).in_words
            'feature 0 is higher: 12, before 9'
            >>> FeatureChange(0, 0.8, 9.1, 9.0, None, 9.0, 2.0, 6.0).in_words
            'feature 0 varies more: by 6, before by 2'
            >>> FeatureChange(0, 0.8, 9.1, 8.0, None, 9.0, 2.0, 2.0).in_words
            'feature 0 is not as the others let one expect'
        """
        title, (now, before, spread_now, spread) = self.title, self.moments
        if self.before is None or not self.deviation_before or self.deviation_now is None:
            known = self.before is not None
            return f"{title} is {now}" + (f", before {before}" if known else "")
        if self.deviation_now == 0:
            return f"{title} stays at {now}; before it varied by {spread}"
        if self.before and self.mean / self.before >= MANY_TIMES:
            times = float(f"{self.mean / self.before:.2g}")
            return f"{title} is {now}, about {times:,.10g} times what it was ({before})"
        step = self.mean - self.before
        if abs(step) >= HIGHER * self.deviation_before:
            return f"{title} is {'higher' if step > 0 else 'lower'}: {now}, before {before}"
        wider = self.deviation_now / self.deviation_before
        if not 1 / WIDER < wider < WIDER:
            more = "more" if wider > 1 else "less"
            return f"{title} varies {more}: by {spread_now}, before by {spread}"
        return f"{title} is not as the others let one expect"


@dataclass(frozen=True)
class ComponentChange:
    """A component that fills or drains."""

    component: int
    before: float  # share of samples expected of it, 0 to 1
    now: float  # share of the new samples, 0 to 1
    change: float  # signed root of its part of a chi-square; above 0: it fills


@dataclass(frozen=True)
class ClassChange:
    """A class that fills or drains."""

    label: Label
    before: float | None  # share of the sub-task's labels, 0 to 1; None where it had none
    now: float  # share that the model of before takes the new samples for


@dataclass(frozen=True)
class LabelChange:
    """Samples that are called something else now."""

    before: Label  # what the model of before calls them
    now: Label  # their label
    samples: int  # of those examined


@dataclass(frozen=True)
class Prototype:
    """The mean of a group of new samples."""

    samples: int  # of the group, ten at least
    features: tuple[float, ...]  # in the units that were sent, rounded


@dataclass(frozen=True)
class Explanation:
    """The explanation of a boundary. Fields that could not be told are None, or empty."""

    samples: int = 0  # that were new
    examined: int = 0  # of these
    log_likelihood_before: float | None = None  # running mean, nats
    log_likelihood_deviation: float | None = None  # of single samples
    log_likelihood_now: float | None = None
    effect: float | None = None  # the change in deviations; below 0: a drop
    inliers: float | None = None  # share of the new samples, 0 to 1
    p_value: float | None = None
    feature_drop: float | None = None  # nats; that of all features together
    features: tuple[FeatureChange, ...] = ()  # the strongest, at most ten; likewise:
    components: tuple[ComponentChange, ...] = ()
    classes: tuple[ClassChange, ...] = ()
    labels: tuple[LabelChange, ...] = ()  # where labels are what changed
    prototypes: tuple[Prototype, ...] = ()  # not in a list of boundaries; likewise:
    contributions: tuple[float, ...] = ()  # the share of every feature, 0: as before


@dataclass(frozen=True)
class Note:
    """What somebody says about a boundary."""

    text: str
    by: str | None  # who says it, as far as that is known
    time: float  # Unix seconds


@dataclass(frozen=True)
class Boundary:
    """A boundary between two sub-tasks, as it was reported.

    Positions count the stream's batches and samples before the one in question.
    """

    id: str  # give it as `since` to ask for later ones
    boundary: int  # 1 for the first; no number is given twice
    sub_task: int  # the one that begins
    time: float  # Unix seconds
    entry_id: str
    batch_index: int
    sample_index: int
    estimated_start_batch: int
    estimated_start_sample: int
    detector: str
    evidence: Mapping[str, float]
    version_before: int
    version_after: int
    signal: str = ""  # of the detector, that contributed most
    recurrence_of: int | None = None  # the earlier sub-task that has come back
    mixed_samples: int = 0  # of those set aside, learned as the end of the sub-task before
    estimated_start_entry_id: str | None = None  # None where it is not known
    explanation: Explanation = Explanation()
    dropped: bool = False  # a rollback or an upload has taken it out of the model's past
    severity: float | None = None  # least share of samples that are others, 0 to 1
    severity_view: str | None = None  # what shows it
    notes: tuple[Note, ...] = ()  # oldest first
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def _repr_html_(self) -> str:
        """What a notebook shows; with a picture where `GMRClient.boundary` gave it."""
        why, parts = self.explanation, []
        back = "" if self.recurrence_of is None else f", sub-task {self.recurrence_of} again"
        parts.append(
            f"<p><b>Boundary {self.boundary}</b>: sub-task {self.sub_task} begins{back}, about "
            f"sample {self.estimated_start_sample:,}; found at sample {self.sample_index:,} by "
            f"{html.escape(self.detector)} ({html.escape(self.signal or 'no signal')}).</p>"
        )
        if why.effect is not None:
            parts.append(f"<p>The log-likelihood moved by {why.effect:+.1f} deviations.</p>")
        if why.prototypes:
            names = [f"{prototype.samples} samples" for prototype in why.prototypes]
            parts.append(drawings([prototype.features for prototype in why.prototypes], names))
        if why.features:
            rows = [(f.title, f"{100 * f.share:.0f} %", *f.moments) for f in why.features]
            parts.append(table(("what changed", "share", *MOMENTS), rows, len(rows)))
        return "<div>" + "".join(parts) + "</div>"

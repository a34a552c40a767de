"""What is told of a change, as a schema; `core.engine.explanation` makes it.

Every field may be missing: a boundary that was declared without new samples, or reported by an
earlier release, has none of them.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class FeatureChange(BaseModel):
    """A feature that takes part in the change: its mean or variance differs beyond chance."""

    feature: int = Field(description="Its place in a sample; the first is 0.")
    name: str | None = Field(
        None, description="What PUT /model/feature-names calls it; null without names."
    )
    share: float = Field(
        description="Share of the change of all features that have changed, 0 to 1."
    )
    mean: float = Field(description="Mean of the new samples, in the units that were sent.")
    expected: float = Field(description="What the components that the samples fell on expected.")
    before: float | None = Field(
        None,
        description="Mean in the sub-task that ended, in the units that were sent; null where "
        "fewer than ten of its samples are known.",
    )
    deviation_before: float | None = Field(
        None, description="Standard deviation in the sub-task that ended; null likewise."
    )
    deviation_now: float | None = Field(
        None,
        description="Standard deviation of the new samples; 0 of a sensor that sticks. Null of a "
        "boundary that an earlier release has found.",
    )


class ComponentChange(BaseModel):
    """A component that fills or drains."""

    component: int
    before: float = Field(description="Share of samples expected of it before, 0 to 1.")
    now: float = Field(description="Share of the new samples, 0 to 1.")
    change: float = Field(description="Signed root of its part of a chi-square; above 0: fills.")


class ClassChange(BaseModel):
    """A class that fills or drains."""

    label: int | str
    before: float | None = Field(
        description="Share of the labelled samples of the sub-task before, 0 to 1; null where it "
        "had no labels."
    )
    now: float = Field(description="Share that the model of before takes the new samples for.")


class LabelChange(BaseModel):
    """Samples that are called something else now."""

    before: int | str = Field(description="What the model of before calls them.")
    now: int | str = Field(description="Their label.")
    samples: int = Field(description="Number of the samples examined.")


class Prototype(BaseModel):
    """The mean of a group of new samples."""

    samples: int = Field(description="Samples in the group, ten at least.")
    features: list[float] = Field(description="Mean, in the units that were sent, rounded.")


class Explanation(BaseModel):
    """What changed, by the model of before; without what could not be told."""

    model_config = ConfigDict(extra="allow")

    samples: int | None = Field(None, description="Samples that were new.")
    examined: int | None = Field(None, description="How many of them were looked at.")
    log_likelihood_before: float | None = Field(None, description="Running mean, nats.")
    log_likelihood_deviation: float | None = Field(
        None, description="Deviation of single samples, nats."
    )
    log_likelihood_now: float | None = Field(None, description="Mean of the new samples, nats.")
    effect: float | None = Field(None, description="The change in deviations; below 0: a drop.")
    inliers: float | None = Field(None, description="Share that POST /outliers would call so.")
    p_value: float | None = Field(
        None, description="P-value of the verdict, where the detector has one."
    )
    feature_drop: float | None = Field(
        None, description="Nats by which the features' terms lie below what was expected of them."
    )
    features: list[FeatureChange] = Field([], description="The strongest ten.")
    components: list[ComponentChange] = Field([], description="The strongest ten.")
    classes: list[ClassChange] = Field([], description="The strongest ten.")
    labels: list[LabelChange] = Field(
        [], description="The ten most frequent, where labels are what changed."
    )
    prototypes: list[Prototype] = Field([], description="At most four, the largest first.")
    contributions: list[float] = Field(
        [], description="The share of every feature, 0 where it may be as before."
    )

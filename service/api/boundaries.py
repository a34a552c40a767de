"""Boundaries and their notes, as schemas."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from service.api.drift_state import Report
from service.api.explanation import Explanation
from service.wire import MOST_BY, MOST_NOTE


class Note(BaseModel):
    """A note."""

    text: str = Field(description="In words.", examples=["The lens was cleaned."])
    by: str | None = Field(description="Who says it; null where nobody knows.")
    time: float = Field(description="When, Unix seconds.")


class Boundary(Report):
    """The end of one sub-task and the beginning of the next."""

    id: str = Field(description="Id of this report; give it as `since` to ask for later ones.")
    time: float = Field(description="When it was found, Unix seconds.")
    entry_id: str = Field(description="Entry of the stream at which it was found.")
    boundary: int = Field(description="1 for the first; no number is given twice.")
    dropped: bool = Field(
        description="Whether a rollback or an upload has taken it out of the model's past."
    )
    sub_task: int = Field(description="The one that begins.")
    batch_index: int = Field(description="Batch at which it was found; the first is 0.")
    sample_index: int = Field(description="First sample of that batch; the first is 0.")
    estimated_start_batch: int = Field(description="Where the change probably began.")
    estimated_start_sample: int = Field(description="Where the change probably began.")
    estimated_start_entry_id: str | None = Field(
        None, description="Entry of the stream that holds that sample; null where it is not known."
    )
    detector: str = Field(description="The rule that spoke; `declared` for a person.")
    signal: str = Field("", description="Signal of the detector that contributed most.")
    recurrence_of: int | None = Field(
        None, description="The earlier sub-task that has come back; null for a new one."
    )
    mixed_samples: int = Field(
        0, description="Samples set aside that were learned as the end of the sub-task before."
    )
    evidence: dict[str, float] = Field(description="Statistic, threshold, rates, likelihoods.")
    version_before: int = Field(description="Model version before it.")
    version_after: int = Field(description="Model version after it.")
    severity: float | None = Field(
        None,
        description="Least share of the new samples that are other than before, 0 to 1, estimated; "
        "null where there were no new samples.",
    )
    severity_view: str | None = Field(
        None,
        description="What shows it: `likelihood`, `components`, `features` or `labels`; null "
        "likewise.",
    )
    notes: list[Note] = Field(
        default_factory=list, description="What people say about it, oldest first."
    )
    explanation: Explanation = Field(
        default_factory=lambda: Explanation.model_validate({}),
        description="What changed. The list has it without `prototypes` and `contributions`.",
    )


class Boundaries(BaseModel):
    """Boundaries in the order in which they were found."""

    boundaries: list[Boundary]


class Declaration(BaseModel):
    """What is said with a boundary that a person declares."""

    model_config = ConfigDict(extra="forbid")

    note: str | None = Field(
        None, min_length=1, max_length=MOST_NOTE, description="Becomes the boundary's first note."
    )
    by: str | None = Field(
        None,
        max_length=MOST_BY,
        description="Who says so, where no keys are required; otherwise it is the name of the key.",
    )


class Declared(BaseModel):
    """A boundary that a person declares."""

    entry_id: str = Field(description="Entry of the stream that carries it.")

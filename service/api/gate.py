"""What routes say of the gate: whether what is learned is served, and why not."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class GateState(BaseModel):
    """Whether what is learned is served, as the trainer reported last."""

    model_config = ConfigDict(extra="allow")

    max_forgetting: float = Field(
        description="Largest fall of the retained accuracy on a past sub-task with which a version "
        "is served (GMR_GATE_MAX_FORGETTING)."
    )
    held: bool = Field(
        description="Whether what is learned is held back, and an earlier version answers."
    )
    forgetting: float | None = Field(
        description="Largest fall that was found in the version asked last, -1 to 1; null without "
        "a past sub-task that had labels."
    )
    past_sub_task: int | None = Field(description="The past sub-task that it was found on.")
    accuracy_before: float | None = Field(
        description="The retained accuracy that the fall is counted from, 0 to 1: that of the end "
        "of that sub-task, or that at which a loss was accepted."
    )
    accuracy_now: float | None = Field(description="That of the version asked last.")
    checked_version: int | None = Field(description="The version asked last.")
    served_version: int | None = Field(
        description="The version that answers during a hold; null without one."
    )
    held_version: int | None = Field(
        description="The first version that was held back; null without a hold."
    )
    held_entry_id: str | None = Field(
        description="Entry of the stream at which that was; null without a hold."
    )
    rollback: bool = Field(
        description="Whether the trainer goes back by itself to the version that passed last "
        "(GMR_GATE_ROLLBACK)."
    )

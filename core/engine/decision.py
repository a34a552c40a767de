"""The decision on a batch, as a value, before anything is done.

The detector says how sure it is of a change; labels, the course of the stream, or the samples
themselves may say that it is none of the kind that begins a sub-task. The rest is a table:

| level | besides | decision |
|---|---|---|
| normal | | `LEARN` |
| normal | an alarm has just gone away | `BURST` |
| normal | the same, and outliers come again and again, or have a new label | `BOUNDARY` |
| warning | | `SET_ASIDE` |
| warning | too many samples are set aside already | `GIVE_UP` |
| boundary | | `BOUNDARY` |
| boundary | only the shares of classes have changed | `PRIOR_SHIFT` |
| boundary | the change at the last boundary goes on | `CONTINUED` |
| boundary | the sub-task has learned these very samples before | `REPEATED` |
"""

from __future__ import annotations

from enum import StrEnum

from core.drift.detector import Level
from core.events import ChangeContinued, PriorShift, SamplesRepeated

Absorbed = PriorShift | ChangeContinued | SamplesRepeated
"""What a change may be that begins no sub-task."""


class Decision(StrEnum):
    """The decision on a batch."""

    LEARN = "learn"  # as part of the current sub-task, with what was set aside before it
    SET_ASIDE = "set_aside"  # until it is clear whether something has changed
    GIVE_UP = "give_up"  # the suspicion, so that learning goes on
    BURST = "burst"  # of outliers: keep them apart, learn the rest
    PRIOR_SHIFT = "prior_shift"  # no new sub-task: learn, and find the new shares usual
    CONTINUED = "continued"  # no new sub-task: learn, and watch anew from here
    REPEATED = "repeated"  # no new sub-task: learn, and forget the evidence
    BOUNDARY = "boundary"  # begin a sub-task


PHASE_AFTER = {
    Decision.LEARN: None,
    Decision.SET_ASIDE: "warning",
    Decision.GIVE_UP: "armed",
    Decision.BURST: "armed",
    Decision.PRIOR_SHIFT: "armed",
    Decision.CONTINUED: "learning",
    Decision.REPEATED: "armed",
    Decision.BOUNDARY: "learning",
}
"""The phase of the sub-task that follows (`EngineState.phase`). It is "learning" while the detector
has no reference, "armed" once it has, and "warning" while a change is suspected. None: it stays, or
"warning" ends. The diagram in docs/concepts.md is drawn from this."""


def decide(
    level: Level,
    *,
    burst: bool = False,
    lasting: bool = False,
    full: bool = False,
    absorbed: Absorbed | None = None,
) -> Decision:
    """The decision on a batch.

    Arguments:
        level: How sure the detector is of a change.
        burst: Whether an alarm has just gone away.
        lasting: Whether what gave it is a change all the same.
        full: Whether no more samples may be set aside.
        absorbed: What an alarm turns out to be, if it is no boundary.

    Example:
        >>> decide(Level.WARNING, full=True)
        <Decision.GIVE_UP: 'give_up'>
    """
    match level:
        case Level.ALARM if isinstance(absorbed, PriorShift):
            return Decision.PRIOR_SHIFT
        case Level.ALARM if isinstance(absorbed, ChangeContinued):
            return Decision.CONTINUED
        case Level.ALARM if isinstance(absorbed, SamplesRepeated):
            return Decision.REPEATED
        case Level.ALARM:
            return Decision.BOUNDARY
        case Level.WARNING:
            return Decision.GIVE_UP if full else Decision.SET_ASIDE
        case Level.NORMAL if burst:
            return Decision.BOUNDARY if lasting else Decision.BURST
        case Level.NORMAL:
            return Decision.LEARN

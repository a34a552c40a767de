"""Preset `mfa`: factor analysers that belong to classes, learned in one pass.

The rules that keep it from forgetting are those of preset `flat` (`core.learners.per_class.flat`):
components learn from the samples of one owner only, those of earlier sub-tasks are frozen,
and room is made by analytic replay within a constant budget. What differs:

1. An owner's samples are learned by the *window*: so many are held, learned in a few rounds
   of EM together with the statistics of those before them, and let go. All windows together
   hold at most `EngineConfig.window` samples, and none outlives its sub-task.
2. An owner's components grow with its samples, up to its share of the budget.
3. A component stands for a subspace, so that far fewer of them say far more.

    state.py     what is learned, as a value
    windows.py   samples in, components out
    room.py      merging, pooling and thawing, until everyone keeps to the budget
    learner.py   joins these to the protocol of `core.learners.learner`

Throughout: N samples, D features, K components, L factors, C classes.
"""

from core.learners.per_class.mfa.learner import MfaLearner
from core.learners.per_class.mfa.state import MfaState

__all__ = ["MfaLearner", "MfaState"]

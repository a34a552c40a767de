"""Preset `mfa`: factor analysers that belong to classes, learned in one pass.

The rules that keep it from forgetting are those of `core.learners.per_class`. What is its own:

1. An owner's samples are learned by the *window*: so many are held, learned in a few rounds
   of EM together with the statistics of those before them, and let go. All windows together
   hold at most `EngineConfig.window` samples, and none outlives its sub-task.
2. An owner's components grow with its samples, up to its share of the budget.
3. A component stands for a subspace, so that far fewer of them say far more.

The first two are those of every windowed learner (`core.learners.per_class.windowed`).

    state.py     what is learned, as a value
    windows.py   factor analysers seeded, fitted and merged
    learner.py   how they score

Throughout: N samples, D features, K components, L factors, C classes.
"""

from core.learners.per_class.mfa.learner import MfaLearner
from core.learners.per_class.mfa.state import MfaState

__all__ = ["MfaLearner", "MfaState"]

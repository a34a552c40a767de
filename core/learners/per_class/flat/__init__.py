"""Preset `flat`: diagonal components that belong to classes, learned in one pass.

The rules that keep it from forgetting:

1. A component learns from the samples of one owner only: a class, or the samples
   without a label. What one class learns cannot move another's components.
2. Components of earlier sub-tasks are frozen. Room for new ones is made by merging,
   with analytic replay (`core.density.diagonal.merging`), never by drawing samples.
3. The budget K is shared equally by the classes known; unlabelled samples get a share
   by their number. So memory and the cost of a batch stay constant for an endless stream.
   Once there are more classes than components, the newest ones share: their samples join
   those without a label, and their labels become votes on those components.

How an owner's components of the current sub-task come about: its first samples are
held in a *window*; k-means++ and EM run on it whenever it has doubled, so that the
model answers from the first batch on. A full window is let go, and stepwise EM
(Cappe & Moulines 2009) goes on from there, a statistic at a time.

    state.py     what is learned, as a value
    windows.py   an owner's first samples, and the components that start from them
    stepwise.py  stepwise EM for owners whose windows are closed
    room.py      merging, pooling and thawing, until everyone keeps to the budget
    learner.py   joins these to the protocol of `core.learners.learner`

Throughout: N samples, D features, K components, C classes.
"""

from core.learners.per_class.flat.learner import FlatLearner
from core.learners.per_class.flat.state import FlatState

__all__ = ["FlatLearner", "FlatState"]

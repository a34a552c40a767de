"""Preset `flat`: diagonal components that belong to classes, learned in one pass.

The rules that keep it from forgetting are those of `core.learners.per_class`. What is its own:
an owner's first samples in a sub-task are held in a *window*; k-means++ and EM run on it
whenever it has doubled, so that the model answers from the first batch on. A full window is let
go, and stepwise EM (Cappe & Moulines 2009) goes on from there, a statistic at a time.

    state.py     what is learned, as a value
    windows.py   an owner's first samples, and the components that start from them
    stepwise.py  stepwise EM for owners whose windows are closed
    learner.py   joins these to the learner of all families (`core.learners.per_class.learner`)

Throughout: N samples, D features, K components, C classes.
"""

from core.learners.per_class.flat.learner import FlatLearner
from core.learners.per_class.flat.state import FlatState

__all__ = ["FlatLearner", "FlatState"]

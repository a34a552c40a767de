"""Preset `dcgmm`: the deep convolutional mixture of the paper's appendix.

Mixtures of fixed size lie on top of each other: the first sees patches of an image, the last
sees at once what the first says of all of them. Each climbs its own annealed likelihood
(`core.density.diagonal.gradient`), with no gradient from one to the other, and a linear classifier
learns from the last. Replay is that of preset `paper`.

The rules:

1. Every layer learns from the stream at once; one waits only until the one below has found
   its order.
2. A boundary leaves the layers below the last as they are: what the last has learned is
   written in their terms.
3. No raw sample is held from one minibatch to the next.

    settings.py  the numbers, per layer, and the two paces
    state.py     what is learned, as a value
    ascent.py    one layer's gradient steps on what one batch holds
    learner.py   joins these to the protocol of `core.learners.learner`

Throughout: N samples, D features, P positions, K components, C classes.
"""

from core.learners.sgd.dcgmm.learner import DcgmmLearner
from core.learners.sgd.dcgmm.state import DcgmmState

__all__ = ["DcgmmLearner", "DcgmmState"]

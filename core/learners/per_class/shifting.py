"""The shifts that an engine is asked for, where samples are images.

Learners that take them learn every sample as it came and under every shift, all of which
together count as one sample, and the model that they give hears all shifts of what it is asked
to name (`core.model.model`). The density that scores is asked about samples as they came, always.
"""

from __future__ import annotations

from core.config import EngineConfig
from core.density.deep.shifts import Shifts
from core.errors import InvalidSettings, ShapeMismatch


def shifts_of(config: EngineConfig) -> Shifts:
    """The shifts of `config`.

    Raises:
        InvalidSettings: D is known, and samples of D features are no such images.
    """
    shifts = Shifts(config.shift, config.image_shape)
    if config.n_features is not None:
        try:
            shifts.check(config.n_features)
        except ShapeMismatch as error:
            raise InvalidSettings(str(error), **error.context) from None
    return shifts

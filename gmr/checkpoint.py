"""A state as bytes, and back: `dump` and `load`.

Example:
    >>> from gmr import Engine, EngineConfig
    >>> from gmr.checkpoint import dump, load
    >>> engine = Engine(EngineConfig(n_components=4))
    >>> state, config, note = load(dump(engine.start(), engine.config, {"by": "me"}))
    >>> config == engine.config, note
    (True, {'by': 'me'})
"""

from __future__ import annotations

from clients.extras import naming_the_extra

with naming_the_extra("gmr.checkpoint", "engine"):
    from core.engine.checkpoint import dump, load

__all__ = ["dump", "load"]

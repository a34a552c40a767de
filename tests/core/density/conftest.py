"""Both ways to go through components: as a CPU does, and as a device."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from core.density import blocks


@pytest.fixture(scope="module", params=[False, True], ids=["", "all at once"])
def both_ways(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "ALL_AT_ONCE", request.param)
        yield

"""What the tests of the trainer share."""

from __future__ import annotations

import pytest


@pytest.fixture
def main_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """`host.main` may be called: it leaves alone what belongs to the whole process."""
    for switch in ("signal.signal", "torch.set_num_threads", "torch.set_flush_denormal", "os.nice"):
        monkeypatch.setattr(switch, lambda *_: None)
    monkeypatch.setattr("service.trainer.host.configure_logs", lambda *_: None)

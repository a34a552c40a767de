"""`python -m service.trainer`: the trainer with the settings of the environment."""

from __future__ import annotations

from service.ending import end_at_once_when_asked, end_with


def work() -> int:
    """Import what is heavy, and run; asked to end meanwhile, it has nothing to lose."""
    end_at_once_when_asked()
    from service.settings import Settings
    from service.trainer.host import main

    return main(Settings.load())


if __name__ == "__main__":
    end_with(work)

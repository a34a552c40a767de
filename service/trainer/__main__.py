"""`python -m service.trainer`: the trainer with the settings of the environment."""

from __future__ import annotations

from service.ending import end_with
from service.settings import Settings
from service.trainer.host import main

if __name__ == "__main__":
    end_with(lambda: main(Settings.load()))

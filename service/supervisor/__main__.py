"""`python -m service.supervisor`: the whole service with the settings of the environment."""

from __future__ import annotations

import sys

from core.errors import InvalidSettings
from service.ending import MUST_CHANGE_SETTINGS
from service.settings import Settings
from service.supervisor.run import serve

if __name__ == "__main__":
    try:
        sys.exit(serve(Settings.load()))
    except InvalidSettings as error:
        print(error, file=sys.stderr)
        sys.exit(MUST_CHANGE_SETTINGS)

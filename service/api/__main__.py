"""`python -m service.api`: one API process with the settings of the environment."""

from __future__ import annotations

import sys

from core.errors import InvalidSettings
from service.settings import Settings

if __name__ == "__main__":
    try:
        settings = Settings.load()
        from service.api.app import main  # heavy; a wrong setting should be told at once

        sys.exit(main(settings))
    except InvalidSettings as error:
        print(error, file=sys.stderr)
        sys.exit(2)

"""Writes the dashboards of Grafana: python -m deploy.grafana.generate

`dashboards/*.json` are what this writes; change `boards` here, never there. A test compares.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from deploy.grafana.boards import drift, http, overview, redis, trainer

PAGES = (overview.PAGE, drift.PAGE, trainer.PAGE, http.PAGE, redis.PAGE)


def texts() -> dict[str, str]:
    """Name of a file -> its text."""
    return {f"{page.name}.json": json.dumps(page.to_json(), indent=2) + "\n" for page in PAGES}


def main() -> int:
    """Write the dashboards."""
    for name, text in texts().items():
        (Path(__file__).parent / "dashboards" / name).write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Writes the dashboards of Grafana: python -m deploy.grafana.generate

`dashboards/*.json` are what this writes; change `description` here, never there. A test compares.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from deploy.grafana.description import drift, http, overview, redis, trainer

DASHBOARDS = (
    overview.DASHBOARD,
    drift.DASHBOARD,
    trainer.DASHBOARD,
    http.DASHBOARD,
    redis.DASHBOARD,
)


def texts() -> dict[str, str]:
    """Name of a file -> its text."""
    return {f"{one.name}.json": json.dumps(one.to_json(), indent=2) + "\n" for one in DASHBOARDS}


def main() -> int:
    """Write the dashboards."""
    for name, text in texts().items():
        (Path(__file__).parent / "dashboards" / name).write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

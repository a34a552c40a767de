"""`python -m tests.chaos.damage --tries 200`: one file of a trainer is damaged, whichever it is.

A trainer has three lives on an embedded Redis; the last ends in order, or before the newest
checkpoint has a twin. Each try damages one file of a copy of what it has left (a checkpoint, the
note of one, or a snapshot): a bit is turned, the end is cut off, or a block is zeroed. The next
trainer must come to what a plain run over the acknowledged batches comes to.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
from collections import Counter
from pathlib import Path
from typing import Any
from unittest import mock

from pydantic import SecretStr

from service.settings import Settings
from service.trainer.releases import Releases
from tests.chaos.own_redis import own_redis
from tests.service.running import (
    learned_directly,
    send,
    snapshot_bytes,
    training,
    wait_for_backlog,
)
from tests.service.trainer.test_releases import STREAM, copied, damage
from tests.service.trainer.test_writer import history, published

LIVES = (STREAM[:8], STREAM[8:14], STREAM[14:])
KINDS = ("bit", "cut", "zeros")


def main() -> int:
    """Run it; 0 where nothing was lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    logging.disable(logging.CRITICAL)
    with own_redis() as (url, folder):
        return _damage(url, folder, asked.tries, random.Random(asked.seed))


def _damage(url: str, folder: Path, tries: int, generator: random.Random) -> int:
    made = {end: _lived(url, folder, end) for end in ("in order", "before the twin")}
    expected = {
        end: snapshot_bytes(one, learned_directly(one, STREAM)) for end, one in made.items()
    }
    tried, wrong = Counter[tuple[str, str]](), list[str]()
    for trial in range(tries):
        end, one = generator.choice([*made.items()])
        files = sorted(path for path in one.data_dir.rglob("*") if path.suffix and path.is_file())
        chosen, how = generator.choice(files), generator.choice(KINDS)
        other = _settings(url, folder / str(trial), f"damaged-{trial}")
        copied(one, other)
        name = str(chosen.relative_to(one.data_dir))
        damage(other.data_dir / name, generator.random(), how)
        with training(other):
            pass  # an orderly end learns what is in the stream, and publishes
        rows = [row["batch_index"] for row in history(other)]
        if published(other).to_bytes({}) != expected[end] or rows != list(range(len(STREAM))):
            wrong.append(f"{name}, {how}, of one that ended {end}")
        tried[name.partition("/")[0] + chosen.suffix, how] += 1
    for (what, how), n in sorted(tried.items()):
        print(f"{n:5}  {what}: {how}")
    print(
        f"{tries} tries, {len(wrong)} lost something: {wrong[:5]}"
        if wrong
        else f"{tries} tries; nothing lost, nothing twice, every model as of a plain run"
    )
    return bool(wrong)


def _lived(url: str, folder: Path, end: str) -> Settings:
    one = _settings(url, folder / end.replace(" ", "-"), end.replace(" ", "-"))
    for part in LIVES:
        without = mock.patch.object(Releases, "twin_missing", new=False)
        with without if end != "in order" else mock.MagicMock(), training(one):
            send(one, *part)
            wait_for_backlog(one)
    return one


def _settings(url: str, data_dir: Path, model: str) -> Settings:
    given: dict[str, Any] = {"n_components": 4, "warm_up": 100, "publish_interval_s": 0.02}
    return Settings(
        redis_url=SecretStr(url),
        data_dir=data_dir,
        model=model,
        device="cpu",
        checkpoint_interval_s=3600,
        settle_after_s=3600,
        **given,
    )


if __name__ == "__main__":
    sys.exit(main())

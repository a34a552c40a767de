"""`python -m tests.chaos.fuzz --requests 200000`: a live service under requests at random.

No answer may be a fault of the service, and what is refused may change nothing: what Redis holds is
compared after every run of refusals. There is no trainer, so that whatever changes was changed by a
request.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import redis

from service.broker.keys import Keys
from tests.service.api.stack import make_settings, redis_server, serving
from tests.service.api.test_hostile import NOT_STATE, a_request

REFUSALS_AT_A_TIME = 50


def main() -> int:
    """Run it; 0 where nothing was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    began, found = time.monotonic(), list[str]()
    answers: Counter[int] = Counter()
    rng = random.Random(asked.seed)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name, redis_server(Path(name)) as server:
        made = make_settings(server.url, Path(name) / "data", max_models=5, max_backlog=10**7)
        other, keys = redis.Redis.from_url(server.url), Keys(made.model)
        left_out = {getattr(keys, one).encode() for one in NOT_STATE}

        def state() -> dict[bytes, Any]:
            names = sorted(other.scan_iter(match=f"*{made.model}*", count=1000))
            kept = [one for one in names if one not in left_out]
            return {one: (other.type(one), _size(other, one)) for one in kept}

        with serving(made) as client:
            document = client.get("/openapi.json").json()
            before, refused = state(), list[Any]()
            for number in range(asked.requests):
                request = a_request(rng, document)
                answer = client.request(**request)
                status = answer.status_code
                answers[status] += 1
                no_trainer = status == 503 and "trainer" in answer.text
                if status >= 500 and not no_trainer:
                    found.append(f"{status}: {request} {answer.text[:300]}")
                changed = status < 400 and request["method"] not in ("GET", "HEAD")
                if status >= 400:
                    refused.append(request)
                if refused and (changed or len(refused) >= REFUSALS_AT_A_TIME):
                    if not changed and state() != before:
                        found.append(f"refused, and something changed, among {refused}")
                    refused = []
                if changed:
                    before = state()
                if number % 5_000 == 4_999:
                    seconds = time.monotonic() - began
                    print(f"{seconds:7.0f} s  {number + 1} requests  {dict(answers)}", flush=True)
        other.close()
    print("\n".join(found[:20]) or "no fault, and no change by what was refused")
    print(f"{asked.requests} requests in {time.monotonic() - began:.0f} s: {dict(answers)}")
    return 1 if found else 0


def _size(client: Any, key: bytes) -> Any:
    """What a key holds: streams by their newest id and length, others whole."""
    if client.type(key) == b"stream":
        info = client.xinfo_stream(key)
        return info["last-generated-id"], info["length"]
    return client.dump(key)


if __name__ == "__main__":
    sys.exit(main())

"""Waiting for what the service does once the stream has fallen quiet.

Where others go on sending that may never be: then it is asked as it is, after a time.
"""

from __future__ import annotations

import time

from clients.http.answers import ModelInfo
from clients.http.client import GMRClient

TAKE_IN_S = 15.0
LOOK_BACK_S = 15.0
PAUSE_S = 0.1


def wait_until_taken_in(client: GMRClient) -> ModelInfo:
    """Wait until what was learned is in the model that answers, samples of open windows included.

    They are taken in once the stream has been quiet for a while. Where that is long, or others
    go on sending, the model is asked as it is, after a time: its `waiting` says how many are out.
    """
    deadline = time.monotonic() + TAKE_IN_S
    info = client.model()
    while info.waiting or info.backlog:
        if time.monotonic() > deadline:
            break
        time.sleep(PAUSE_S)
        info = client.model()
    return info


def wait_until_looked_back(client: GMRClient) -> ModelInfo:
    """Wait until the service has asked its latest model how well it holds the past.

    It does so once the stream has been quiet for a while. Where others go on sending that may
    never be: then what it said last is given, after a time.
    """
    deadline = time.monotonic() + LOOK_BACK_S
    info = client.model()
    while any(row.model_version != info.model_version for row in info.held):
        if time.monotonic() > deadline:
            break
        time.sleep(PAUSE_S)
        info = client.model()
    return info

"""Whatever is sent, sent again and rolled back: a batch is accepted when the model lacks it."""

from __future__ import annotations

import asyncio
import uuid

import numpy as np
from hypothesis import HealthCheck, given
from hypothesis import settings as of_hypothesis
from hypothesis import strategies as st

from service.broker.branch import Branch, position
from service.broker.entries import next_id
from service.broker.stream import Stream
from service.settings import Settings
from service.wire import Control, RawBatch
from tests.service.conftest import MakeSettings

SEND = st.tuples(st.just("send"), st.integers(0, 2))
BACK = st.tuples(st.just("back"), st.integers(0, 20))


@given(st.lists(st.one_of(SEND, SEND, BACK), max_size=14))
@of_hypothesis(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50, deadline=None
)
def test_a_batch_is_taken_exactly_when_the_model_does_not_come_from_it(
    settings: MakeSettings, actions: list[tuple[str, int]]
) -> None:
    asyncio.run(play(settings(model=uuid.uuid4().hex), actions))


async def play(settings: Settings, actions: list[tuple[str, int]]) -> None:
    """Send batches, and roll back to the state after the k-th step, against a plain model of it."""
    async with Stream.open(settings) as stream:
        learned: dict[str, str] = {}  # by batch id, the entry
        states = [(dict(learned), Branch(), "0-0")]
        for what, number in actions:
            _, branch, _ = states[-1]
            if what == "send":
                sent = RawBatch.of(np.full((1, 2), number, "f4"), None, f"batch {number}")
                answer = await stream.append(sent)
                expected = learned.get(f"batch {number}")
                assert answer.duplicate == (expected is not None)
                assert expected in (None, answer.entry_id)
                learned[f"batch {number}"] = answer.entry_id
                last = max(answer.entry_id, states[-1][2], key=position)
            else:
                kept, its_branch, reach = states[number % len(states)]
                control = await stream.append_control(Control("rollback", version=1))
                last = control.entry_id
                branch = branch.rolled_back(its_branch, next_id(reach), last)
                await stream.client.set(stream.keys.branch, branch.to_json(decided=last))
                learned = dict(kept)
            states.append((dict(learned), branch, last))

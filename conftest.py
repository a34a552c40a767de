"""Options and fixtures for tests and doctests: device, seeds, threads."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import signal
import sys
import warnings
from collections.abc import Iterator
from typing import Any

# One thread per process: two OpenMP threads on contended cores are slower than one.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Tests run on all cores, beside which a trainer that steps back would hardly get on.
os.environ.setdefault("GMR_TRAINER_NICENESS", "0")

import pytest
import torch
from hypothesis import settings

# A shell that starts the tests in the background ignores Ctrl-C on behalf of every process below.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# A loop that is compiled at its first call takes seconds: no property fails by that. `make test`
# tries the same examples every time, so that what passed passes again; `make properties` makes up
# others.
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("others", deadline=None, print_blob=True)
settings.load_profile("same")

# Modules of an extra that is not installed cannot be looked through for doctests.
collect_ignore = (
    []
    if importlib.util.find_spec("ray")
    else [
        "service/cluster/fleet.py",
        "service/cluster/local.py",
    ]
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--device",
        default="cpu",
        help="where core's tests run: cpu, cuda, or sim, a simulated device",
    )
    parser.addoption(
        "--pictures",
        help="folder in which pictures of the dashboard are kept; without it a temporary one",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Loops that the first labels need are compiled once, before tests wait for what is learned."""
    if not hasattr(config, "workerinput"):
        forests = importlib.import_module("core.experts.forest").Forests.start().grown(1)
        x = torch.zeros(1, 1, dtype=torch.float64)
        forests.learned(x, torch.zeros(1, dtype=torch.int64)).rules().probabilities(x)


def pytest_collection_finish(session: pytest.Session) -> None:
    """What is there by now stays: a full collection of garbage need not look at it again."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def device(request: pytest.FixtureRequest) -> torch.device:
    """The device asked for on the command line."""
    name = request.config.getoption("--device")
    if name == "sim":
        importlib.import_module("tests.core.simulated_device")  # makes it known to torch
    return torch.device(name)


@pytest.fixture
def generator() -> torch.Generator:
    """A seeded source of randomness."""
    return torch.Generator().manual_seed(20211)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def every_warning() -> Iterator[list[warnings.WarningMessage]]:
    """Warnings of Python, each as often as it comes."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught


@pytest.fixture(autouse=True)
def _switches_as_before() -> Iterator[None]:
    """Whoever leaves a switch of the process turned fails, not a test that happens to run later."""
    interrupted, tiny = signal.getsignal(signal.SIGINT), sys.float_info.min / 2
    yield
    left = [] if tiny > 0 else ["tiny numbers are taken for zero (torch.set_flush_denormal)"]
    if signal.getsignal(signal.SIGINT) is not interrupted:
        left.append("Ctrl-C has another handler (signal.signal)")
    torch.set_flush_denormal(False)
    signal.signal(signal.SIGINT, interrupted)
    assert not left, f"The test leaves switches of the process turned: {left}"


@pytest.fixture(autouse=True)
def _doctest_names(doctest_namespace: dict[str, Any]) -> None:
    """`torch` is at hand in doctests."""
    doctest_namespace["torch"] = torch

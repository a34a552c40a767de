"""Tests for clients.rounding: whoever sends is told what the cast to float32 loses."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from clients.data.files import open_source
from clients.http.async_client import AsyncGMRClient
from clients.http.client import GMRClient
from clients.rounding import ENOUGH, FEWEST, Rounding, lost, rounded_columns
from core.precision import PrecisionLost
from gmr.offsets import LOST, offsets
from tests.clients.scripted import ScriptedServer, answer

INGESTED = {"entry_id": "1-1", "batch_id": "b", "samples": 3, "backlog": 1, "duplicate": False}
SECONDS = 1.8e9  # since 1970


def table(n: int = 100, seed: int = 0) -> NDArray[np.float64]:
    """Samples (n, 3), of which the second feature is a time within minutes."""
    x = np.random.default_rng(seed).normal(size=(n, 3))
    x[:, 1] = SECONDS + 40 * x[:, 1]
    return x


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(answer(202, INGESTED)) as server:
        yield server


# The rule


@pytest.mark.parametrize(
    ("values", "columns"),
    [
        (table(), (1,)),
        (table().round().astype(np.int64), (1,)),
        (table(FEWEST - 1), ()),
        (table().astype(np.float32), ()),
        (table() - [0, SECONDS, 0], ()),
        (table()[:, None], ()),
        (np.full((50, 1), SECONDS), ()),  # a number that float32 holds
        (np.full((50, 1), SECONDS + 3), (0,)),
        (np.arange(9_000_000, 9_000_050)[:, None], ()),  # coarse, and held as they are
        (1e5 + table()[:, [0]], ()),
        (np.where(np.arange(100)[:, None] % 3, table(), np.nan), (1,)),
        (np.array([["a"]] * 20), ()),
        (np.zeros((20, 0)), ()),
    ],
)
def test_columns_are_told_that_lose_what_varies(
    values: NDArray[Any], columns: tuple[int, ...]
) -> None:
    assert rounded_columns(values) == columns


def test_estimators_move_what_is_told_and_more() -> None:
    x = np.concatenate([table(), 1e5 + table()[:, [0]]], axis=1)
    assert rounded_columns(x) == (1,)
    found = offsets(x)
    assert found is not None
    assert np.flatnonzero(found).tolist() == [1, 3]
    assert np.flatnonzero(lost(x, LOST).columns).tolist() == [1, 3]


def test_so_many_samples_are_looked_at() -> None:
    rounding = Rounding()
    for i in range(ENOUGH // 100):
        rounding.look(np.zeros((100, 3)) + 0.1)
        assert not rounding.columns
        rounding.look(table(seed=i).astype(np.float32))
    rounding.look(table())
    assert not rounding.columns


# The client


def test_a_client_warns_once_where_it_is_called(
    server: ScriptedServer, every_warning: list[warnings.WarningMessage]
) -> None:
    with GMRClient(server.url) as client:
        for i in range(3):
            client.ingest(table(seed=i))
        assert len(every_warning) == 1
        [told] = every_warning
        assert told.category is PrecisionLost
        assert told.filename == __file__
        assert "Column 1 of the batch lies so far from zero" in str(told.message)
    unnamed = ScriptedServer(answer(200, {"feature_names": None}), answer(202, INGESTED))
    with unnamed, GMRClient(unnamed.url) as other:
        other.ingest(pd.DataFrame(table(), columns=["load", "at", "heat"]))
    assert "Column at of the batch" in str(every_warning[1].message)
    assert len(every_warning) == 2


@pytest.mark.anyio
async def test_an_asynchronous_client_does_so_too(
    server: ScriptedServer, every_warning: list[warnings.WarningMessage]
) -> None:
    async with AsyncGMRClient(server.url) as client:
        for i in range(3):
            await client.ingest(table(seed=i))
    [told] = every_warning
    assert told.category is PrecisionLost
    assert told.filename == __file__


@pytest.mark.parametrize("given", [table().astype(np.float32), table()[:, [0, 2]].tolist()])
def test_a_client_says_nothing_of_usual_samples(
    server: ScriptedServer, every_warning: list[warnings.WarningMessage], given: Any
) -> None:
    with GMRClient(server.url) as client:
        client.ingest(given)
    assert every_warning == []


# Files


def write(path: Path, x: NDArray[np.float64]) -> Path:
    """A file of samples whose columns are called load, at and heat, in the format of its name."""
    names = ["load", "at", "heat"]
    frame = pd.DataFrame(x, columns=names)
    match path.suffix:
        case ".csv":
            frame.to_csv(path, index=False)
        case ".jsonl":
            frame.to_json(path, orient="records", lines=True)
        case ".parquet":
            frame.to_parquet(path)
        case ".npz":
            np.savez(path, features=x, feature_names=np.array(names))
        case ".npy":
            np.save(path, x)
    return path


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet", "npz", "npy"])
def test_files_tell_columns_by_their_names(tmp_path: Path, ending: str) -> None:
    rounding = Rounding()
    source = open_source(write(tmp_path / f"a.{ending}", table()), rounding=rounding)
    read = [rows.features for rows in source.read(50)]
    assert all(features.dtype == np.float32 for features in read)
    assert rounding.columns == ("1" if ending == "npy" else "at",)
    news = rounding.news("a file")
    assert isinstance(news, PrecisionLost)
    assert rounding.news("a file") is None

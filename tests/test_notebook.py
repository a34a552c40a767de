"""Tests for the notebook of examples/, and for answers as a notebook shows them."""

from __future__ import annotations

import ast
import base64
import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from clients.http import notebook
from clients.http.answers import Boundary, Explanation, FeatureChange, OutlierScores, Prototype
from tests.service.api.stack import make_settings, redis_server, serving, training

DIGITS = Path(__file__).parents[1] / "examples" / "digits.ipynb"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("notebook")
    with redis_server(directory / "redis") as redis:
        settings = make_settings(
            redis.url, directory / "data", n_components=40, warm_up=300, experts=True
        )
        with training(settings), serving(settings) as client:
            yield str(client.base_url).rstrip("/")


def results(path: Path) -> list[Any]:
    """What each code cell of a notebook ends with, as Jupyter would show it."""
    document = json.loads(path.read_text("utf-8"))
    names: dict[str, Any] = {}
    found = []
    for cell in document["cells"]:
        if cell["cell_type"] != "code":
            continue
        assert cell["outputs"] == [], "outputs are not committed"
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, path.name, "exec"), names)
        if isinstance(last, ast.Expr):
            expression = ast.Expression(last.value)
            found.append(eval(compile(expression, path.name, "eval"), names))
    names["gmr"].close()
    return found


def pictures(html: str) -> list[np.ndarray]:
    data = re.findall(r'src="data:image/png;base64,([^"]+)"', html)
    return [np.asarray(Image.open(io.BytesIO(base64.b64decode(one)))) for one in data]


def test_the_notebook_of_digits_shows_what_it_says(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GMR_URL", url)
    classes, boundary, drawn, classified, scored = results(DIGITS)
    assert {row.label for row in classes} == {0, 1, 2, 3, 4}
    told = boundary._repr_html_()
    assert "<b>Boundary 1</b>: sub-task 1 begins" in told
    shown = pictures(told)
    assert len(shown) == len(boundary.explanation.prototypes) > 0
    assert {picture.shape for picture in shown} == {(8, 8)}
    assert len(pictures(drawn._repr_html_())) == 12
    assert re.findall(r"<tr><td>(\w+)</td>", classified._repr_html_()) == list("01234")
    assert scored._repr_html_().count("<td>False</td></tr>") == 5


def a_boundary(explanation: Explanation, **more: Any) -> Boundary:
    numbers = {"time": 0.0, "entry_id": "1-0", "batch_index": 1, "sample_index": 2100}
    numbers |= {"estimated_start_batch": 1, "estimated_start_sample": 2000}
    numbers |= {"evidence": {}, "version_before": 1, "version_after": 2}
    values = {"id": "1-0", "boundary": 3, "sub_task": 3, "detector": "sequential", **numbers}
    return Boundary(**{**values, **more}, explanation=explanation)  # type: ignore[arg-type]


def test_a_boundary_of_a_table_has_profiles_and_the_features_that_changed() -> None:
    change = FeatureChange(5, 0.8, 2.0, -1.0, None, -1.5, 0.25, 0.5)
    prototype = Prototype(samples=40, features=(0.0, 1.0, 2.0))
    why = Explanation(features=(change,), prototypes=(prototype, prototype), effect=-2.5)
    told = a_boundary(why, recurrence_of=1, signal="features")._repr_html_()
    named = Explanation(features=(replace(change, name="load & speed"),))
    assert "<td>load &amp; speed (feature 5)</td>" in a_boundary(named)._repr_html_()
    assert "sub-task 1 again, about sample 2,000" in told
    assert "<td>feature 5</td><td>80 %</td><td>2</td><td>-1.5</td><td>0.5</td><td>0.25</td>" in told
    assert "moved by -2.5 deviations" in told
    [first, _] = pictures(told)
    assert [int((first[:, column] < 255).sum()) for column in range(3)] == [1, 29, 56]


def test_what_a_service_says_cannot_break_a_notebook() -> None:
    told = a_boundary(Explanation(), detector="<script>", signal="<b>")._repr_html_()
    assert "<script>" not in told
    assert "&lt;script&gt; (&lt;b&gt;)" in told
    assert "<i>" not in notebook.drawings([[0.0, 1.0]], ["<i>"])


def test_many_rows_are_counted() -> None:
    n = 300
    answer = OutlierScores(1, np.zeros(n), np.ones(n, bool), 0.0, None, None, "log_likelihood", 0)
    told = answer._repr_html_()
    assert told.count("<tr>") == notebook.MOST_ROWS + 1
    assert "and 280 more" in told
    many = notebook.drawings(np.zeros((50, 16)), [""] * 50)
    assert len(pictures(many)) == notebook.MOST_PICTURES
    assert "and 10 more" in many

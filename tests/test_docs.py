"""Tests for docs/: every setting, metric, route, error, event and alert is documented."""

from __future__ import annotations

import ast
import dataclasses
import math
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import pytest
import yaml
from packaging.requirements import Requirement

from clients.http import answers
from core import events
from core.drift.sequential.signals import BET_TABLE
from core.engine.decision import PHASE_AFTER
from service.api.app import create_app
from service.api.problems import FRAMEWORK, PROBLEMS
from service.settings import CLIENT_VARIABLES, CONFIG_VARIABLE, SECRET_FILES, Settings
from service.wire import (
    CONTROL_KINDS,
    REQUEUED_FROM,
    Control,
    RawBatch,
    RawLabels,
    RawName,
    Upload,
)
from tests.deploy.metric_names import families
from tests.service.api.stack import (
    learned,
    make_settings,
    redis_server,
    serving,
    training,
    wait_until,
)

ROOT = Path(__file__).parents[1]
HTTP = (ROOT / "docs" / "http.md").read_text("utf-8")
OPERATIONS = (ROOT / "docs" / "operations.md").read_text("utf-8")
LIBRARY = (ROOT / "docs" / "library.md").read_text("utf-8")
REASONS = "# Dependencies, and why each"
REDIS = (ROOT / "docs" / "redis.md").read_text("utf-8")


def table(text: str, heading: str) -> list[list[str]]:
    """The rows of all tables below a heading, up to the next one of its level or above."""
    level = heading.split()[0]
    _, _, rest = text.partition(f"\n{heading}\n")
    assert rest, f"no heading {heading!r}"
    section = re.split(rf"\n#{{1,{len(level)}}} ", rest)[0]
    rows = [
        [cell.strip().strip("`") for cell in line.removeprefix("|").removesuffix("|").split("|")]
        for line in section.splitlines()
        if line.startswith("|") and not line.startswith("|---")
    ]
    return [row for row in rows if row[0]]


def test_every_setting_is_documented_with_its_default() -> None:
    rows = {row[0]: row for row in table(OPERATIONS, "## Settings") if row[0] != "variable"}
    expected = {f"GMR_{name.upper()}": field for name, field in Settings.model_fields.items()}
    assert list(rows) == list(expected), "the order is that of the settings, too"
    for variable, field in expected.items():
        _, default, meaning, when = rows[variable]
        assert default == ("unset" if field.default is None else str(field.default)), variable
        assert meaning, variable
        assert when, variable
    for variable in (CONFIG_VARIABLE, *SECRET_FILES):
        assert f"`{variable}`" in OPERATIONS


def test_every_choice_of_a_setting_is_named() -> None:
    for name, field in Settings.model_fields.items():
        for choice in re.findall(r"'(\w+)'", str(field.annotation)):
            if "Literal" in str(field.annotation):
                row = next(
                    line for line in OPERATIONS.splitlines() if f"`GMR_{name.upper()}`" in line
                )
                assert f"`{choice}`" in row, (name, choice)


def test_every_metric_is_documented_with_its_type_and_labels() -> None:
    rows = {row[0]: row for row in table(OPERATIONS, "## Metrics") if row[0] != "metric"}
    known = families()
    assert rows.keys() == known.keys()
    for name, family in known.items():
        assert rows[name][1] == family.type, name
        assert rows[name][3], name


def test_every_metric_has_a_panel_or_is_documented_as_having_none() -> None:
    boards = (ROOT / "deploy" / "grafana" / "dashboards").glob("*.json")
    text = " ".join(path.read_text("utf-8") for path in boards)
    shown = {re.sub(r"_(bucket|sum|count)$", "", name) for name in re.findall(r"\bgmr_\w+", text)}
    for name, _, _, meaning in table(OPERATIONS, "## Metrics"):
        if name != "metric":
            assert (name in shown) != ("no panel" in meaning), (
                f"{name}: add it to deploy/grafana/description, or say `no panel` in its row."
            )


# What a family without a single series cannot tell.
LABELS = {
    "gmr_ledger_samples": ["fate"],
    "gmr_class_share": ["class"],
    "gmr_class_share_change": ["class"],
    "gmr_class_likelihood_change": ["class"],
    "gmr_key_samples": ["key"],
    "gmr_key_outliers": ["key"],
    "gmr_batches_rejected_total": ["reason"],
    "gmr_models": ["state"],
    "gmr_bucket_works": ["bucket"],
    "gmr_labels_unmatched_total": ["reason"],
    "gmr_drift_statistic": ["detector"],
    "gmr_mode": ["mode"],
    "gmr_drift_threshold": ["detector"],
    "gmr_webhook_deliveries_total": ["outcome"],
    "gmr_http_requests_total": ["route", "method", "status"],
    "gmr_http_request_duration_seconds": ["route"],
}


def test_labels_of_metrics_are_documented() -> None:
    for name, *cells in table(OPERATIONS, "## Metrics"):
        if name != "metric":
            assert re.findall(r"\w+", cells[1]) == LABELS.get(name, []), name


def test_every_alert_is_documented_with_its_severity() -> None:
    rules = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text("utf-8"))
    severities = {
        rule["alert"]: rule["labels"]["severity"]
        for group in rules["groups"]
        for rule in group["rules"]
    }
    rows = {row[0]: row[1] for row in table(OPERATIONS, "## Alerts") if row[0] != "alert"}
    assert rows == severities


PAGES = ("/", "/static/{path}", "/docs", "/openapi.json", "/problems", "/problems/{name}")


def test_every_route_is_documented() -> None:
    paths = create_app(Settings(redis_url="redis://127.0.0.1:1")).openapi()["paths"]  # type: ignore[arg-type]
    for path, methods in paths.items():
        for method in methods:
            assert f"`{method.upper()} {path}`" in HTTP, (method, path)
    for path in PAGES:
        assert f"`GET {path}`" in HTTP


def test_no_route_is_documented_that_is_not_there() -> None:
    app = create_app(Settings(redis_url="redis://127.0.0.1:1"))  # type: ignore[arg-type]
    known = {
        *(f"{m.upper()} {path}" for path, ms in app.openapi()["paths"].items() for m in ms),
        *(f"GET {path}" for path in PAGES),
    }
    named = set(re.findall(r"`((?:GET|POST|PUT|DELETE) /[^`?\s]*)`", HTTP + OPERATIONS))
    assert named - known == set()


def test_every_kind_of_error_is_documented_with_its_status() -> None:
    known = {row.name: str(row.status) for row in (*PROBLEMS.values(), *FRAMEWORK.values())}
    rows = {row[0]: row for row in table(HTTP, "## Errors") if row[0] != "type"}
    assert {name: row[1] for name, row in rows.items()} == known
    assert all(row[2] and row[3] for row in rows.values())


def test_every_kind_of_event_is_documented() -> None:
    kinds = {
        event.kind
        for event in vars(events).values()
        if isinstance(event, type) and issubclass(event, events.Event)
    } - {"event", "batch_scored"}
    rows = {row[0] for row in table(HTTP, "### `GET /events`")} - {"kind"}
    assert rows == kinds | {"missed"}


WIDTH = 100
"""Columns of prose; tables, headings and code have what they need."""

UNBROKEN = re.compile(r"(?:`+[^`]*`+|\S)+")
"""What no line is broken in: a word, or code with its spaces."""

PAGES_OF_PROSE = sorted(
    str(page.relative_to(ROOT))
    for page in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md"))
)


@pytest.mark.parametrize("name", PAGES_OF_PROSE)
def test_prose_is_wrapped(name: str) -> None:
    text = re.sub(r"(?ms)^ *(`{3,}).*?^ *\1$", "", (ROOT / name).read_text("utf-8"))
    prose = (line for line in text.splitlines() if not re.match(r" *[|#<!]|    \S", line))
    wide = [line.lstrip(" *-0123456789.") for line in prose if len(line) > WIDTH]
    assert [line for line in wide if len(UNBROKEN.findall(line)) > 1] == []


def test_the_method_is_told_in_few_lines() -> None:
    assert len((ROOT / "docs/method.md").read_text("utf-8").splitlines()) <= 250


@pytest.mark.parametrize("name", PAGES_OF_PROSE)
def test_links_lead_somewhere(name: str) -> None:
    page = ROOT / name
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text("utf-8")):
        if target.startswith("http"):
            continue
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), target
        if anchor:
            headings = re.findall(r"(?m)^#+ (.+)$", file.read_text("utf-8"))
            anchors = {
                re.sub(r"[^\w\- ]", "", h).strip().lower().replace(" ", "-") for h in headings
            }
            assert anchor in anchors, target


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx2.Client]:
    directory = tmp_path_factory.mktemp("docs")
    with redis_server(directory / "redis") as redis:
        settings = make_settings(redis.url, directory / "data", n_components=2, experts=True)
        with training(settings), serving(settings) as client:
            wait_until(lambda: client.get("/health/ready").status_code == 200)
            yield client


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_examples_run(service: httpx2.Client, tmp_path: Path) -> None:
    examples = re.findall(r"(?ms)^```sh\n(.*?)^```", HTTP)
    assert len(examples) >= 7
    for example in examples:
        script = example.replace("http://localhost:8000", str(service.base_url).rstrip("/"))
        result = subprocess.run(
            ["bash", "-ec", script], capture_output=True, check=False, cwd=tmp_path
        )
        assert result.returncode == 0, (example, result.stdout, result.stderr)
        learned(service)
    assert (tmp_path / "samples.png").read_bytes().startswith(b"\x89PNG")


# Redis --------------------------------------------------------------------------


def entries() -> list[dict[str, bytes | memoryview]]:
    """One entry of every kind, with every field that it may have."""
    upload = Upload("0", 1, 1, "")
    return [
        {**RawBatch.of([[1.0]], [1], "id", ["a"]).to_entry(), REQUEUED_FROM: b"1-0"},
        RawLabels.of(["a"], [1], "id").to_entry(),
        RawName.of(1, "a", "id").to_entry(),
        Control("restore", checkpoint=b"x").to_entry(),
        Control("restore", upload=upload).to_entry(),
        Control("rollback", version=1, by="gate").to_entry(),
        Control("check").to_entry(),
        Control("release", by="ada", note="why").to_entry(),
        Control("boundary", by="ada", note="why").to_entry(),
        Control("mode", mode="learn", by="ada", note="why").to_entry(),
        Control("settings", settings={"max_classes": 7}, by="ada", note="why").to_entry(),
        Control("rename", labels=("a", 7), by="ada", note="why").to_entry(),
        Control("merge", labels=("a", 7), by="ada", note="why").to_entry(),
        Control("settle").to_entry(),
        Control("join").to_entry(),
        Control("aim", samples=2, by="ada").to_entry(),
        Control("expire", samples=2).to_entry(),
    ]


def test_every_field_of_an_entry_is_documented_with_the_kinds_that_have_it() -> None:
    documented = {
        name: row
        for row in table(REDIS, "## Fields")
        for name in re.findall(r"\w+", row[0])
        if row[0] != "field" and len(row) == 4
    }
    assert documented.keys() == {name for entry in entries() for name in entry}
    for entry in entries():
        kind = bytes(entry["kind"]).decode()
        for name in entry:
            kinds = documented[name][1]
            assert "all" in kinds or kind in kinds or name == "crc", (kind, name)


def test_every_kind_of_entry_is_documented() -> None:
    rows = [row for row in table(REDIS, "## Fields") if len(row) == 3 and row[0] != "kind"]
    found = {kind for row in rows for kind in re.findall(r"\w+", row[0])}
    assert found == {"batch", "labels", "name", *CONTROL_KINDS}


def test_the_producer_of_the_document_feeds_a_real_service(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    (program,) = re.findall(r"(?ms)^```python\n(.*?)^```", REDIS)
    directory = tmp_path_factory.mktemp("producer")
    with redis_server(directory / "redis") as redis:
        settings = make_settings(redis.url, directory / "data", experts=True)
        with training(settings), serving(settings) as client:
            program = program.replace("redis://localhost:6379", redis.url)
            program = program.replace("gmr:default", f"gmr:{settings.model}")
            names: dict[str, Any] = {}
            exec(compile(program, "redis.md", "exec"), names)  # as a reader would
            names["send"](np.random.default_rng(0).random((40, 2)), [1, "a"] * 20)
            names["send"]([[0.5, 0.5]])
            names["send"]([[0.5, float("nan")]])  # a dead letter
            model = learned(client)
            assert model["samples_seen"] + model["unknown"] == 43
            assert {row["label"]: row["count"] for row in model["classes"]} == {"a": 21, 1: 20}
            [letter] = client.get("/deadletters").json()["deadletters"]
            assert letter["reason"] == "non_finite_feature"


def test_the_numbers_of_the_readme_are_those_of_the_benchmarks() -> None:
    readme, measured = (
        (ROOT / path).read_text("utf-8") for path in ("README.md", "docs/benchmarks.md")
    )
    readme = " ".join(readme.split())  # wherever lines end
    (row,) = re.findall(r"one comes every ([\d,]+) in batches of 1, (.*?)\. Looking", readme)
    told = {
        "1": row[0],
        **{size: run for run, size in re.findall(r"([\d,]+) in batches of (\d+)", row[1])},
    }
    runs = dict(re.findall(r"(?m)^\| 50,000 \| (\d+) \| ([\d,]+) \(", measured))
    assert told.keys() == runs.keys()
    for size, run in runs.items():
        assert round(int(run.replace(",", "")), -2) == int(told[size].replace(",", "")), size
    us = re.findall(r"(?m)^\| `(mfa|flat)` \| ([\d.]+) \([^|]*\| [\d.]+ \(", measured)
    times = float(dict(us)["mfa"]) / float(dict(us)["flat"])
    assert 4 <= times <= 5
    assert "four to five times as fast" in readme
    (slower,) = re.findall(r"makes the default model (\d+) % slower", readme)
    assert re.search(rf"`mfa` [^;]*?, so {slower} % more", measured)
    ((there, none),) = re.findall(r"(?m)^\| `mfa` \| (\d+) \([^|]*\| (\d+) \(", measured)
    assert int(slower) == round(100 * (int(there) / int(none) - 1))
    ((every, alone),) = re.findall(
        r"perceptron trained on all of MNIST at once reaches ([\d.]+) %.*?1/(\d+) of the", readme
    )
    assert re.search(rf"(?m)^\| fine-tuning \| {every} \|", measured)
    kept = re.search(r"(?m)^\| numbers kept [^|]*\| ([\d,]+) \| ([\d,]+) \|", measured)
    assert kept
    most, few = (int(number.replace(",", "")) for number in kept.groups())
    assert int(alone) == round(most / few)
    ((changes, returns),) = re.findall(
        r"\| sub-tasks come back \| (\d+ of \d+); (\d+ of \d+) returns named \|", readme
    )
    assert re.search(rf"(?m)^\| `recurring` \| MNIST \| {changes} \|", measured)
    assert f"(`recurrence_of`, {returns})" in " ".join(measured.split())


BET_KINDS = ("ranks", "cells", "labels", "features")
PHASES = {
    "learning": "the detector has no reference yet",
    "armed": "the detector may speak",
    "warning": "a change is suspected",
}


def phases() -> str:
    """The table of decisions as a diagram."""
    lines = ["stateDiagram-v2", "    [*] --> learning"]
    lines += [f"    {phase}: {phase}, {meaning}" for phase, meaning in PHASES.items()]
    lines.append("    learning --> armed: enough samples")
    for decision, after in PHASE_AFTER.items():
        if after == "warning":
            lines += [f"    {one} --> warning: {decision}" for one in ("armed", "warning")]
        elif after is None:
            lines += [f"    {one} --> {one}: {decision}" for one in ("learning", "armed")]
            lines.append(f"    warning --> armed: {decision}")
        else:
            lines += [f"    {one} --> {after}: {decision}" for one in ("armed", "warning")]
    return "\n".join(lines)


def test_the_phases_are_drawn_from_the_table_of_decisions() -> None:
    assert f"```mermaid\n{phases()}\n```" in (ROOT / "docs/concepts.md").read_text("utf-8")


def test_the_weights_on_the_detectors_page_are_those_of_its_bets() -> None:
    page = " ".join((ROOT / "docs/detector.md").read_text("utf-8").split())
    total = sum(bet.weight for kind in BET_KINDS for bet in getattr(BET_TABLE, kind))
    assert f"{total:.2f} at most" in page
    assert f"of 0.1 must gain {math.log(total / 0.1):.2f} nats more" in page


def test_words_are_in_order_and_each_is_explained_once() -> None:
    text = (ROOT / "docs/concepts.md").read_text("utf-8").split("## Words")[1]
    words = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", text, re.MULTILINE)[1:]
    assert len(words) >= 30
    assert words == sorted(words, key=str.lower)
    assert len(words) == len(set(words))


def test_every_library_has_its_reason() -> None:
    """But for those that only tests and checks need."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = {name: of for name, of in declared["optional-dependencies"].items() if name != "dev"}
    named = {
        Requirement(one).name for of in [declared["dependencies"], *extras.values()] for one in of
    }
    told = table("\n" + (ROOT / "docs/dependencies.md").read_text("utf-8"), REASONS)
    known = {name for row in told for name in re.findall(r"[\w-]+", row[0])}
    assert named - {"gmr-stream"} <= known


def test_every_page_leads_to_the_words() -> None:
    pages = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md"]
    pages += [page for page in (ROOT / "docs").rglob("*.md") if page.name != "concepts.md"]
    lacking = [page.name for page in pages if "concepts.md" not in page.read_text("utf-8")]
    assert not lacking


COMPOSE_VARIABLES = ("GMR_IMAGE_TAG", "GMR_PUBLISHED_PORT")
"""Variables that docker-compose.yml reads."""


@pytest.mark.parametrize("name", PAGES_OF_PROSE)
def test_what_a_page_names_is_there(name: str) -> None:
    text = (ROOT / name).read_text("utf-8")
    folders = ("gmr", "core", "service", "clients", "benchmarks", "tests", "examples", "deploy")
    files = [str(path) for folder in folders for path in (ROOT / folder).rglob("*.*")]
    for path in re.findall(r"`([\w./-]+\.(?:py|yml))`", text):
        assert path == "utils.py" or any(one.endswith("/" + path) for one in files), path
    for path in re.findall(rf"`((?:{'|'.join(folders)})/[\w./-]*)`", text):
        assert (ROOT / path).exists(), path
    for bench in re.findall(r"gmr bench ([a-z_]+)", text):
        assert (ROOT / "benchmarks" / f"{bench}.py").exists(), bench
    for module in re.findall(rf"python -m ((?:{'|'.join(folders)})\.[\w.]*\w)", text):
        file = ROOT / (module.replace(".", "/") + ".py")
        assert file.exists(), module
        assert "__main__" in file.read_text("utf-8"), f"{module} does nothing when it is run"
    if name == "CHANGELOG.md":  # which names what has gone
        return
    known = {f"GMR_{field.upper()}" for field in Settings.model_fields}
    known |= {CONFIG_VARIABLE, *SECRET_FILES, *CLIENT_VARIABLES, *COMPOSE_VARIABLES}
    named = set(re.findall(r"\b(GMR_[A-Z_]+[A-Z])\b", text))
    assert named - known == set()


def test_every_answer_that_has_the_rest_in_raw_is_named() -> None:
    page = (ROOT / "docs/client.md").read_text("utf-8")
    [told] = re.findall(r"is in `raw` of ([^;.]+);", page)
    values = {name: getattr(answers, name) for name in answers.__all__}
    having = {
        name
        for name, one in values.items()
        if dataclasses.is_dataclass(one) and "raw" in {f.name for f in dataclasses.fields(one)}
    }
    assert set(re.findall(r"`(\w+)`", told)) == having


def test_calls_that_are_not_safe_to_send_again_are_named() -> None:
    page = (ROOT / "docs/client.md").read_text("utf-8")
    [told] = re.findall(r"It is safe for everything but ([^.]+)\.", page)
    unsafe = {
        call.name
        for path in (ROOT / "clients/http/calls").glob("*.py")
        for call in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(call, ast.FunctionDef)
        for word in ast.walk(call)
        if isinstance(word, ast.keyword)
        and word.arg == "repeatable"
        and isinstance(word.value, ast.Constant)
        and word.value.value is False
    }
    assert len(unsafe) >= 10
    assert set(re.findall(r"`(\w+)`", told)) == unsafe


def test_the_sensors_of_the_readme_are_those_of_the_benchmarks() -> None:
    readme, measured = (
        (ROOT / path).read_text("utf-8") for path in ("README.md", "docs/benchmarks.md")
    )
    readme = " ".join(readme.split())  # wherever lines end
    ((least, most),) = re.findall(
        r"sticks, shifts by half a standard deviation or doubles its deviation is found and "
        r"named after (\d+) to (\d+) samples",
        readme,
    )
    one = r"one sensor (?:sticks at its mean|\+ 0\.5|x 2)"
    rows = re.findall(rf"(?m)^\| (?:10|50) \| {one} \| 3 of 3, (\d+) \| 3 of 3, (\d+) \|", measured)
    assert len(rows) == 6
    after = [int(samples) for row in rows for samples in row]
    assert (min(after), max(after)) == (int(least), int(most))
    still = re.findall(r"(?m)^\| (?:5|20) \| 0, 0\.5.*?\| (.*?) \| (.*?) \| (.*?) \|", measured)
    mfa, flat, adwin = (
        # Where readings depend on each other, which the first do not.
        [int(count) for row in still for count in row[system].split(", ")[1:]]
        for system in range(3)
    )
    for_ours = f"{sum(mfa + flat)} in {40_000 * len(mfa + flat):,} samples"
    assert f"{for_ours} (ADWIN: {sum(adwin):,} in {40_000 * len(adwin):,})" in readme


def test_the_streams_of_the_readme_are_those_of_the_benchmarks() -> None:
    readme, measured = (
        (ROOT / path).read_text("utf-8") for path in ("README.md", "docs/benchmarks.md")
    )
    found = {
        name.strip("*"): (accuracy.strip("*"), behind)
        for name, accuracy, behind in re.findall(
            r"(?m)^\| (\S[^|]*?) \| ([\d.*]+) \| ([-+][\d.]+) \| -[\d.]+ \| ", measured
        )
    }
    ours = f"**{found['mfa'][0]}; {found['flat'][0]} %** | {found['mfa'][1]}; {found['flat'][1]} |"
    assert f"| **gmr-stream** (`mfa`; `flat`) | {ours}" in readme
    for told, name in (
        ("SAM-kNN", "SAM-kNN"),
        ("adaptive random forest (River)", "adaptive random forest"),
        ("kNN", "kNN"),
        ("naive Bayes", "naive Bayes"),
    ):
        assert f"| {told} | {found[name][0]} % | {found[name][1]} |" in readme


def test_the_library_does_what_its_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    programs = re.findall(r"(?ms)^```python\n(.*?)^```", LIBRARY)
    assert programs
    for program in programs:
        exec(compile(program, "library.md", "exec"), {})  # as a reader would
    assert re.match(r"\['(left|right)', ", capsys.readouterr().out)


def test_every_measured_row_names_its_commit() -> None:
    text = (ROOT / "docs/benchmarks.md").read_text("utf-8")
    tables = re.findall(r"(?m)(?:^\|.*\n)+", text)
    heads = [rows.splitlines()[0] for rows in tables]
    measured = [rows for rows, head in zip(tables, heads, strict=True) if "what change" not in head]
    assert len(measured) >= 25
    for rows in measured:
        head, _, *body = rows.splitlines()
        assert head.endswith("| commit |"), head
        assert not re.search(r"\bbefore\b", head.lower()), head
        for row in body:
            assert re.search(r"\| (?:[0-9a-f]{7}|the paper) \|$", row), row


CODE = [
    path
    for folder in ("core", "service", "clients", "gmr")
    for path in (ROOT / folder).rglob("*.py")
]


ROOTS = {"NamedTuple", "Protocol", "StrEnum", "Enum"}
"""Bases that have no fields of their own."""


def documented(tree: ast.Module) -> Iterator[tuple[str, set[str], set[str]]]:
    """Every class and function with a docstring: its name, the arguments it explains and has."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(node, ast.ClassDef) and {ast.unparse(base) for base in node.bases} - ROOTS:
            continue  # which may explain what it has from its base
        _, _, rest = (ast.get_docstring(node) or "").partition("Arguments:\n")
        told = set(re.findall(r"(?m)^    \*{0,2}(\w+):", rest.split("\n\n")[0]))
        inside = node.body if isinstance(node, ast.ClassDef) else [node]
        has = {
            field.target.id
            for field in inside
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        }
        for part in inside:
            if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) and (
                part is node or part.name == "__init__"
            ):
                has |= {one.arg for one in ast.walk(part.args) if isinstance(one, ast.arg)}
        yield node.name, told, has


def test_every_argument_that_is_explained_is_there() -> None:
    found = [
        (path.name, name, told - has)
        for path in CODE
        for name, told, has in documented(ast.parse(path.read_text("utf-8")))
    ]
    assert sum(1 for _ in found) > 1000
    assert [row for row in found if row[2]] == []


def test_every_package_says_what_it_is_for_and_names_files_that_are_there() -> None:
    for page in CODE:
        if page.name != "__init__.py":
            continue
        text = ast.get_docstring(ast.parse(page.read_text("utf-8")))
        assert text, page
        for name in re.findall(r"(?m)^    (\w+\.py) ", text):
            assert (page.parent / name).exists(), (page, name)

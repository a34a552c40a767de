"""Tests for what Prometheus is given, by Prometheus itself where it is installed."""

from __future__ import annotations

import contextlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml

from benchmarks._ports import free_port
from tests.deploy.grafana_choice import (
    DASHBOARDS,
    begins_with,
    expressions,
    filled,
    options,
    panels,
    variables,
)
from tests.deploy.metric_names import series
from tests.service.api.stack import (
    make_settings,
    of_model,
    redis_server,
    serving,
    teach,
    training,
    wait_until,
)

PROMETHEUS = Path(__file__).parents[2] / "deploy" / "prometheus"
RULES = yaml.safe_load((PROMETHEUS / "alerts.yml").read_text("utf-8"))
STORIES = yaml.safe_load((PROMETHEUS / "alerts_test.yml").read_text("utf-8"))
RECORDING = yaml.safe_load((PROMETHEUS / "recording.yml").read_text("utf-8"))
RECORDED = {rule["record"]: rule for group in RECORDING["groups"] for rule in group["rules"]}
ALERTS = {rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"]}


def needs(program: str) -> pytest.MarkDecorator:
    reason = f"{program} is not installed (Debian: apt-get install prometheus)"
    return pytest.mark.skipif(shutil.which(program) is None, reason=reason)


def promtool(*arguments: str) -> str:
    result = subprocess.run(
        ["promtool", *arguments], capture_output=True, text=True, check=False, cwd=PROMETHEUS
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@needs("promtool")
def test_the_configuration_and_its_rules_are_valid() -> None:
    assert "SUCCESS" in promtool("check", "config", "prometheus.yml")
    assert f"{len(ALERTS)} rules found" in promtool("check", "rules", "alerts.yml")
    assert f"{len(RECORDED)} rules found" in promtool("check", "rules", "recording.yml")


@needs("promtool")
def test_every_alert_tells_its_story() -> None:
    assert "SUCCESS" in promtool("test", "rules", "alerts_test.yml")


@needs("promtool")
@pytest.mark.parametrize(
    ("rule", "changed"),
    [
        ("> 30\n", "> 300\n"),
        ("== 0\n", "== 2\n"),
        ("< 0.5", "< 0.9"),
        ("[5m])) > 0\n", "[5m])) > 9\n"),
        ('loss_max{job="gmr"}) > 0.1', 'loss_max{job="gmr"}) > 0.3'),
        ("best6h - 0.1", "best6h - 0.9"),
        ("          unless\n", "          and\n"),
    ],
)
def test_a_changed_rule_would_spoil_a_story(tmp_path: Path, rule: str, changed: str) -> None:
    text = (PROMETHEUS / "alerts.yml").read_text("utf-8")
    assert rule in text
    other = text.replace(rule, changed)
    (tmp_path / "alerts.yml").write_text(other, "utf-8")
    shutil.copy(PROMETHEUS / "recording.yml", tmp_path)
    names = {
        rule["alert"]
        for group in yaml.safe_load(other)["groups"]
        for rule in group["rules"]
        if rule != ALERTS[rule["alert"]]
    }
    story = tmp_path / "alerts_test.yml"
    story.write_text(yaml.safe_dump(STORIES | {"tests": stories_of(names)}), "utf-8")
    command = ["promtool", "test", "rules", str(story)]
    assert subprocess.run(command, capture_output=True, check=False).returncode != 0


def stories_of(names: set[str]) -> list[dict[str, Any]]:
    """What is told of these alerts, and of nothing else: the longest stories take seconds."""
    told = []
    for story in STORIES["tests"]:
        cases = [case for case in story.get("alert_rule_test", []) if case["alertname"] in names]
        if cases:
            told.append({**story, "alert_rule_test": cases})
    return told


def test_every_alert_has_a_story_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    cases = [case for story in STORIES["tests"] for case in story.get("alert_rule_test", [])]
    assert {case["alertname"] for case in cases if case["exp_alerts"]} == ALERTS.keys()
    assert {case["alertname"] for case in cases if not case["exp_alerts"]} == ALERTS.keys()


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_is_about_metrics_that_exist_and_says_what_to_do(name: str) -> None:
    rule = ALERTS[name]
    used = set(re.findall(r"\bgmr[_:][\w:]+", rule["expr"]))
    assert used - series() - RECORDED.keys() == set()
    assert used or "up{" in rule["expr"]
    assert 'job="gmr"' in rule["expr"]
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert rule["annotations"]["summary"]
    assert rule["annotations"]["description"].endswith((".", "?"))


def test_what_is_recorded_is_tested_and_of_metrics_that_exist() -> None:
    tested = {
        case["expr"] for story in STORIES["tests"] for case in story.get("promql_expr_test", [])
    }
    assert tested == RECORDED.keys()
    for rule in RECORDED.values():
        assert set(re.findall(r"\bgmr_\w+", rule["expr"])) - series() == set()


def test_the_job_finds_the_service_of_the_compose_file() -> None:
    compose = yaml.safe_load((PROMETHEUS.parents[1] / "docker-compose.yml").read_text("utf-8"))
    config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text("utf-8"))
    job, of_models = config["scrape_configs"]
    (target,) = job["dns_sd_configs"]
    assert job["job_name"] == "gmr"
    (address,) = (
        rule["replacement"]
        for rule in of_models["relabel_configs"]
        if rule["target_label"] == "__address__"
    )
    assert address == f"api:{target['port']}"
    assert target["names"] == ["api"]
    assert set(compose["services"]["api"]["networks"]) & set(
        compose["services"]["prometheus"]["networks"]
    )
    assert compose["services"]["api"]["ports"][0].endswith(f":{target['port']}")


def test_the_page_about_alerts_shows_the_job_of_named_models() -> None:
    page = (PROMETHEUS.parents[1] / "docs" / "howto" / "alerts.md").read_text("utf-8")
    blocks = [yaml.safe_load(text) for text in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]
    config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text("utf-8"))
    assert blocks[0] == [{"targets": ["pump-7", "pump-8"]}]
    assert blocks[1] == config["scrape_configs"][1:]


@pytest.fixture(scope="module")
def scraped(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[httpx2.Client, httpx2.Client]]:
    """A service that has learned something, and a Prometheus that scrapes it."""
    tmp_path = tmp_path_factory.mktemp("scraped")
    with redis_server(tmp_path / "redis") as redis:
        settings = make_settings(redis.url, tmp_path / "data", checkpoint_interval_s=0.1)
        with training(settings), serving(settings) as service:
            teach(service, batches=6)
            with running_prometheus(tmp_path / "prometheus", str(service.base_url)) as client:
                yield service, client


@contextlib.contextmanager
def running_prometheus(directory: Path, service: str) -> Iterator[httpx2.Client]:
    """With the committed configuration, but one target that is known, asked every second."""
    config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text("utf-8"))
    config["global"] = dict.fromkeys(config["global"], "1s")
    job, of_models = config["scrape_configs"]
    del job["dns_sd_configs"]
    address = httpx2.URL(service).netloc.decode()
    job["static_configs"] = [{"targets": [address]}]
    for rule in of_models["relabel_configs"]:
        if rule["target_label"] == "__address__":
            rule["replacement"] = address
    directory.mkdir()
    shutil.copy(PROMETHEUS / "models.yml", directory)
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config), "utf-8")
    for rules in ("alerts.yml", "recording.yml"):
        shutil.copy(PROMETHEUS / rules, directory)
    port = free_port()
    command = [
        "prometheus",
        f"--config.file={directory / 'prometheus.yml'}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        with httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=10) as client:
            wait_until(lambda: _ready(client), 30)
            yield client
    finally:
        process.terminate()
        process.wait(20)


def _ready(client: httpx2.Client) -> bool:
    try:
        return client.get("/-/ready").status_code == 200
    except httpx2.ConnectError:
        return False


@needs("prometheus")
def test_a_real_prometheus_scrapes_a_real_service_and_answers(
    scraped: tuple[httpx2.Client, httpx2.Client],
) -> None:
    service, prometheus = scraped

    def ask(query: str) -> list[dict[str, Any]]:
        answer = prometheus.get("/api/v1/query", params={"query": query}).json()
        assert answer["status"] == "success", answer
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    def value(query: str) -> float | None:
        found = ask(query)
        return float(found[0]["value"][1]) if found else None

    def page() -> str:
        return str(service.get("/metrics").text)

    def model() -> dict[str, Any]:
        answer: dict[str, Any] = service.get("/model").json()
        return answer

    wait_until(lambda: value('up{job="gmr"}') == 1)
    wait_until(lambda: value("gmr_samples_learned_total") == model()["samples_seen"])
    # (A trainer whose stream is quiet settles, which is a version of its own.)
    wait_until(lambda: value("gmr_model_version") == model()["model_version"])
    assert value("gmr_backlog_entries") == 0
    assert value("gmr_classes") == 2
    told = re.findall(r'^gmr_http_requests_total\{.*"/ingest".*"202"\} (\S+)', page(), re.MULTILINE)
    assert sum(map(float, told)) >= 6
    wait_until(
        lambda: (
            value('sum(gmr_http_requests_total{route="/ingest",status="202"})')
            == sum(map(float, told))
        )
    )
    # Six batches, the entry by which a trainer settles once its stream is quiet, and the labels of
    # another test where that came first.
    assert value("gmr_train_step_duration_seconds_count") in (6, 7, 8)

    # The rules are loaded and evaluated on real series, without an error, and nothing is wrong.
    wait_until(lambda: all(rule["lastEvaluation"][:4] != "0001" for rule in rules(prometheus)))
    assert {rule["name"] for rule in rules(prometheus)} == ALERTS.keys() | RECORDED.keys()
    assert {rule["health"] for rule in rules(prometheus)} == {"ok"}
    # (Before the first scrape there was no service to be seen, which is suspicious for a moment.)
    wait_until(lambda: states(prometheus) == {"inactive"})

    # A declared boundary becomes an alert.
    service.post("/drift/boundary").raise_for_status()

    def firing() -> list[str]:
        return [rule["name"] for rule in rules(prometheus) if rule.get("state") == "firing"]

    wait_until(lambda: set(firing()) - {OF_A_REFUSAL} == {"GMRBoundaryFound"}, 20)


def rules(prometheus: httpx2.Client) -> list[dict[str, Any]]:
    groups = prometheus.get("/api/v1/rules").json()["data"]["groups"]
    return [rule for group in groups for rule in group["rules"]]


def states(prometheus: httpx2.Client) -> set[str]:
    """Of all alerts but that of a refusal."""
    return {
        rule["state"]
        for rule in rules(prometheus)
        if rule["type"] == "alerting" and rule["name"] != OF_A_REFUSAL
    }


OF_A_REFUSAL = "GMRBatchesRejected"
"""It rightly fires where another test came first, which sends what is refused."""


RIGHTLY_EMPTY = {
    "gmr_webhook_deliveries_total": "no webhook is told of anything here",
    "gmr_models": "there is no named model",
    "gmr_bucket_works": "there is no cluster",
    "gmr_key_samples": "nobody brings a key",
    "gmr_key_outliers": "nobody brings a key",
}
"""Metrics without a series in the service that is scraped, and why."""

OF_CLASSES = ("gmr_class_share", "gmr_class_share_change", "gmr_class_likelihood_change")
"""Classes are followed from the 500th sample of a sub-task on: until a test declares a boundary."""


@needs("prometheus")
def test_every_query_of_a_dashboard_and_every_rule_finds_data(
    scraped: tuple[httpx2.Client, httpx2.Client],
) -> None:
    service, prometheus = scraped
    refuse_and_label(service)
    queries = {
        filled(query, begins_with(path)) for path in DASHBOARDS for query in panel_queries(path)
    }
    # An alert that does not fire is empty, but what it looks at is not.
    watched = {
        name
        for rule in (*ALERTS.values(), *RECORDED.values())
        for name in re.findall(r"\bgmr[_:][\w:]+", rule["expr"])
    }
    queries |= watched | RECORDED.keys()

    assert empty_for_long(prometheus, queries) == []
    assert not [name for name in RIGHTLY_EMPTY if answered(prometheus, name)]


def refuse_and_label(model: httpx2.Client) -> None:
    """What some series need to be there: a refusal, a label that finds no sample, an id."""
    assert model.post("/ingest", json={"features": [[1.0]]}).status_code == 422
    late = {"sample_ids": ["none"], "labels": [1], "batch_id": "late"}
    model.post("/labels", json=late).raise_for_status()


def empty_for_long(prometheus: httpx2.Client, queries: set[str]) -> list[str]:
    """Queries that still have no answer after some time, and should have one."""

    def empty() -> list[str]:
        return sorted(
            query
            for query in queries
            if not any(re.search(rf"\b{name}\b", query) for name in (*RIGHTLY_EMPTY, *OF_CLASSES))
            and not answered(prometheus, query)
        )

    with contextlib.suppress(AssertionError):
        wait_until(lambda: not empty(), 20)
    return empty()


def labels_of(prometheus: httpx2.Client, query: str) -> list[dict[str, str]]:
    """Of every series that a query answers."""
    answer = prometheus.get("/api/v1/query", params={"query": query}).json()
    assert answer["status"] == "success", (query, answer)
    return [one["metric"] for one in answer["data"]["result"]]


def answered(prometheus: httpx2.Client, query: str) -> bool:
    """Whether a query has any answer."""
    return bool(labels_of(prometheus, query))


def panel_queries(path: Path) -> list[str]:
    """What panels ask; a mark of a boundary is rightly not there at most times."""
    return [target["expr"] for panel in panels(path) for target in panel["targets"]]


@contextlib.contextmanager
def listed(
    service: httpx2.Client, prometheus: httpx2.Client, directory: Path, batches: dict[str, int]
) -> Iterator[None]:
    """Named models that have learned so many batches of a hundred, and are collected."""
    (file,) = directory.glob("scraped[0-9]/prometheus/models.yml")
    assert yaml.safe_load(file.read_text("utf-8")) == []
    for name, n in batches.items():
        service.put(f"/models/{name}").raise_for_status()
        with of_model(service, name) as model:
            teach(model, batches=n)
            refuse_and_label(model)
    file.write_text(yaml.safe_dump([{"targets": list(batches)}]), "utf-8")
    try:
        for name, n in batches.items():
            wait_until(lambda name=name: answered(prometheus, f'up{{model="{name}"}} == 1'), 30)
            learned = f'gmr_samples_learned_total{{job="gmr", model="{name}"}} == {100 * n}'
            wait_until(lambda learned=learned: answered(prometheus, learned), 30)
        yield
    finally:
        file.write_text("[]\n", "utf-8")
        for name in batches:
            service.delete(f"/models/{name}").raise_for_status()


@needs("prometheus")
def test_named_models_that_are_listed_are_scraped_with_their_name(
    scraped: tuple[httpx2.Client, httpx2.Client], tmp_path_factory: pytest.TempPathFactory
) -> None:
    service, prometheus = scraped
    with listed(service, prometheus, tmp_path_factory.getbasetemp(), {"pump-7": 2}):
        assert not answered(prometheus, 'gmr_samples_learned_total{model=""} == 200')
        assert answered(prometheus, 'count(gmr_samples_learned_total{job="gmr"}) == 2')


@needs("prometheus")
def test_a_dashboard_shows_the_model_that_is_chosen_and_no_other(
    scraped: tuple[httpx2.Client, httpx2.Client], tmp_path_factory: pytest.TempPathFactory
) -> None:
    service, prometheus = scraped
    refuse_and_label(service)
    # Both names are alike to a pattern in which a point stands for any sign.
    named = {"valve.7": 2, "valve-7": 3}
    own = begins_with(DASHBOARDS[0])
    with listed(service, prometheus, tmp_path_factory.getbasetemp(), named):
        for path in DASHBOARDS:
            job, model = (variables(path)[name] for name in ("job", "model"))
            assert options(prometheus, job, {}) == {"gmr": "gmr"}
            found = options(prometheus, model, own)
            assert list(found) == ["(the service's own)", "valve-7", "valve.7"]
            assert list(found.values()) == ["()", *sorted(named)]

        selectors = {
            match[0]
            for path in DASHBOARDS
            for query in expressions(path)
            for match in re.finditer(r"\b(?:gmr_\w+|up)\{[^}]*\}", query)
        }
        for name in ("()", *named):
            choice = {**own, "model": name}
            for selector in selectors:
                found_of = {
                    one.get("model", "()")
                    for one in labels_of(prometheus, filled(selector, choice))
                }
                assert found_of <= {name if "$model" in selector else "()"}, selector
            queries = {
                filled(query, choice) for path in DASHBOARDS for query in panel_queries(path)
            }
            assert empty_for_long(prometheus, queries) == []
            (learned,) = (one for one in selectors if one.startswith("gmr_samples_learned_total"))
            assert answered(prometheus, f"{filled(learned, choice)} == {100 * named.get(name, 6)}")
        elsewhere = {**own, "job": "other"}
        assert not [one for one in selectors if answered(prometheus, filled(one, elsewhere))]

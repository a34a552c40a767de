"""What Grafana makes of the variables of a dashboard, for tests without a Grafana."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import httpx2

DASHBOARDS = sorted(
    (Path(__file__).parents[2] / "deploy" / "grafana" / "dashboards").glob("*.json")
)

Choice = dict[str, str]
"""Name of a variable -> its value."""


def load(path: Path) -> dict[str, Any]:
    """The dashboard of a file."""
    dashboard: dict[str, Any] = json.loads(path.read_text("utf-8"))
    return dashboard


def panels(path: Path) -> list[dict[str, Any]]:
    """All but the heads of rows."""
    return [panel for panel in load(path)["panels"] if panel["type"] != "row"]


def expressions(path: Path) -> list[str]:
    """Every query: of panels, and of what is marked in them."""
    queries = [target["expr"] for panel in panels(path) for target in panel["targets"]]
    return queries + [note["expr"] for note in load(path)["annotations"]["list"]]


def variables(path: Path) -> dict[str, dict[str, Any]]:
    """The variables by their names."""
    return {one["name"]: one for one in load(path)["templating"]["list"]}


def begins_with(path: Path) -> Choice:
    """What is chosen when the page opens."""
    return {name: one["current"]["value"] for name, one in variables(path).items()}


def filled(query: str, choice: Choice) -> str:
    """A query as it is sent: a value of a variable with a single choice is put in as it is."""
    return re.sub(r"\$(\w+)", lambda match: choice.get(match[1], match[0]), query)


def options(prometheus: httpx2.Client, variable: dict[str, Any], choice: Choice) -> Choice:
    """Text -> value of what there is to choose from, in the order in which it is shown."""
    query = filled(variable["query"]["query"], choice)
    found: Choice = {}
    for line in _lines(prometheus, query):
        if variable["regex"]:
            # As JavaScript has it, /.../g, where Python writes (?P<name>...).
            pattern = variable["regex"].removeprefix("/").removesuffix("/g").replace("(?<", "(?P<")
            groups: Choice = {}
            for match in re.finditer(pattern, line):
                groups |= {name: text for name, text in match.groupdict().items() if text}
            value = groups["value"]
            found[groups.get("text", value)] = value
        else:
            found[line] = line
    assert variable["sort"] == 1  # by the alphabet
    return dict(sorted(found.items()))


def _lines(prometheus: httpx2.Client, query: str) -> list[str]:
    """What a query of a variable answers, before its pattern is applied."""
    if of_label := re.fullmatch(r"label_values\((\w+), (\w+)\)", query):
        url, asked = f"/api/v1/label/{of_label[2]}/values", {"match[]": of_label[1]}
        names: list[str] = prometheus.get(url, params=asked).json()["data"]
        return names
    result = re.fullmatch(r"query_result\((.+)\)", query)
    assert result, query
    answer = prometheus.get("/api/v1/query", params={"query": result[1]}).json()
    assert answer["status"] == "success", (query, answer)
    return [
        "{"
        + ",".join(f'{name}="{value}"' for name, value in one["metric"].items())
        + f"}} {one['value'][1]} {one['value'][0] * 1000}"
        for one in answer["data"]["result"]
    ]

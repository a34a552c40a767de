"""What Grafana reads: a dashboard, its panels, and the choices above them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from deploy.grafana.description.queries import OWN, gauge, of_own

SOURCE = {"type": "prometheus", "uid": "prometheus"}
WIDTH = 24


@dataclass(frozen=True)
class Variable:
    """A choice above the panels.

    Arguments:
        name: In queries, after a dollar sign.
        label: Beside the choice.
        query: What there is to choose from.
        text: Of the choice that a dashboard begins with.
        value: What that choice stands for.
        regex: Of a line that the query answers: groups `value` and `text`.
    """

    name: str
    label: str
    query: str
    text: str
    value: str
    regex: str = ""

    def to_json(self) -> dict[str, Any]:
        """The variable as Grafana reads it."""
        return {
            "type": "query",
            "name": self.name,
            "label": self.label,
            "datasource": SOURCE,
            "definition": self.query,
            "query": {"query": self.query, "refId": "StandardVariableQuery"},
            "regex": self.regex,
            "current": {"selected": True, "text": self.text, "value": self.value},
            "options": [],
            # Curves are named by what they show: those of several models would be called alike.
            "multi": False,
            "includeAll": False,
            "refresh": 1,
            "sort": 1,
            "hide": 0,
            "skipUrlSync": False,
        }


OWN_TEXT = "(the service's own)"
"""The first of all choices by the alphabet, so that Grafana falls back to it."""

# label_values would leave out the service's own, which has no label.
MODELS = 'label_join(count by (model) (up{job="$job"}), "value", "", "model")'
VARIABLES = (
    Variable("job", "job", "label_values(gmr_redis_up, job)", "gmr", "gmr"),
    Variable(
        "model",
        "model",
        f"query_result({of_own(of_own(MODELS, 'value', OWN), 'text', OWN_TEXT)})",
        OWN_TEXT,
        OWN,
        r'/\bvalue="(?<value>[^"]+)|\btext="(?<text>[^"]+)/g',
    ),
)


@dataclass(frozen=True)
class Query:
    """A query, and what its curve is called."""

    expr: str
    legend: str = ""


@dataclass(frozen=True)
class Panel:
    """A number or a chart.

    Arguments:
        title: Above it.
        says: What a reader who has not met it must know.
        queries: One curve or more.
        unit: Of Grafana.
        number: Whether the newest value is shown instead of a chart.
        width: Of 24.
        alarm: Where a red line is drawn.
        more: Further defaults, such as `min`.
    """

    title: str
    says: str
    queries: tuple[Query, ...]
    unit: str = "none"
    number: bool = False
    width: int = 12
    alarm: float | None = None
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def height(self) -> int:
        """In rows of Grafana's grid."""
        return 4 if self.number else 8

    def to_json(self, identity: int, x: int, y: int) -> dict[str, Any]:
        """The panel as Grafana reads it."""
        defaults: dict[str, Any] = {"unit": self.unit, **self.more}
        if self.number:
            options: dict[str, Any] = {
                "colorMode": "value",
                "graphMode": "none",
                "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
                "textMode": "auto",
            }
        else:
            options = {
                "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
                "tooltip": {"mode": "multi", "sort": "none"},
            }
            defaults["custom"] = {"lineWidth": 2, "fillOpacity": 0, "showPoints": "never"}
        if self.alarm is not None:
            calm = "green" if self.number else "transparent"
            steps = [{"color": calm, "value": None}, {"color": "red", "value": self.alarm}]
            defaults["thresholds"] = {"mode": "absolute", "steps": steps}
            if not self.number:
                defaults["custom"]["thresholdsStyle"] = {"mode": "line"}
        return {
            "id": identity,
            "type": "stat" if self.number else "timeseries",
            "title": self.title,
            "description": self.says,
            "datasource": SOURCE,
            "gridPos": {"h": self.height, "w": self.width, "x": x, "y": y},
            "fieldConfig": {"defaults": defaults, "overrides": []},
            "targets": [
                {
                    "refId": chr(ord("A") + place),
                    "datasource": SOURCE,
                    "expr": query.expr,
                    "legendFormat": query.legend,
                    **({"instant": True} if self.number else {}),
                }
                for place, query in enumerate(self.queries)
            ],
            "options": options,
        }


@dataclass(frozen=True)
class Dashboard:
    """Rows of panels by their titles."""

    name: str
    title: str
    says: str
    rows: dict[str, tuple[Panel, ...]]

    def to_json(self) -> dict[str, Any]:
        """The dashboard as Grafana reads it; panels fill the grid from left to right."""
        panels: list[dict[str, Any]] = []
        y = 0
        for title, row in self.rows.items():
            place = {"h": 1, "w": WIDTH, "x": 0, "y": y}
            head = {"id": len(panels) + 1, "type": "row", "title": title, "collapsed": False}
            panels.append({**head, "gridPos": place, "panels": []})
            y += 1
            x = tallest = 0
            for panel in row:
                if x + panel.width > WIDTH:
                    x, y, tallest = 0, y + tallest, 0
                panels.append(panel.to_json(len(panels) + 1, x, y))
                x, tallest = x + panel.width, max(tallest, panel.height)
            y += tallest
        boundaries = {
            "name": "Boundaries",
            "datasource": SOURCE,
            "enable": True,
            "iconColor": "orange",
            "expr": f"changes({gauge('gmr_boundaries_total')}[15s:5s]) > 0",
            "titleFormat": "boundary",
            "step": "5s",
            "useValueForTime": False,
        }
        links = {
            "title": "GMR",
            "type": "dashboards",
            "tags": ["gmr"],
            "asDropdown": False,
            "includeVars": True,
            "keepTime": True,
            "targetBlank": False,
        }
        return {
            "uid": f"gmr-{self.name}",
            "title": self.title,
            "description": self.says,
            "tags": ["gmr"],
            "schemaVersion": 39,
            "version": 1,
            "editable": False,
            "graphTooltip": 1,
            "refresh": "5s",
            "time": {"from": "now-30m", "to": "now"},
            "timezone": "browser",
            "links": [links],
            "templating": {"list": [one.to_json() for one in VARIABLES]},
            "annotations": {"list": [boundaries]},
            "panels": panels,
        }


def number(title: str, says: str, expr: str, unit: str = "none", **more: Any) -> Panel:
    """A number, four to a row and a half."""
    return Panel(title, says, (Query(expr),), unit, number=True, width=4, **more)

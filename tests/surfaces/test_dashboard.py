"""The dashboard asks for metrics that there are, all of them, by labels that they have."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest

from stepwell.telemetries.metrics import METRICS
from stepwell.telemetries.prometheus import Prometheus

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana" / "stepwell.json"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
# Words of PromQL; whatever else stands in an expression is a metric or a label.
WORDS = {"sum", "max", "by", "rate", "histogram_quantile"}


@pytest.fixture(scope="module")
def dashboard() -> Any:
    return json.loads(DASHBOARD.read_text("utf-8"))


@pytest.fixture(scope="module")
def panels(dashboard: Any) -> list[Any]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def expressions(panels: list[Any]) -> list[str]:
    return [target["expr"] for panel in panels for target in panel["targets"]]


async def test_every_metric_has_a_panel_and_no_panel_asks_for_another(panels: list[Any]) -> None:
    shown = {each.name: set(each.labels) for each in METRICS}
    registered = re.findall(r"# TYPE (\w+) (\w+)", (await Prometheus().render()).decode())
    assert {name for name, _ in registered} == shown.keys()
    series = {
        name: kind_name
        for kind_name, kind in registered
        for name in (
            [f"{kind_name}_{part}" for part in ("bucket", "sum", "count")]
            if kind == "histogram"
            else [kind_name]
        )
    }
    asked = set()
    for expression in expressions(panels):
        plain = re.sub(r'"[^"]*"|\[[^\]]*\]|\$\w+', "", expression)
        names = set(re.findall(r"[a-z_]\w*", plain)) - WORDS
        metrics = {series[name] for name in names if name in series}
        assert len(metrics) == 1, expression
        (metric,) = metrics
        assert names - series.keys() <= shown[metric] | {"le"}, expression
        asked.add(metric)
    assert asked == shown.keys()


def test_the_data_source_is_chosen_where_the_dashboard_is_loaded(
    dashboard: Any, panels: list[Any]
) -> None:
    variables = {each["name"]: each for each in dashboard["templating"]["list"]}
    assert variables["datasource"]["type"] == "datasource"
    assert variables["datasource"]["query"] == "prometheus"
    assert variables["workflow"]["datasource"] == SOURCE
    for panel in panels:
        assert panel["datasource"] == SOURCE
        assert all(target["datasource"] == SOURCE for target in panel["targets"])


def test_panels_have_what_a_dashboard_needs_and_do_not_overlap(dashboard: Any) -> None:
    assert dashboard["schemaVersion"] >= 36
    assert {"title", "uid", "time", "annotations", "templating", "panels"} <= dashboard.keys()
    every = dashboard["panels"]
    assert len({panel["id"] for panel in every}) == len(every)
    assert all(panel["title"] for panel in every)
    for panel in every:
        place = panel["gridPos"]
        assert 0 <= place["x"] < place["x"] + place["w"] <= 24
        refs = [target["refId"] for target in panel.get("targets", ())]
        assert len(set(refs)) == len(refs)
    for one, other in itertools.combinations([panel["gridPos"] for panel in every], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below

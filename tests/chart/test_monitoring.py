"""Alerts and dashboard: every metric, label and value that they name is one that topogate tells."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from core.metric_names import OF_RECONCILER, OF_WEBHOOK
from core.runtime.report.metrics import Instrument, Kind
from tests.chart.helm import CHART, find_one, render

FILES = CHART / "files" / "monitoring"
PAGE = CHART.parents[1] / "docs" / "metrics.md"
INSTRUMENTS = {one.name: one for one in (*OF_RECONCILER, *OF_WEBHOOK)}
OF_SCRAPES = {"job", "pod", "instance", "le"}
NAME = re.compile(r"\b((?:kueue|topogate|process)_[a-z0-9_]+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')
BY = re.compile(r"\bby \(([^)]*)\)")


def read_alerts() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((FILES / "alerts.yaml").read_text())["groups"]
    return list(group["rules"])


def read_dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FILES / "dashboard.json").read_text())
    return found


def list_panels() -> list[dict[str, Any]]:
    return [panel for panel in read_dashboard()["panels"] if panel["type"] != "row"]


def list_expressions() -> Iterator[tuple[str, str]]:
    """Where it stands, and the query."""
    yield from ((rule["alert"], rule["expr"]) for rule in read_alerts())
    yield from ((panel["title"], target["expr"]) for panel in list_panels() for target in panel["targets"])


def get_instrument(series: str) -> Instrument | None:
    """What tells a series; None of those about the process, which Prometheus' own library tells."""
    if series.startswith("process_"):
        assert series in ("process_resident_memory_bytes", "process_cpu_seconds_total"), series
        return None
    found = INSTRUMENTS.get(series)
    if found is not None and found.kind is not Kind.HISTOGRAM:
        return found
    stem = re.sub("_(bucket|count|sum)$", "", series)
    assert stem != series, f"{series} is no series"
    assert stem in INSTRUMENTS, f"there is no metric {series}"
    assert INSTRUMENTS[stem].kind is Kind.HISTOGRAM, f"{stem} has no {series}"
    return INSTRUMENTS[stem]


@pytest.mark.parametrize(("where", "query"), list(list_expressions()))
def test_monitoring_queries_use_existing_metrics_and_labels(where: str, query: str):
    named = NAME.findall(query)
    assert named
    known = set(OF_SCRAPES)
    for series, matchers in named:
        instrument = get_instrument(series)
        labels = {label.name: label for label in instrument.labels} if instrument is not None else {}
        known |= labels.keys()
        for name, operator, value in MATCHER.findall(matchers):
            assert name in labels.keys() | OF_SCRAPES, f"{series} has no label {name}"
            values = labels[name].values if name in labels else None
            if operator in ("=", "!=") and values is not None:
                assert value in values, f"{name} of {series} is never {value}"
    for group in BY.findall(query):
        assert {name.strip() for name in group.split(",")} <= known, group
    assert query.count("(") == query.count(")")
    if "histogram_quantile" in query:
        assert all("le" in group.split(", ") for group in BY.findall(query))


def test_monitoring_rates_use_no_gauges():
    for where, query in list_expressions():
        for series in re.findall(r"(?:rate|increase)\(([a-z0-9_]+)", query):
            instrument = get_instrument(series)
            assert instrument is not None, where
            assert instrument.kind is not Kind.GAUGE, f"{where}: {series}"


def test_texts_name_labels_that_their_query_leaves():
    for rule in read_alerts():
        left = {name.strip() for group in BY.findall(rule["expr"]) for name in group.split(",")}
        used = set(re.findall(r"\$labels\.(\w+)", json.dumps(rule["annotations"])))
        assert used <= left, rule["alert"]
    for panel in list_panels():
        for target in panel["targets"]:
            left = {name.strip() for group in BY.findall(target["expr"]) for name in group.split(",")} | OF_SCRAPES
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= left, panel["title"]


def test_each_alert_has_a_summary_and_is_documented():
    page = PAGE.read_text()
    for rule in read_alerts():
        assert rule["alert"] in page
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"].keys() == {"summary", "description"}


def test_panels_do_not_lie_over_each_other():
    taken: set[tuple[int, int]] = set()
    for panel in read_dashboard()["panels"]:
        at = panel["gridPos"]
        here = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not here & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= here
    ids = [panel["id"] for panel in read_dashboard()["panels"]]
    assert len(ids) == len(set(ids))


def test_dashboard_variables_use_existing_labels():
    for variable in read_dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            series, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]).groups()  # type: ignore[union-attr]
            assert label in {found.name for found in INSTRUMENTS[series].labels}
            assert label == variable["name"]


@pytest.mark.cluster  # Helm may have to be built
def test_chart_with_monitoring_values_renders_monitor_rules_and_dashboard(tmp_path: Path):
    values = {
        "enablePrometheus": True,
        "serviceMonitor": {"labels": {"release": "prometheus"}, "interval": "15s"},
        "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
        "grafanaDashboard": {"enabled": True},
    }
    objects = render(tmp_path, values)
    monitor = find_one(objects, "ServiceMonitor")
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    (endpoint,) = monitor["spec"]["endpoints"]
    assert (endpoint["port"], endpoint["path"], endpoint["interval"]) == ("metrics", "/metrics", "15s")
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    scraped = [obj["metadata"]["name"] for obj in objects if obj["kind"] == "Service" and wanted <= obj["metadata"]["labels"].items()]
    assert sorted(scraped) == ["topogate-reconciler-metrics", "topogate-webhook-metrics"]
    assert find_one(objects, "PrometheusRule")["spec"]["groups"][0]["rules"] == read_alerts()
    board = find_one(objects, "ConfigMap", "-dashboard")
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(board["data"]["topogate.json"]) == read_dashboard()


@pytest.mark.cluster
def test_chart_with_default_values_renders_no_monitoring_kinds(tmp_path: Path):
    assert {"ServiceMonitor", "PrometheusRule"}.isdisjoint({obj["kind"] for obj in render(tmp_path)})

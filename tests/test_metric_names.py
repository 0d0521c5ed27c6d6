"""The names of metrics: one table, as the documents have it."""

from __future__ import annotations

from pathlib import Path

from core import metric_names
from core.metric_names import OF_RECONCILER, OF_WEBHOOK
from core.runtime.report.metrics import Instrument, Kind

PAGE = Path(__file__).parents[1] / "docs" / "metrics.md"
ALL = tuple(dict.fromkeys((*OF_RECONCILER, *OF_WEBHOOK)))


def test_the_document_has_the_table_of_all_metrics():
    text = PAGE.read_text()
    begin, end = "<!-- table -->\n", "<!-- end of table -->"
    shown = text[text.index(begin) + len(begin) : text.index(end)]
    assert shown == metric_names.format_table(), "`python -m core.metric_names` prints what belongs between the marks of docs/metrics.md"


def test_every_instrument_is_some_process_own():
    defined = {one.name for one in (*vars(metric_names).values(), *metric_names.BY_LOCAL_QUEUE.values()) if isinstance(one, Instrument)}
    assert defined == {one.name for one in ALL}
    assert len(ALL) == len(defined)


def test_names_follow_the_rules_that_scrapers_and_dashboards_go_by():
    for one in ALL:
        assert one.name.startswith(("kueue_", "topogate_"))
        assert one.name.endswith("_total") == (one.kind in (Kind.COUNTER, Kind.TOTAL)), one.name
        assert bool(one.buckets) == (one.kind is Kind.HISTOGRAM), one.name
        assert list(one.buckets) == sorted(set(one.buckets))
        assert all(isinstance(bound, float) for bound in one.buckets), f"{one.name}: or `le` is written in two ways"
        assert one.says
        assert not one.says.endswith(".")


def test_no_label_holds_a_name_of_which_there_are_without_number():
    labels = {label.name for one in ALL if not one.name.startswith("kueue_local_queue_") for label in one.labels}  # these have a gate
    assert not labels & {"workload", "job", "pod", "node", "namespace", "uid", "trace_id"}

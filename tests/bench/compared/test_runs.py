"""Which runs of the comparison are missing, how they are kept, and the tables that are made of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from e2e.perf_load import CLASSES, Load, build_workload
from tests.bench.compared.runs import (
    ALL,
    BEGIN,
    END,
    FLOOR,
    KUEUE,
    MANAGER_CPU,
    TOPOGATE,
    Run,
    Title,
    UnequalRuns,
    list_missing_runs,
    read_runs,
    render_report,
    replace_report,
    write_runs,
)
from tests.bench.kueue import PAGE, TITLES, list_measures
from tests.bench.parts.floor import build_admission

SETTINGS = {"share": 0.2, "Kueue": "v0.19.2"}
CASES = {"a": Title("The rig", "workload", ALL), "c": Title("Reviews", "job")}
MEMORY = "peak memory of the manager, MB"
RUN = Run(
    case="a",
    subject=KUEUE,
    round=1,
    date="2026-11-28 07:00",
    done=300,
    figures={"wall time, s": 60.0, "evictions": 3, MANAGER_CPU: 10.0, MEMORY: 400},
    calls={"workloads apply": 2.0, "events post": 1.5},
    gauge_s=[0.1, 0.1],
    load=[0.2, 3.0],
)
OURS = replace(
    RUN,
    subject=TOPOGATE,
    figures={"wall time, s": 30.0, "evictions": 3, MANAGER_CPU: 10.0, MEMORY: 300},
    gauge_s=[0.2, 0.2],
    calls={"workloads apply": 3.0},
)
LEAST = replace(RUN, subject=FLOOR, figures={"wall time, s": 25.0, "evictions": 0})
ROUND = [LEAST, RUN, OURS]


def find_row(report: str, name: str) -> list[str]:
    [line] = [line for line in report.splitlines() if line.startswith(f"| {name} |")]
    return [cell.strip() for cell in line.split("|")[2:-1]]


def test_missing_runs_of_a_new_comparison_are_all_subjects_in_turn():
    of_c = [("c", number, subject) for number in (1, 2) for subject in (KUEUE, TOPOGATE)]
    assert list_missing_runs(CASES, 2, []) == [*(("a", number, subject) for number in (1, 2) for subject in ALL), *of_c]


def test_missing_runs_of_a_resumed_comparison_are_those_not_kept():
    only = {"a": CASES["a"]}
    assert list_missing_runs(only, 2, [*ROUND, replace(LEAST, round=2)]) == [("a", 2, KUEUE), ("a", 2, TOPOGATE)]
    assert list_missing_runs(only, 1, ROUND) == []
    assert list_missing_runs(only, 1, [RUN]) == [("a", 1, FLOOR), ("a", 1, TOPOGATE)]


def test_runs_written_to_a_file_are_read_back(tmp_path: Path):
    path = tmp_path / "out" / "runs.json"
    write_runs(path, SETTINGS, ROUND)
    assert read_runs(path, SETTINGS) == ROUND
    assert [each.name for each in path.parent.iterdir()] == ["runs.json"]


def test_runs_of_other_settings_are_not_read(tmp_path: Path):
    path = tmp_path / "runs.json"
    write_runs(path, SETTINGS, ROUND)
    assert read_runs(path, {**SETTINGS, "share": 0.1}) == []


@pytest.mark.parametrize(
    "text", [None, "", '{"settings": {}}', '{"settings": {"share": 0.2, "Kueue": "v0.19.2"}, "runs": [{"subject": "kueue"}]}']
)
def test_runs_of_a_damaged_file_are_not_read(tmp_path: Path, text: str | None):
    path = tmp_path / "runs.json"
    if text is not None:
        path.write_text(text)
    assert read_runs(path, SETTINGS) == []


def test_report_of_a_round_has_amounts_with_ratios():
    report = render_report(SETTINGS, CASES, ROUND)
    head = "With share 0.2, Kueue v0.19.2.\n\n### (a) The rig\n\nMeasured 2026-11-28, 1 round; 300 workloads.\n"
    assert report.startswith(head)
    assert find_row(report, "wall time, s") == ["25", "60", "30", "0.50", "1.20"]
    assert find_row(report, MEMORY) == ["", "400", "300", "0.75", ""]


def test_report_of_a_slower_machine_has_the_ratio_at_one_speed():
    report = render_report(SETTINGS, CASES, ROUND)
    assert find_row(report, "CPU of the manager, s") == ["", "10", "10", "1.00", ""]
    assert find_row(report, "CPU of the manager, in gauges") == ["", "100", "50", "0.50", ""]


def add_to_wall(run: Run, seconds: float) -> dict[str, float]:
    return {**run.figures, "wall time, s": run.figures["wall time, s"] + seconds}


def test_report_of_two_cases_has_a_table_of_each_without_a_floor_where_there_is_none():
    reviews = [replace(run, case="c", figures={"50 reviews a second, p50, ms": 1.5}, calls={}) for run in (RUN, OURS)]
    report = render_report(SETTINGS, CASES, [*reviews, *ROUND])
    assert [line for line in report.splitlines() if line.startswith("###")] == ["### (a) The rig", "### (c) Reviews"]
    assert "| median | Kueue | topogate | topogate / Kueue |" in report
    assert find_row(report, "50 reviews a second, p50, ms") == ["1.50", "1.50", "1.00"]


def test_every_case_of_the_comparison_is_measured():
    assert list_measures(0.2, unique_hostnames=False).keys() == TITLES.keys()


def test_report_of_two_rounds_has_medians_with_every_run():
    second = [replace(run, round=2, figures=add_to_wall(run, 10), date="2026-11-29 01:00") for run in ROUND]
    report = render_report(SETTINGS, CASES, [*ROUND, *second])
    assert "Measured 2026-11-28 to 2026-11-29, 2 rounds; 300 workloads." in report
    assert find_row(report, "wall time, s") == ["30", "65", "35", "0.54", "1.17"]
    begun = [line.split(" | ")[:2] for line in report.splitlines() if line.startswith(("| 1 |", "| 2 |"))]
    assert begun == [[f"| {number}", subject] for number in (1, 2) for subject in ALL]


def test_report_leaves_cells_empty_for_amounts_that_are_missing_or_nothing():
    report = render_report(SETTINGS, CASES, ROUND)
    assert find_row(report, "`events post` per workload") == ["1.50", "1.50", "", "", ""]
    assert find_row(report, "evictions") == ["0", "3", "3", "1.00", ""]


def test_report_of_different_numbers_of_workloads_is_refused():
    with pytest.raises(UnequalRuns, match=r"case \(a\): the runs did different amounts of work, in workloads: \[299, 300\]"):
        render_report(SETTINGS, CASES, [*ROUND[:2], replace(OURS, done=299)])


def test_page_gets_a_report_in_place_of_the_one_before():
    once = replace_report(f"above\n{BEGIN}\nold\n{END}\nbelow\n", "new")
    assert once == f"above\n{BEGIN}\n\nnew\n\n{END}\nbelow\n"
    assert replace_report(once, "new") == once


@pytest.mark.parametrize("page", ["nothing", f"{BEGIN} only", f"{END} only"])
def test_page_without_a_place_for_the_report_is_refused(page: str):
    with pytest.raises(ValueError, match="the page has no lines"):
        replace_report(page, "new")


def test_page_of_the_comparison_has_a_place_for_the_report():
    assert "new" in replace_report(PAGE.read_text(), "new")


@pytest.mark.parametrize("each", CLASSES, ids=lambda each: each.name)
def test_admission_of_the_floor_has_all_pods_of_the_workload(each):
    admission = build_admission(build_workload(each, "queue-1", "slices", 0))
    [assigned] = admission["podSetAssignments"]
    assert (admission["clusterQueue"], assigned["name"], assigned["count"]) == ("queue-1", "main", each.pods)
    assert assigned["resourceUsage"] == {"cpu": f"{each.pods * each.cpu_milli}m"}
    assert assigned["topologyAssignment"]["slices"][0]["podCounts"] == {"universal": each.pods}


def test_load_of_a_share_has_as_many_workloads_in_each_queue():
    assert sum(len(kinds) for _, _, kinds in Load(share=1.0).streams()) == 15_000

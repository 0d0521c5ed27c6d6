"""Which runs of the comparison are missing, how they are kept, and the tables that are made of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from e2e.perf_load import CLASSES, Load, build_workload
from tests.bench.kueue import PAGE
from tests.bench.parts.comparison import (
    BEGIN,
    END,
    FLOOR,
    KUEUE,
    SUBJECTS,
    TOPOGATE,
    Run,
    UnequalRuns,
    list_missing_runs,
    read_runs,
    render_report,
    replace_report,
    write_runs,
)
from tests.bench.parts.floor import build_admission

SETTINGS = {"share": 0.2, "Kueue": "v0.19.2"}
RUN = Run(
    subject=KUEUE,
    round=1,
    date="2026-11-28 07:00",
    workloads=300,
    wall_s=60.0,
    evictions=3,
    to_admission_s={"large": 1.0, "small": 4.0},
    manager_cpu_s=10.0,
    manager_peak_mb=400,
    apiserver_cpu_s=50.0,
    etcd_cpu_s=5.0,
    load_cpu_s=7.0,
    calls={"workloads apply": 2.0, "events post": 1.5},
    gauge_s=[0.1, 0.1],
    load=[0.2, 3.0],
)
OURS = replace(
    RUN, subject=TOPOGATE, wall_s=30.0, manager_cpu_s=10.0, manager_peak_mb=300, gauge_s=[0.2, 0.2], calls={"workloads apply": 3.0}
)
LEAST = replace(RUN, subject=FLOOR, wall_s=25.0, manager_cpu_s=0.0, manager_peak_mb=0, evictions=0)
ROUND = [LEAST, RUN, OURS]


def find_row(report: str, name: str) -> list[str]:
    [line] = [line for line in report.splitlines() if line.startswith(f"| {name} |")]
    return [cell.strip() for cell in line.split("|")[2:-1]]


def test_missing_runs_of_a_new_comparison_are_all_subjects_in_turn():
    assert list_missing_runs(2, []) == [(number, subject) for number in (1, 2) for subject in SUBJECTS]


def test_missing_runs_of_a_resumed_comparison_are_those_not_kept():
    assert list_missing_runs(2, [*ROUND, replace(LEAST, round=2)]) == [(2, KUEUE), (2, TOPOGATE)]
    assert list_missing_runs(1, ROUND) == []
    assert list_missing_runs(1, [RUN]) == [(1, FLOOR), (1, TOPOGATE)]


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
    report = render_report(SETTINGS, ROUND)
    assert report.startswith("Case (a), measured 2026-11-28: 300 workloads, 1 round; share 0.2, Kueue v0.19.2.")
    assert find_row(report, "wall time, s") == ["25.0", "60.0", "30.0", "0.50", "1.20"]
    assert find_row(report, "peak memory of the manager, MB") == ["", "400", "300", "0.75", ""]


def test_report_of_a_slower_machine_has_the_ratio_at_one_speed():
    report = render_report(SETTINGS, ROUND)
    assert find_row(report, "CPU of the manager, s") == ["", "10.0", "10.0", "1.00", ""]
    assert find_row(report, "CPU of the manager, in gauges") == ["", "100.0", "50.0", "0.50", ""]


def test_report_of_two_rounds_has_medians_with_every_run():
    second = [replace(run, round=2, wall_s=run.wall_s + 10, date="2026-11-29 01:00") for run in ROUND]
    report = render_report(SETTINGS, [*ROUND, *second])
    assert "measured 2026-11-28 to 2026-11-29: 300 workloads, 2 rounds" in report
    assert find_row(report, "wall time, s") == ["30.0", "65.0", "35.0", "0.54", "1.17"]
    begun = [line.split(" | ")[:2] for line in report.splitlines() if line.startswith(("| 1 |", "| 2 |"))]
    assert begun == [[f"| {number}", subject] for number in (1, 2) for subject in SUBJECTS]


def test_report_leaves_cells_empty_for_amounts_that_are_missing_or_nothing():
    report = render_report(SETTINGS, ROUND)
    assert find_row(report, "`events post` per workload") == ["1.50", "1.50", "", "", ""]
    assert find_row(report, "average time to admission, medium, s") == ["", "", "", "", ""]
    assert find_row(report, "evictions") == ["0", "3", "3", "1.00", ""]


def test_report_of_different_numbers_of_workloads_is_refused():
    with pytest.raises(UnequalRuns, match=r"different numbers of workloads: \[299, 300\]"):
        render_report(SETTINGS, [*ROUND[:2], replace(OURS, workloads=299)])


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

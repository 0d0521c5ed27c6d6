"""The step after a run of all tests that compares rights that are granted with rights that were used."""

import json
from pathlib import Path

import pytest

from e2e.accounts import get_user_name
from e2e.topogate import SYSTEM_NAMESPACE
from tests.chart import rights_of_a_run
from tests.chart.rights_of_a_run import GRANTED, SELDOM, find_problems, write_written_in_memory

EVENTS = ("events.k8s.io", "events", "create")


def write(folder: Path, name: str, **of_parts: object) -> None:
    (folder / f"{name}.json").write_text(json.dumps({"used": {}, "refused": {}, **of_parts}))


def used(part: str) -> dict[str, list[list[str]]]:
    return {get_user_name(part, SYSTEM_NAMESPACE): [list(right) for right in sorted(GRANTED[part])]}


def test_rights_used_by_several_processes_are_complete(tmp_path: Path):
    for part in GRANTED:
        write(tmp_path, part, used=used(part))
    assert find_problems(tmp_path) == []


def test_right_that_no_process_used_is_named(tmp_path: Path):
    write(tmp_path, "gw0", used=used("webhook"))
    right = min(GRANTED["reconciler"] - SELDOM)
    rest = {user: [each for each in asked if tuple(each) != right] for user, asked in used("reconciler").items()}
    write(tmp_path, "gw1", used=rest)
    [problem] = find_problems(tmp_path)
    assert "the reconciler is granted" in problem
    assert right[1] in problem


def test_refused_request_is_named(tmp_path: Path):
    for part in GRANTED:
        write(tmp_path, part, used=used(part))
    write(tmp_path, "gw2", refused={"system:serviceaccount:a:b": [list(EVENTS)]})
    assert find_problems(tmp_path) == ["system:serviceaccount:a:b was refused create events of events.k8s.io"]


def test_run_of_some_tests_has_refused_requests_as_problems_and_no_unused_rights(tmp_path: Path):
    assert find_problems(tmp_path, of_all=False) == []
    write(tmp_path, "gw0", refused={"system:serviceaccount:a:b": [list(EVENTS)]})
    assert find_problems(tmp_path, of_all=False) == ["system:serviceaccount:a:b was refused create events of events.k8s.io"]


def test_write_in_memory_without_a_right_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rights_of_a_run, "ASKED", tmp_path)
    for part in GRANTED:
        write(tmp_path, part, used=used(part))
    write_written_in_memory({min(GRANTED["reconciler"]), ("", "nodes", "delete")}, "gw0-test_a")
    user = get_user_name("reconciler", SYSTEM_NAMESPACE)
    assert find_problems(tmp_path) == [f"{user} was refused delete nodes of the core group"]

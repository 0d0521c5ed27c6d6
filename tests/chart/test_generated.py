"""Files that the chart has from the code are what the code says, and every right that is used is granted; without Helm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import webhook.chart
from core.jobs.kinds import KINDS
from core.runtime import generated
from core.runtime.rights import rules
from reconciler import rights
from webhook.policies import policies

FOLDER = webhook.chart.FOLDER


def granted(document: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in document
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize(("folder", "wanted"), [(FOLDER, webhook.chart.render_all()), (rights.FOLDER, rights.render_all())])
def test_the_files_are_what_the_code_says(folder: Path, wanted: dict[str, str]):
    assert generated.find_drift(folder, wanted) == ""


def test_no_policy_is_left_over_from_earlier():
    present = {path.name for path in (FOLDER / "policies").iterdir()}
    assert present == {f"{policy['metadata']['name']}.yaml" for policy in policies(KINDS)}


def test_a_changed_file_is_told_of(tmp_path: Path):
    (tmp_path / "a.yaml").write_text("a: 1\n")
    assert "-a: 1\n+a: 2" in generated.find_drift(tmp_path, {"a.yaml": "a: 2\n"})
    assert generated.run("x", tmp_path, {"a.yaml": "a: 2\n"}, ["--check"]) == 1
    assert generated.run("x", tmp_path, {"a.yaml": "a: 2\n"}, ["--write"]) == 0
    assert generated.run("x", tmp_path, {"a.yaml": "a: 2\n"}, ["--check"]) == 0


def test_rules_grant_just_what_was_asked_for():
    asked = {("", "pods", "get"), ("", "nodes", "get"), ("", "pods/status", "patch"), ("apps", "deployments", "get")}
    assert granted(rules(asked)) == asked
    assert len(rules(asked)) == 3


def test_no_right_is_wider_than_by_name():
    for path in rights.FOLDER.glob("*.yaml"):
        for group, resource, verb in granted(yaml.safe_load(path.read_text())):
            assert "*" not in (group, resource, verb)
            assert resource != "secrets"


def test_the_reconciler_may_do_what_its_policies_know_it_by():
    """Policies take who may patch the status of Workloads for topogate, and who may update the status of a kind for its controller."""
    mine = granted(yaml.safe_load((rights.FOLDER / "reconciler.yaml").read_text()))
    assert ("kueue.x-k8s.io", "workloads/status", "patch") in mine
    assert not {right for right in mine if right[1].endswith("/status") and right[2] == "update"}


@pytest.mark.parametrize(
    "right",
    [
        ("", "pods", "patch"),
        ("", "pods", "delete"),
        ("", "pods/status", "patch"),
        ("", "events", "create"),
        ("batch", "jobs/status", "patch"),
        ("kueue.x-k8s.io", "workloads", "create"),
        ("kueue.x-k8s.io", "topologies/status", "patch"),
        ("kueue.x-k8s.io", "clusterqueues", "patch"),
        ("autoscaling.x-k8s.io", "provisioningrequests", "delete"),
        ("trainer.kubeflow.org", "clustertrainingruntimes", "watch"),
        *((kind.group, kind.plural, "patch") for kind in KINDS),
    ],
)
def test_what_it_writes_it_may(right: tuple[str, str, str]):
    assert right in granted(yaml.safe_load((rights.FOLDER / "reconciler.yaml").read_text()))


def test_the_webhook_only_reads():
    assert {verb for _, _, verb in granted(yaml.safe_load((FOLDER / "rights" / "webhook.yaml").read_text()))} == {"get"}

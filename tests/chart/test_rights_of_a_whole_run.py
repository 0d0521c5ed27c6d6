"""Looks back on all that the processes did beside the session's control plane: they were granted it, and used all they are granted."""

from __future__ import annotations

from pathlib import Path

import pytest

import webhook.chart
from core.jobs.kinds import KINDS
from core.jobs.pod_kinds import pod_kinds
from core.runtime.rights import Right
from e2e.accounts import user_of
from e2e.asked import read_asked
from e2e.cluster import Cluster
from e2e.topogate import SYSTEM_NAMESPACE
from reconciler import rights
from tests.chart.test_generated import granted

GRANTED = {
    "webhook": webhook.chart.in_cluster(),
    "reconciler": rights.in_cluster() | granted(rights.in_own_namespace()) | granted(rights.of_pause()),
}

# The same code asks the same of each kind; which of them a run nests, stops in an odd moment or finds without its CRD is chance.
OF_KINDS = {
    (group, resource, verb)
    for group, resource, verb in GRANTED["webhook"] | GRANTED["reconciler"]
    if any(group == kind.group and resource.partition("/")[0] == kind.plural for kind in (*KINDS, *pod_kinds(KINDS)))
    or resource.endswith("trainingruntimes")
}
# A workload is read singly only where writes of several meet; tests of --nominate-nodes go through a proxy, which has other credentials.
SELDOM = OF_KINDS | {("kueue.x-k8s.io", "workloads", "get"), ("", "pods/status", "patch")}


def test_nothing_that_was_asked_was_refused(cluster: Cluster, audit_folder: Path):
    assert read_asked(audit_folder, refused=True) == {}


@pytest.mark.parametrize("part", GRANTED)
def test_all_that_is_granted_is_used(cluster: Cluster, audit_folder: Path, request: pytest.FixtureRequest, part: str):
    config = request.config
    if config.args != config.getini("testpaths") or config.option.keyword or config.option.markexpr or request.session.testsfailed:
        pytest.skip("only a run of all tests, of which none failed, uses everything")
    used = read_asked(audit_folder)[user_of(part, SYSTEM_NAMESPACE)]
    assert unused(GRANTED[part] - SELDOM, used) == []
    assert used & OF_KINDS


def unused(granted: set[Right], used: set[Right]) -> list[str]:
    return [f"{verb} {resource} of {group or 'the core group'}" for group, resource, verb in sorted(granted - used)]

"""Looks back on all that the processes did beside the session's control plane: they were granted it, and used all they are granted."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import webhook.chart
from core.jobs.kinds import KINDS
from core.jobs.pod_kinds import pod_kinds
from core.runtime.rights import Right
from e2e.accounts import user_of
from e2e.api import wait_for
from e2e.asked import read_asked
from e2e.cluster import Cluster
from e2e.topogate import SYSTEM_NAMESPACE
from reconciler import rights
from tests.chart.test_generated import granted

OTHERS_S = 1200.0  # the longest file takes some minutes
pytestmark = pytest.mark.timeout(OTHERS_S + 300)
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
# Groups of kube-scheduler's own are served by a control plane of their own (tests/reconciler/test_podgroups_as_kube_scheduler.py).
OF_NATIVE_GROUPS = {right for right in GRANTED["reconciler"] if right[0] == "scheduling.k8s.io" and right[1] != "priorityclasses"}
SELDOM = OF_KINDS | OF_NATIVE_GROUPS | {("kueue.x-k8s.io", "workloads", "get"), ("", "pods/status", "patch")}


@pytest.fixture(scope="module")
def others(audit_folder: Path) -> list[Path]:
    """What the other processes of the run have written, once they are through: this file is the last to be handed out."""
    count = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))

    def through() -> bool:
        return len(list(audit_folder.parent.glob("audit-*/failed"))) == count - 1

    wait_for("the other processes of the run", through, timeout_s=OTHERS_S)
    return [path.parent for path in audit_folder.parent.glob("audit-*/failed")]


def test_nothing_that_was_asked_was_refused(cluster: Cluster, audit_folder: Path, others: list[Path]):
    assert [read_asked(folder, refused=True) for folder in (audit_folder, *others)] == [{}, *({} for _ in others)]


@pytest.mark.parametrize("part", GRANTED)
def test_all_that_is_granted_is_used(cluster: Cluster, audit_folder: Path, others: list[Path], request: pytest.FixtureRequest, part: str):
    config = request.config
    failed = request.session.testsfailed or any((folder / "failed").read_text() != "0" for folder in others)
    if config.args != config.getini("testpaths") or config.option.keyword or config.option.markexpr or failed:
        pytest.skip("only a run of all tests, of which none failed, uses everything")
    user = user_of(part, SYSTEM_NAMESPACE)
    used = {right for folder in (audit_folder, *others) for right in read_asked(folder)[user]}
    assert unused(GRANTED[part] - SELDOM, used) == []
    assert used & OF_KINDS


def unused(granted: set[Right], used: set[Right]) -> list[str]:
    return [f"{verb} {resource} of {group or 'the core group'}" for group, resource, verb in sorted(granted - used)]

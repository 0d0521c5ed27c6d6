"""The manifests of `examples/` applied again and again, as GitOps tools do every minute: no difference, no error, no warning."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.api import wait_for
from e2e.audit import truth
from e2e.binaries import OLDER_KUBECTL, ensure_binaries
from e2e.cluster import Cluster
from e2e.nodes import NodePool
from e2e.standing import EXAMPLES
from e2e.standins.base import StandIn
from e2e.standins.leaderworkerset import LeaderWorkerSetStandIn
from e2e.topogate import Topogate
from tests.reconciler.kinds.scenarios import SCENARIOS

pytestmark = [pytest.mark.cluster, pytest.mark.long]
OF_KUBERNETES = [path for path in sorted(EXAMPLES.glob("*.yaml")) if path.name not in ("job-three-mistakes.yaml", "jobset.yaml")]
OF_OPERATORS = [EXAMPLES / "jobset.yaml", *sorted((EXAMPLES / "kinds").glob("*.yaml"))]
TOO_LARGE = "too-large"
PODS = {"one-rack": 16, "two-levels": 32, "eight": 8}
ROUNDS = 3
KEPT = "keeps what it was started with"
STAND_INS: set[type[StandIn]] = {LeaderWorkerSetStandIn, *(stand_in for scenario in SCENARIOS for stand_in in scenario.standins)}


class Applier:
    """Applies some manifests with one kubectl, in one way."""

    def __init__(self, cluster: Cluster, kubectl: Path, options: Sequence[str], files: Sequence[Path], has_lists: bool = False) -> None:
        """`has_lists`: pod templates are in lists, which an apply replaces where they have no keys."""
        self._command = [str(kubectl), "--kubeconfig", str(cluster.kubeconfig), "--cache-dir", str(cluster.log_dir.parent / "discovery")]
        self._files = [word for path in files for word in ("-f", str(path))]
        self._options = options
        self._has_lists = has_lists

    def run(self, *words: str) -> str:
        """What kubectl prints; it must end well and without another warning than that a running job keeps what its start added."""
        done = subprocess.run([*self._command, *words], capture_output=True, text=True, check=False)
        warnings = [line for line in done.stderr.splitlines() if not (self._has_lists and KEPT in line)]
        assert (done.returncode, warnings) == (0, []), f"{words[0]}: {done.stdout}{done.stderr}"
        return done.stdout

    def apply(self) -> list[str]:
        """The lines that it prints, one for each object."""
        return self.run("apply", *self._options, *self._files).splitlines()

    def read_applied(self) -> dict[str, Any]:
        """What users see of each object that the manifests have, without its status."""
        listed = json.loads(self.run("get", *self._files, "-o", "json"))["items"]
        kept = ("labels", "annotations", "finalizers", "uid", "generation")
        return {
            f"{obj['kind']}/{obj['metadata']['name']}": (obj.get("spec"), {key: obj["metadata"].get(key) for key in kept}) for obj in listed
        }

    def check_nothing_changes(self, state: str) -> None:
        """Applies the manifests again and again; kubectl finds no difference before, and every object stays as it is."""
        for _ in range(ROUNDS):
            before = self.read_applied()
            assert self.run("diff", *self._options, *self._files) == "", state
            lines = self.apply()
            assert len(lines) == len(before)
            assert [line for line in lines if not line.endswith(self.ends)] == [], state
            assert self.read_applied() == before, state

    @property
    def ends(self) -> tuple[str, ...]:
        """How the line of an object that stays as it is ends. Of a list kubectl does not know that."""
        return ("serverside-applied",) if self._options else ("unchanged", *(["configured"] if self._has_lists else []))


@pytest.mark.parametrize("options", [(), ("--server-side",)], ids=["client-side", "server-side"])
@pytest.mark.parametrize("is_older", [False, True], ids=["kubectl", "kubectl-three-versions-back"])
def test_examples_applied_again_report_no_difference(is_older: bool, options: tuple[str, ...]) -> None:
    with Cluster() as cluster, Topogate(cluster, leader_election=False):
        (kubectl,) = ensure_binaries(modules=[OLDER_KUBECTL]).values() if is_older else [cluster.binaries["kubectl"]]
        applier = Applier(cluster, kubectl, options, OF_KUBERNETES)
        applier.apply()
        eventually = partial(wait_until, cluster)
        eventually("all to wait", lambda now: all(truth.get_condition(now.workload_of(job), "QuotaReserved") for job in [*PODS, TOO_LARGE]))
        for name in ("Topology/default", "ResourceFlavor/gpu"):
            wait_for(f"{name} to be in use", lambda name=name: applier.read_applied()[name][1]["finalizers"])  # type: ignore[misc]
        applier.check_nothing_changes("waiting")
        cluster.add_nodes(NodePool(labels={"node-group": "gpu"}))
        eventually("all to run", lambda now: all(truth.check_all_bound(now, job, pods) == [] for job, pods in PODS.items()))
        eventually("all other pods to run", lambda now: all(is_running(pod) for pod in now.pods))
        wait_for("the ClusterQueue to be in use", lambda: applier.read_applied()["ClusterQueue/research"][1]["finalizers"])
        applier.check_nothing_changes("running")
        for job in PODS:
            cluster.api.patch(f"/apis/batch/v1/namespaces/default/jobs/{job}", {"spec": {"suspend": True}})
        eventually("quota to be released", lambda now: not any(has_quota(now, job) for job in PODS))
        applier.check_nothing_changes("suspended")
        assert not any(has_quota(truth.read(cluster.api), job) for job in PODS), "applied again, a suspended job stays suspended"


@pytest.mark.parametrize("options", [(), ("--server-side", "--force-conflicts")], ids=["client-side", "server-side"])
def test_examples_of_operators_applied_again_report_no_difference(options: tuple[str, ...]) -> None:
    """Forced as GitOps tools do: topogate owns the lists of templates that it has changed, if they have no keys."""
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster())
        stack.enter_context(Topogate(cluster, leader_election=False))
        for stand_in in STAND_INS:
            stack.enter_context(stand_in(cluster.api))
        queues = (EXAMPLES / "queues.yaml").read_text().replace('"384"', '"768"')
        cluster.kubectl("apply", "-f", "-", input=queues)
        applier = Applier(cluster, cluster.binaries["kubectl"], options, OF_OPERATORS, has_lists=True)
        applier.apply()
        jobs = {obj["kind"] for path in OF_OPERATORS for obj in yaml.safe_load_all(path.read_text())} - {"TrainingRuntime"}
        eventually = partial(wait_until, cluster)
        eventually(
            "all to wait", lambda now: {find_owner_kind(w) for w in now.workloads if truth.get_condition(w, "QuotaReserved")} == jobs
        )
        applier.check_nothing_changes("waiting")
        cluster.add_nodes(NodePool(nodes=16, labels={"node-group": "gpu"}))
        eventually("all to run", lambda now: len(now.pods) == count_asked(now) and all(map(is_running, now.pods)))
        applier.check_nothing_changes("running")


def count_asked(now: truth.Snapshot) -> int:
    """The pods that all workloads ask for."""
    return sum(pod_set["count"] for workload in now.workloads for pod_set in workload["spec"]["podSets"])


def find_owner_kind(workload: truth.Obj) -> str:
    return str(workload["metadata"]["ownerReferences"][0]["kind"])


def is_running(pod: truth.Obj) -> bool:
    return bool(pod["status"].get("phase") == "Running")


def has_quota(now: truth.Snapshot, job: str) -> bool:
    return truth.is_true(now.workload_of(job), "QuotaReserved") or now.pods_of(job) != []


def wait_until(cluster: Cluster, subject: str, probe: Any) -> None:
    wait_for(subject, lambda: probe(truth.read(cluster.api)))

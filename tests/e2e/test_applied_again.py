"""The manifests of `examples/` applied again and again, as GitOps tools do every minute: no difference, no error, no warning."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from e2e import truth
from e2e.api import wait_for
from e2e.binaries import OLDER_KUBECTL, ensure_binaries
from e2e.cluster import Cluster
from e2e.nodes import NodePool
from e2e.standing import EXAMPLES
from e2e.topogate import Topogate
from tests.conftest import BUILD_TIMEOUT_S

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(BUILD_TIMEOUT_S)]
OF_KUBERNETES = [path for path in sorted(EXAMPLES.glob("*.yaml")) if path.name not in ("job-three-mistakes.yaml", "jobset.yaml")]
OF_OPERATORS = [EXAMPLES / "jobset.yaml", *sorted((EXAMPLES / "kinds").glob("*.yaml"))]
TOO_LARGE = "too-large"
PODS = {"one-rack": 16, "two-levels": 32, "eight": 8}
ROUNDS = 3


class Applier:
    """Applies some manifests with one kubectl, in one way."""

    def __init__(self, cluster: Cluster, kubectl: Path, options: Sequence[str], files: Sequence[Path]) -> None:
        self._command = [str(kubectl), "--kubeconfig", str(cluster.kubeconfig), "--cache-dir", str(cluster.log_dir.parent / "discovery")]
        self._files = [word for path in files for word in ("-f", str(path))]
        self._options = options

    def run(self, *words: str) -> str:
        """What kubectl prints; it must end well and without a warning."""
        done = subprocess.run([*self._command, *words], capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, done.stderr) == (0, ""), f"{words[0]}: {done.stdout}{done.stderr}"
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
    def ends(self) -> str:
        """How the line of an object that stays as it is ends."""
        return "serverside-applied" if self._options else "unchanged"


@pytest.mark.parametrize("options", [(), ("--server-side",)], ids=["client-side", "server-side"])
@pytest.mark.parametrize("is_older", [False, True], ids=["kubectl", "kubectl-three-versions-back"])
def test_examples_applied_again_report_no_difference(is_older: bool, options: tuple[str, ...]) -> None:
    with Cluster() as cluster, Topogate(cluster, leader_election=False):
        (older,) = ensure_binaries(modules=[OLDER_KUBECTL]).values() if is_older else (None,)
        applier = Applier(cluster, older if is_older else cluster.binaries["kubectl"], options, OF_KUBERNETES)
        applier.apply()
        eventually = partial(wait_until, cluster)
        eventually("all to wait", lambda now: all(truth.condition(now.workload_of(job), "QuotaReserved") for job in [*PODS, TOO_LARGE]))
        applier.check_nothing_changes("waiting")
        cluster.add_nodes(NodePool(labels={"node-group": "gpu"}))
        eventually("all to run", lambda now: all(truth.all_bound(now, job, pods) == [] for job, pods in PODS.items()))
        eventually("all other pods to run", lambda now: all(is_running(pod) for pod in now.pods))
        applier.check_nothing_changes("running")
        for job in PODS:
            cluster.api.patch(f"/apis/batch/v1/namespaces/default/jobs/{job}", {"spec": {"suspend": True}})
        eventually("quota to be released", lambda now: not any(holds_quota(now, job) for job in PODS))
        applier.check_nothing_changes("suspended")
        assert not any(holds_quota(truth.read(cluster.api), job) for job in PODS), "applied again, a suspended job stays suspended"


def is_running(pod: truth.Obj) -> bool:
    return bool(pod["status"].get("phase") == "Running")


def holds_quota(now: truth.Snapshot, job: str) -> bool:
    return truth.is_true(now.workload_of(job), "QuotaReserved") or now.pods_of(job) != []


def wait_until(cluster: Cluster, subject: str, probe: Any) -> None:
    wait_for(subject, lambda: probe(truth.read(cluster.api)))

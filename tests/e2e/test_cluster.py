"""The control plane is real: the real scheduler binds, the server can be restarted, nothing outlives its owner."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.api import wait_for
from e2e.cluster import Cluster
from e2e.nodes import NodePool
from e2e.process import StartFailed, is_alive

POD = {"spec": {"containers": [{"name": "main", "image": "none", "resources": {"limits": {"nvidia.com/gpu": "4"}}}]}}


def test_a_plain_pod_is_bound_by_the_real_scheduler_and_runs_until_it_is_asked_to_end(cluster, namespace):
    pods = f"/api/v1/namespaces/{namespace}/pods"
    nodes = cluster.add_nodes(NodePool(blocks=1, racks=1, nodes=2, prefix="plain-", labels={"pool": "plain"}))
    cluster.api.create(pods, {"metadata": {"name": "one"}, "spec": {**POD["spec"], "nodeSelector": {"pool": "plain"}}})

    running = wait_for("the pod to run", lambda: _pod_in_phase(cluster, pods, "Running"))
    assert running["spec"]["nodeName"] in nodes
    assert {c["type"]: c["status"] for c in running["status"]["conditions"]}["Ready"] == "True"

    cluster.api.patch(f"{pods}/one", {"metadata": {"annotations": {"e2e.topogate.dev/complete": "true"}}})
    wait_for("the pod to end", lambda: _pod_in_phase(cluster, pods, "Succeeded"))
    cluster.api.delete(f"{pods}/one")
    wait_for("the pod to be gone", lambda: cluster.api.find(f"{pods}/one") is None)
    cluster.delete_nodes(nodes)


def test_a_pod_can_be_asked_to_fail_and_to_end_after_a_while(cluster, namespace):
    pods = f"/api/v1/namespaces/{namespace}/pods"
    nodes = cluster.add_nodes(NodePool(blocks=1, racks=1, nodes=1, prefix="ends-", labels={"pool": "ends"}))
    for name, wish in {"one": {"fail": "true"}, "two": {"complete": "true", "run-seconds": "1s"}}.items():
        annotations = {f"e2e.topogate.dev/{key}": value for key, value in wish.items()}
        spec = {**POD["spec"], "nodeSelector": {"pool": "ends"}, "restartPolicy": "Never"}
        cluster.api.create(pods, {"metadata": {"name": name, "annotations": annotations}, "spec": spec})
    failed = wait_for("the first to fail", lambda: _pod_in_phase(cluster, pods, "Failed"))
    assert failed["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 1
    wait_for("the second to succeed", lambda: _pod_in_phase(cluster, pods, "Succeeded", "two"))
    cluster.delete_nodes(nodes)


def test_a_job_gets_its_pods_from_the_real_controller(cluster, namespace):
    nodes = cluster.add_nodes(NodePool(blocks=1, racks=1, nodes=2, prefix="job-", labels={"pool": "job"}))
    template = {"spec": {**POD["spec"], "nodeSelector": {"pool": "job"}, "restartPolicy": "Never"}}
    jobs = f"/apis/batch/v1/namespaces/{namespace}/jobs"
    cluster.api.create(jobs, {"metadata": {"name": "j"}, "spec": {"parallelism": 4, "completions": 4, "template": template}})
    wait_for("four ready pods", lambda: cluster.api.get(f"{jobs}/j")["status"].get("ready") == 4)
    cluster.api.delete(f"{jobs}/j?propagationPolicy=Foreground")
    wait_for("its pods to be gone", lambda: not cluster.api.list(f"/api/v1/namespaces/{namespace}/pods"))
    cluster.delete_nodes(nodes)


@pytest.fixture
def sick(cluster) -> Iterator[str]:
    (node,) = cluster.add_nodes(NodePool(blocks=1, racks=1, nodes=1, prefix="sick-"))
    yield node
    cluster.delete_nodes([node])  # also after a failure: tests that come later count the racks


def test_a_node_made_unready_is_tainted_by_the_real_controller_and_recovers(cluster, sick):
    def taint() -> object:
        """kwok says of a new node more than once that it is ready, and the last time may be after ours."""
        conditions = {each["type"]: each["status"] for each in cluster.api.get(f"/api/v1/nodes/{sick}")["status"]["conditions"]}
        if conditions["Ready"] == "True":
            cluster.set_node_ready(sick, ready=False)
        return _get_taints(cluster, sick)

    wait_for("the taint", taint)
    cluster.set_node_ready(sick, ready=True)
    wait_for("the taint to go", lambda: not _get_taints(cluster, sick))


def test_the_api_server_keeps_its_data_and_its_address_over_a_restart(namespace, cluster):
    cluster.api.create(f"/api/v1/namespaces/{namespace}/configmaps", {"metadata": {"name": "kept"}})
    pid = cluster.pids["kube-apiserver"]
    cluster.restart_apiserver()
    assert cluster.pids["kube-apiserver"] != pid
    assert cluster.api.find(f"/api/v1/namespaces/{namespace}/configmaps/kept")


def test_rbac_is_in_force_for_a_service_account(cluster, namespace):
    kubeconfig = cluster.kubeconfig_for_service_account(namespace, "default")
    assert f"system:serviceaccount:{namespace}:default" in cluster.kubectl("auth", "whoami", kubeconfig=kubeconfig)
    with pytest.raises(RuntimeError, match="nodes is forbidden"):
        cluster.kubectl("get", "nodes", kubeconfig=kubeconfig)


def test_a_static_user_can_be_added_with_groups(cluster):
    kubeconfig = cluster.add_user("alice", ["researchers"])
    assert "researchers" in cluster.kubectl("auth", "whoami", kubeconfig=kubeconfig)


@pytest.mark.cluster
def test_a_part_that_dies_at_start_is_named_with_the_end_of_its_log(capfd):
    broken = Cluster(scheduler_flags={"no-such-flag": "1"})
    with pytest.raises(StartFailed, match=r"(?s)kube-scheduler ended with code .*unknown flag: --no-such-flag"):
        broken.start()
    assert broken.pids == {}
    assert str(broken.log_dir) in capfd.readouterr().err
    assert [path.name for path in broken.log_dir.parent.iterdir()] == ["logs"]
    shutil.rmtree(broken.log_dir.parent)


@pytest.mark.cluster
def test_stopping_leaves_no_process_and_no_folder():
    with Cluster() as cluster:
        pids, folder, data = list(cluster.pids.values()), cluster.log_dir.parent, cluster.data_dir
        assert len(pids) == 5
        assert is_alive(pids[0], str(data))
        assert is_alive(pids[1], str(folder))
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert not folder.exists()
    assert not data.exists()


@pytest.mark.cluster
def test_killing_the_owner_kills_the_cluster(tmp_path):
    script = """
        import time
        from pathlib import Path
        from e2e.cluster import Cluster
        print(Cluster(root=Path(r"ROOT")).start().data_dir, flush=True)
        time.sleep(600)
    """
    root = tmp_path / "cluster"
    root.mkdir()
    command = [sys.executable, "-c", textwrap.dedent(script).replace("ROOT", str(root))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2]) as owner:
        assert owner.stdout is not None
        data = Path(owner.stdout.readline().strip())
        assert data.is_dir()
        assert _list_processes_naming(str(root))
        owner.send_signal(signal.SIGKILL)
    wait_for("the processes to be gone", lambda: not _list_processes_naming(str(root)))
    wait_for("its data to be gone", lambda: not data.exists())


def _list_processes_naming(mark: str) -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and is_alive(int(entry.name), mark + "/")]


def _pod_in_phase(cluster: Cluster, pods: str, phase: str, name: str = "one"):
    pod = cluster.api.get(f"{pods}/{name}")
    return pod if pod["status"]["phase"] == phase else None


def _get_taints(cluster: Cluster, node: str):
    return cluster.api.get(f"/api/v1/nodes/{node}")["spec"].get("taints")

"""The whole of `python -m e2e.kind`, with a kind and a docker that hand it the simulated cluster, and a stand-in for what it installs."""

from __future__ import annotations

import base64
import json
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster import Cluster
from e2e.kind import __main__ as command
from e2e.kind import cluster as kind_cluster
from e2e.kind.cluster import ACCOUNT, ACCOUNT_NAMESPACE
from e2e.kind.nodes import NODE_IMAGE, SHAPE, build_config
from e2e.kind.operators import Manifests, Operator
from e2e.kind.tools import Tool
from e2e.nodes import KWOK_ANNOTATION, NodePool, build_nodes
from e2e.operators.scenes import Act, list_acts
from e2e.standins.base import build_crd
from e2e.standins.jobset import JobSetStandIn
from e2e.topogate import Topogate

pytestmark = [pytest.mark.cluster, pytest.mark.long]
LIFE = next(act for act in list_acts(["JobSet"]) if "suspended and resumed" in act.what)


@pytest.fixture(scope="module")
def simulated() -> Iterator[Cluster]:
    """A control plane of its own: every node in it is one that kind made."""
    with Cluster() as running:
        running.add_nodes(nodes_of_kind())
        yield running


def nodes_of_kind() -> list[dict[str, Any]]:
    """Simulated nodes with the names and labels of the containers, which have no GPUs of their own."""
    allocatable = {"cpu": "8", "memory": "16Gi", "pods": "110"}
    made = []
    for i, asked in enumerate(build_config()["nodes"]):
        name = f"topogate-x-{asked['role']}" + (str(i) if i > 1 else "")
        own = {"kubernetes.io/hostname": name, **asked.get("labels", {})}
        own |= {"node-role.kubernetes.io/control-plane": ""} if asked["role"] == "control-plane" else {}
        taints = [{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}] if asked["role"] == "control-plane" else []
        node = build_nodes(NodePool(1, 1, 1, allocatable=allocatable, taints=taints))[0]
        made.append(node | {"metadata": {"name": name, "labels": own, "annotations": dict(KWOK_ANNOTATION)}})
    return made


@pytest.fixture
def said_to_kind(simulated: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """What kind and docker were asked, a line each; they give the simulated cluster and this machine."""
    bin_dir, asked = tmp_path / "bin", tmp_path / "asked"
    bin_dir.mkdir()
    authority = base64.b64encode(simulated.ca_file.read_bytes()).decode()
    made = yaml.safe_load(simulated.kubeconfig.read_text())
    made["clusters"][0]["cluster"] = {"server": simulated.server, "certificate-authority-data": authority}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(made))
    info = {"ServerVersion": "29.0", "OperatingSystem": "Debian", "NCPU": 8, "MemTotal": 16 * 2**30}
    network = [{"IPAM": {"Config": [{"Gateway": "127.0.0.1"}]}}]
    scripts = {
        "kind": f"""
            echo "kind $*" >> {asked}
            while [ $# -gt 0 ]; do [ "$1" = --kubeconfig ] && cp {tmp_path}/kubeconfig "$2"; shift; done""",
        "docker": f"""
            echo "docker $*" >> {asked}
            case "$1" in info) echo '{json.dumps(info)}' ;; network) echo '{json.dumps(network)}' ;; esac""",
    }
    for name, script in scripts.items():
        (bin_dir / name).write_text(f"#!/bin/sh\n{script}\nexit 0\n")
        (bin_dir / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_dir}:/usr/bin:/bin")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def find_tool(tool: Tool) -> Path:
        return bin_dir / tool.name

    monkeypatch.setattr(kind_cluster, "ensure_tool", find_tool)
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield asked
    for number, handler in handlers.items():
        signal.signal(number, handler)
    # A cluster that kind makes is a new one each time.
    simulated.api.delete(f"/api/v1/namespaces/{ACCOUNT_NAMESPACE}/serviceaccounts/{ACCOUNT}")
    simulated.api.delete(f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{ACCOUNT}")


@pytest.fixture
def operator(tmp_path: Path) -> Operator:
    """Installed like the real one from a folder: its CRD, and a Deployment of which the stand-in is not a part."""
    home = tmp_path / "shipped"
    home.mkdir()
    labels = {"matchLabels": {"app": "controller"}}
    template = {"metadata": {"labels": labels["matchLabels"]}, "spec": {"containers": [{"name": "manager", "image": "manager:1"}]}}
    objects = [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shipped"}},
        build_crd(JobSetStandIn.group, JobSetStandIn.version, JobSetStandIn.kind, JobSetStandIn.plural),
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "controller", "namespace": "shipped"},
            "spec": {"selector": labels, "template": template},
        },
    ]
    (home / "objects.yaml").write_text(yaml.safe_dump_all(objects))
    (home / "kustomization.yaml").write_text(yaml.safe_dump({"resources": ["objects.yaml"]}))
    # From <temporary folder>/topogate-kind-xyz/jobset.
    source = Manifests("../../shipped")
    return Operator("jobset", source, ("jobsets.jobset.x-k8s.io",), (("shipped", "controller"),), images=("manager:1",))


def test_a_kind_is_installed_and_played(
    simulated: Cluster, said_to_kind: Path, operator: Operator, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[Any] = []

    def look(cluster: Cluster, topogate: Topogate) -> None:
        seen.append([pod["spec"]["nodeName"] for pod in cluster.api.list("/api/v1/namespaces/shipped/pods")])
        seen.append(topogate.webhook_url)

    monkeypatch.setattr(command, "list_operators", lambda kinds: (operator,))
    monkeypatch.setattr(command, "list_acts", lambda kinds: [Act("JobSet", "looked at", look), LIFE])
    with JobSetStandIn(simulated.api):
        assert command.main(["--kinds", "jobset"]) == command.OK, capsys.readouterr().err
    on, url = seen
    operators_node = "topogate-x-worker"
    assert on == [operators_node], "workers were closed while it was installed"
    assert url.startswith("https://127.0.0.1:"), "the gateway, as docker said"
    told = capsys.readouterr().out
    assert f"installing jobset {operator.version} ..." in told
    assert f"ok     JobSet: {LIFE.what}" in told
    assert told.endswith("2 of 2 scenes went well\n")
    lines = said_to_kind.read_text().splitlines()
    created, deleted = (next(line for line in lines if line.startswith(f"kind {verb} cluster")) for verb in ("create", "delete"))
    assert NODE_IMAGE in created
    assert created.split("--name ")[1].split()[0] == deleted.split("--name ")[1]
    assert [line for line in lines if "manager:1" in line] == [
        "docker pull --quiet manager:1",
        f"kind load docker-image manager:1 --name {deleted.split('--name ')[1]}",
    ]
    assert not list(said_to_kind.parent.glob("topogate-kind-*")), "nothing is left"
    workers = [node for node in simulated.api.list("/api/v1/nodes") if SHAPE.rack_label in node["metadata"]["labels"]]
    assert len(workers) == 8
    assert {node["status"]["allocatable"].get("nvidia.com/gpu") for node in workers} == {"8"}
    assert not any(node["spec"].get("unschedulable") for node in workers)


def test_a_scene_that_fails_ends_it_with_1_and_keeps_the_logs(
    said_to_kind: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(cluster: Cluster, topogate: Topogate) -> None:
        raise TimeoutError("waited for what never came")

    monkeypatch.setattr(command, "list_operators", lambda kinds: ())
    monkeypatch.setattr(command, "list_acts", lambda kinds: [Act("JobSet", "fails", fail)])
    assert command.main([]) == command.FAILED
    told = capsys.readouterr()
    assert "FAILED JobSet: fails" in told.out
    assert "waited for what never came" in told.err
    assert "the logs of the nodes and of topogate are in" in told.err
    [root] = said_to_kind.parent.glob("topogate-kind-*")
    assert list((root / "logs").glob("topogate-reconciler-*.log"))
    verbs = [line.split()[1] for line in said_to_kind.read_text().splitlines() if line.startswith("kind ")]
    assert verbs == ["create", "export", "delete"]


def test_kept_kind_cluster_is_reported_with_commands_for_use_and_deletion(
    said_to_kind: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "list_operators", lambda kinds: ())
    monkeypatch.setattr(command, "list_acts", lambda kinds: [])
    assert command.main(["--keep"]) == command.OK
    told = capsys.readouterr().err
    [root] = said_to_kind.parent.glob("topogate-kind-*")
    assert f"kept: export KUBECONFIG={root}/kind.kubeconfig" in told
    assert "delete cluster --name topogate-" in told
    assert "kind delete" not in said_to_kind.read_text()


def test_kind_command_with_a_failed_installation_exits_with_code_one(
    said_to_kind: Path, operator: Operator, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (said_to_kind.parent / "shipped" / "objects.yaml").unlink()
    monkeypatch.setattr(command, "list_operators", lambda kinds: (operator,))
    assert command.main([]) == command.FAILED
    assert "objects.yaml" in capsys.readouterr().err, "as kubectl said it"

"""What of `e2e.kind` can be known without Docker, its scenes with stand-ins, and with Docker one run."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from core.jobs.contract import Reviewed
from core.jobs.kinds.pod_parents import LeaderWorkerSet
from core.jobs.kinds.registry import KINDS
from e2e.binaries import NEWEST_KUBERNETES
from e2e.cluster import Cluster
from e2e.kind import __main__ as command
from e2e.kind.cluster import find_gateway
from e2e.kind.install import build_chart_arguments, write_kustomization
from e2e.kind.nodes import NODE_IMAGE, SHAPE, build_config, build_places
from e2e.kind.operators import OPERATORS, Chart, Manifests, Operator, UnknownKind, find_kinds, list_operators
from e2e.kind.tools import KIND, ensure_kubectl, ensure_tool, find_docker_problem, run
from e2e.nodes import NodePool
from e2e.operators.objects import EXAMPLES, RealStory, build_real_object
from e2e.operators.scenes import ACTS, Act, list_acts
from e2e.scenarios.stories import STORIES
from e2e.standins.jobset import JobSetStandIn
from e2e.standins.leaderworkerset import LeaderWorkerSetStandIn
from e2e.topogate import Topogate
from tests.installed import Installed
from tests.long import mark_long
from tests.reconciler.kinds.scenarios import SCENARIOS, Scenario, runtime

ROOT = Path(__file__).parents[2]
REVIEWED: tuple[Reviewed, ...] = (*KINDS, LeaderWorkerSet())
FOREIGN = {kind.kind: f"{kind.plural}.{kind.group}" for kind in REVIEWED if kind.group != "batch"}


# --- the cluster ----------------------------------------------------------------------------------------


def test_its_workers_are_the_blocks_racks_and_hosts_of_the_other_tests() -> None:
    nodes = yaml.safe_load(yaml.safe_dump(build_config()))["nodes"]
    assert [node["role"] for node in nodes] == ["control-plane"] + ["worker"] * (1 + SHAPE.blocks * SHAPE.racks * SHAPE.nodes)
    assert {node["image"] for node in nodes} == {NODE_IMAGE}
    labelled = [node["labels"] for node in nodes if SHAPE.rack_label in node.get("labels", {})]
    racks = [(labels[SHAPE.block_label], labels[SHAPE.rack_label]) for labels in labelled]
    assert racks == [(block, f"{block}-{rack}") for block in ("b1", "b2") for rack in ("r1", "r2") for _ in range(2)]
    assert {labels["pool"] for labels in labelled} == {"kind"}
    assert not any("kubernetes.io/hostname" in labels for labels in labelled), "kubelet's own"


def test_its_kubernetes_is_of_the_version_that_the_other_tests_run() -> None:
    assert f":v{NEWEST_KUBERNETES}." in NODE_IMAGE
    assert "@sha256:" in NODE_IMAGE


@pytest.mark.cluster
def test_kind_itself_takes_the_configuration(tmp_path: Path) -> None:
    """It judges it before it asks Docker for anything."""
    kind = ensure_tool(KIND)
    environ = {**os.environ, "PATH": f"{a_docker(tmp_path, 'exit 1')}:/usr/bin:/bin"}
    said = {}
    for name, nodes in (("good", build_config()["nodes"]), ("bad", [{"role": "worker", "rack": "r1"}])):
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(build_config() | {"nodes": nodes}))
        create: list[str | Path] = [kind, "create", "cluster", "--name", "never", "--config", path, "--kubeconfig", tmp_path / "kubeconfig"]
        done = subprocess.run(create, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode != 0
        said[name] = done.stderr
    assert "field rack not found" in said["bad"]
    assert "config" not in said["good"]
    assert "not found" not in said["good"]


def test_this_machine_is_the_ipv4_gateway_of_the_containers() -> None:
    inspected = [
        {"IPAM": {"Config": [{"Subnet": "fc00::/64", "Gateway": "fc00::1"}, {"Subnet": "172.18.0.0/16", "Gateway": "172.18.0.1"}]}}
    ]
    assert find_gateway(json.dumps(inspected)) == "172.18.0.1"
    with pytest.raises(ValueError, match="no IPv4 gateway"):
        find_gateway(json.dumps([{"IPAM": {"Config": None}}]))


def test_places_of_a_node_pool_are_its_level_labels() -> None:
    assert (
        build_places(NodePool(1, 1, 2, prefix="s1-", labels={"pool": "s1"}))
        == [{SHAPE.block_label: "s1-b1", SHAPE.rack_label: "s1-b1-r1", "pool": "s1"}] * 2
    )


# --- the operators --------------------------------------------------------------------------------------


def test_there_is_an_operator_for_every_kind_that_kubernetes_does_not_bring() -> None:
    named = [kind for operator in OPERATORS for kind in operator.kinds]
    assert sorted(named) == sorted(FOREIGN)
    for operator in OPERATORS:
        assert {FOREIGN[kind] for kind in operator.kinds} <= set(operator.crds)
        assert operator.deployments


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
def test_an_operator_comes_from_an_address_of_its_version(operator: Operator) -> None:
    if isinstance(operator.source, Chart):
        assert operator.source.version == operator.version
        assert (operator.source.repository or operator.source.name).startswith(("https://", "oci://"))
    else:
        assert operator.source.address.startswith("https://")
        assert f"v{operator.version}" in operator.source.address
        assert not {"main", "master", "latest"} & set(operator.source.address.split("/"))


def test_kinds_are_named_by_themselves_or_by_their_operator() -> None:
    assert find_kinds(["JobSet", "lws"]) == ("JobSet", "LeaderWorkerSet")
    assert find_kinds(["rayjob", "kuberay"]) == ("RayJob", "RayCluster", "RayService")
    assert set(find_kinds([])) == set(FOREIGN)
    with pytest.raises(UnknownKind, match="'jobsets' is neither a kind nor an operator; there are appwrapper, "):
        find_kinds(["jobsets"])


def test_operators_are_listed_after_the_operators_that_they_need() -> None:
    assert [operator.name for operator in list_operators(["TrainJob"])] == ["jobset", "trainer"]
    assert [operator.name for operator in list_operators(["AppWrapper"])] == ["training-operator", "appwrapper"]
    every = list_operators(FOREIGN)
    for operator in every:
        before = {other.name for other in every[: every.index(operator)]}
        assert set(operator.needs) <= before


def test_a_chart_is_installed_at_its_version_and_waited_for() -> None:
    arguments = {name: build_chart_arguments(name, source, Path("v.json")) for name, source in list_charts()}
    assert arguments["kuberay"][:6] == [
        "upgrade",
        "--install",
        "kuberay",
        "kuberay-operator",
        "--repo",
        "https://ray-project.github.io/kuberay-helm/",
    ]
    assert "--repo" not in arguments["trainer"], "its address says it"
    for name, source in list_charts():
        assert arguments[name][arguments[name].index("--version") + 1] == source.version
        assert "--wait" in arguments[name]


def list_charts() -> list[tuple[str, Chart]]:
    return [(operator.name, operator.source) for operator in OPERATORS if isinstance(operator.source, Chart)]


def with_patches(name: str, folder: Path, *objects: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What an operator's patches make of objects, by kubectl's own kustomize."""
    source = next(operator.source for operator in OPERATORS if operator.name == name)
    assert isinstance(source, Manifests)
    home = write_kustomization(dataclasses.replace(source, address="objects.yaml"), folder / name)
    (home / "objects.yaml").write_text(yaml.safe_dump_all([dict(obj) for obj in objects]))
    return list(yaml.safe_load_all(run([ensure_kubectl(), "kustomize", home])))


@pytest.mark.cluster
def test_training_operator_leaves_mpijobs_to_mpi_operator(tmp_path: Path) -> None:
    crds = [
        {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": f"{plural}.kubeflow.org"}}
        for plural in ("mpijobs", "pytorchjobs")
    ]
    containers = [{"name": "training-operator", "image": "operator:1", "command": ["/manager"]}]
    spec = {"template": {"spec": {"containers": containers}}}
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "training-operator"}, "spec": spec}
    made = with_patches("training-operator", tmp_path, *crds, deployment)
    assert [obj["metadata"]["name"] for obj in made] == ["pytorchjobs.kubeflow.org", "training-operator"]
    container = made[1]["spec"]["template"]["spec"]["containers"][0]
    kinds = next(operator.kinds for operator in OPERATORS if operator.name == "training-operator")
    assert container["image"] == "operator:1"
    assert container["args"] == [f"--enable-scheme={kind.lower()}" for kind in kinds]


@pytest.mark.cluster
def test_appwrappers_are_not_queued_by_their_own_operator(tmp_path: Path) -> None:
    shipped = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "appwrapper-operator-config"}, "data": {"config.yaml": "a: 1"}}
    [made] = with_patches("appwrapper", tmp_path, shipped)
    settings = yaml.safe_load(made["data"]["config.yaml"])["appwrapper"]
    assert settings == {"enableKueueIntegrations": False, "kueueJobReconciller": {"manageJobsWithoutQueueName": False}}


# --- the scenes -----------------------------------------------------------------------------------------


def test_every_kind_is_played_bound_suspended_and_deleted_while_gated() -> None:
    for kind in FOREIGN:
        played = " / ".join(act.what for act in list_acts([kind]))
        for word in (
            ("suspended and resumed", "deleted while gated") if kind != "LeaderWorkerSet" else ("order", "deactivated", "deleted while")
        ):
            assert word in played, f"{kind}: {played}"
    assert {act.kind for act in ACTS} == set(FOREIGN)
    assert {story.name for story in STORIES if story.stand_in} <= {act.what for act in ACTS}


def list_images(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (value["image"] for _ in "1" if isinstance(value.get("image"), str))
        for entry in value.values():
            yield from list_images(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from list_images(entry)


def strip_keys(value: Any, *keys: str) -> Any:
    if isinstance(value, dict):
        return {key: strip_keys(entry, *keys) for key, entry in value.items() if key not in keys}
    return [strip_keys(entry, *keys) for entry in value] if isinstance(value, list) else value


def as_made(scenario: Scenario) -> dict[str, Any]:
    metadata = {"name": "x", "namespace": "n", "labels": {"a": "b"}}
    return {"apiVersion": scenario.group_version, "kind": scenario.kind, "metadata": metadata, "spec": scenario.spec("rack")}


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.kind)
def test_object_for_a_real_operator_differs_only_in_fields_that_the_operator_needs(scenario: Scenario) -> None:
    obj = as_made(scenario)
    made = build_real_object(obj)
    assert not [image for image in list_images(made) if image.startswith(EXAMPLES)]
    assert made["metadata"] == obj["metadata"]
    operators = (
        "image",
        "name",
        "rayVersion",
        "rayStartParams",
        "minReplicas",
        "maxReplicas",
        "entrypoint",
        "serviceAccount",
        "restartPolicy",
    )
    spark = ("sparkVersion", "mainClass", "mainApplicationFile", "arguments", "restartPolicy")
    ignored = (*operators, *(spark if scenario.kind == "SparkApplication" else ()))
    assert strip_keys(made, *ignored) == strip_keys(obj, *ignored)
    assert obj == as_made(scenario), "the scene's own stays as it is"


def test_containers_have_the_names_that_operators_look_for() -> None:
    def names(obj: dict[str, Any]) -> set[str]:
        return {container["name"] for container in list_containers(build_real_object(obj))}

    by_kind = {scenario.kind: as_made(scenario) for scenario in SCENARIOS}
    assert names(by_kind["PyTorchJob"]) == names(by_kind["AppWrapper"]) == {"pytorch"}
    assert names(by_kind["TFJob"]) == {"tensorflow"}
    assert names(runtime()) == {"node"}
    assert names(by_kind["JobSet"]) == {"worker"}


def list_containers(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield from value.get("containers") or ()
        for entry in value.values():
            yield from list_containers(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from list_containers(entry)


def test_stories_on_kind_use_images_that_run() -> None:
    for story in STORIES:
        found = RealStory(story.file, story.levels, story.pods, story.check, story.stand_in)
        assert not [image for image in list_images(found.load()) if image.startswith(EXAMPLES)]


# The life of a JobSet is played in test_kind_whole.
PLAYED_HERE = [act for act in ACTS if act.kind == "JobSet" and act.what == "deleted while gated"]
PLAYED_HERE += [act for act in list_acts(["LeaderWorkerSet"]) if act.what.startswith(("leader and", "story-6"))]


@pytest.fixture(scope="module")
def with_stand_ins(cluster: Cluster, installed: Installed) -> Iterator[Topogate]:
    """What acts all the time, as operators do; not only when a test calls it in."""
    with ExitStack() as stack:
        topogate = installed.run()
        running = [stack.enter_context(each(cluster.api)) for each in (JobSetStandIn, LeaderWorkerSetStandIn)]
        yield topogate
        for each in running:
            each.uninstall()


@pytest.mark.parametrize("act", mark_long(PLAYED_HERE, but={0, 1}), ids=lambda act: f"{act.kind}-{act.what}")
def test_a_scene_can_be_played(act: Act, cluster: Cluster, with_stand_ins: Topogate) -> None:
    act.play(cluster, with_stand_ins)


# --- the command ----------------------------------------------------------------------------------------


def a_docker(folder: Path, *lines: str) -> Path:
    """A folder with a docker that says what it is told to."""
    bin_dir = folder / "bin"
    bin_dir.mkdir(exist_ok=True)
    (bin_dir / "docker").write_text("\n".join(["#!/bin/sh", *lines, ""]))
    (bin_dir / "docker").chmod(0o755)
    return bin_dir


def answers(**info: Any) -> str:
    told = {"ServerVersion": "29.0", "OperatingSystem": "Debian", "NCPU": 8, "MemTotal": 16 * 2**30} | info
    return f"echo '{json.dumps(told)}'"


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("echo 'Cannot connect to the Docker daemon.' >&2; exit 1", "Docker does not answer: Cannot connect to the Docker daemon."),
        (answers(ServerVersion="", ServerErrors=["no daemon"]), "Docker does not answer: no daemon."),
        ("echo nonsense", "Docker does not answer: it did not say why."),
        (answers(OperatingSystem="Docker Desktop"), "Docker Desktop's containers do not reach this machine"),
        (answers(NCPU=2), "Docker has 2 CPUs and 16.0 GiB, and the scenes need 4 CPUs and 12 GiB."),
        (answers(), None),
    ],
)
def test_docker_problem_names_the_cause(line: str, problem: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{a_docker(tmp_path, line)}:/usr/bin:/bin")
    found = find_docker_problem()
    assert (found is None) == (problem is None)
    assert (found or "").startswith(problem or "")


def test_kind_command_without_docker_exits_with_code_three_and_one_line(tmp_path: Path) -> None:
    environ = {**os.environ, "PATH": str(tmp_path)}
    done = subprocess.run([sys.executable, "-m", "e2e.kind"], cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (command.NO_DOCKER, "")
    assert done.stderr == "e2e.kind did not run: there is no docker on PATH.\n"
    assert f"| {command.NO_DOCKER} |" in (ROOT / "docs" / "development" / "kind.md").read_text()


def test_unknown_kind_is_reported_before_docker_is_called(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--kinds", "jobset,foo"]) == command.USAGE
    assert "'foo' is neither a kind nor an operator" in capsys.readouterr().err


def test_a_scene_that_fails_does_not_keep_the_others_from_being_played(capsys: pytest.CaptureFixture[str]) -> None:
    def play(problem: str | None) -> Callable[[Any, Any], None]:
        def played(cluster: Any, topogate: Any) -> None:
            assert problem is None, problem

        return played

    acts = [Act("A", "first", play("it is wrong")), Act("B", "second", play(None))]
    nobody: Any = None
    assert command.run_scenes(acts, nobody, nobody) == 1
    said = capsys.readouterr()
    assert "FAILED A: first" in said.out
    assert "ok     B: second" in said.out
    assert "it is wrong" in said.err


def test_the_docs_have_every_operator_at_its_version() -> None:
    text = (ROOT / "docs" / "development" / "kind.md").read_text()
    for operator in OPERATORS:
        assert f"| {operator.name} | {operator.version} |" in text


@pytest.mark.docker
@pytest.mark.timeout(3600)
def test_one_kind_is_played_with_its_real_operator() -> None:
    problem = find_docker_problem()
    if problem is not None:
        pytest.skip(problem)
    assert command.main(["--kinds", "jobset"]) == command.OK

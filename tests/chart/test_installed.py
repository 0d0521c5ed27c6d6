"""The chart in a real cluster, by the real Helm: every set of values is one that the API server takes, and what is installed works with
the rights, the arguments and the files that the chart gives it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from core.names import API_VERSION
from e2e import manifests
from e2e.api import APPLY_PATCH, Api, wait_for
from e2e.audit import truth
from e2e.cluster import Cluster
from e2e.crds import CRDS, load_crds, remove_crds
from e2e.topogate import READY_MARK
from tests.chart.helm import CHART, Refused, render, run_helm
from tests.chart.release import Release
from tests.chart.test_rendered import HOOKS, VALUE_SETS
from tests.long import mark_long
from tests.reconciler.scenes import JOBS, Scene

pytestmark = pytest.mark.cluster
(PREDECESSOR,) = (Path(__file__).parent / "predecessor").glob("*.tgz")
Obj = dict[str, Any]
OTHERS = {  # kinds of other projects that the chart makes objects of
    "cert-manager.io/v1": ("Issuer", "Certificate"),
    "monitoring.coreos.com/v1": ("ServiceMonitor", "PrometheusRule"),
}


@pytest.fixture(scope="module")
def own() -> Iterator[Cluster]:
    """A control plane that has never seen topogate: the session's has its CRDs."""
    with Cluster(apiserver_flags={"service-cluster-ip-range": "10.96.0.0/16,fd00:10:96::/112"}) as cluster:  # some values ask for both
        yield cluster


@pytest.fixture
def release(own: Cluster, tmp_path: Path) -> Iterator[Release]:
    """One of odd names, gone afterwards with all that is kept of it."""
    with Release(own, tmp_path, "7.odd.name", "0-system") as opened:
        yield opened
        remove(opened)


def remove(release: Release) -> None:
    release.stop()
    if json.loads(release.helm("list", "--output", "json")):
        release.helm("uninstall", release.name, "--wait")
    crds = load_crds()
    for crd in crds:
        free(release.api, crd)
    remove_crds(release.api, [crd["metadata"]["name"] for crd in crds])


def free(api: Api, crd: Obj) -> None:
    """Nobody runs any more who would take our finalizers off."""
    spec = crd["spec"]
    (version,) = [version["name"] for version in spec["versions"] if version["storage"]]
    of_group, plural = f"/apis/{spec['group']}/{version}", spec["names"]["plural"]
    for obj in (api.find(f"{of_group}/{plural}") or {"items": []})["items"]:
        namespace = obj["metadata"].get("namespace")
        where = f"{of_group}/" + (f"namespaces/{namespace}/" if namespace else "") + plural
        api.patch(f"{where}/{obj['metadata']['name']}", {"metadata": {"finalizers": None}})


_TAKEN = [number for number, name in enumerate(VALUE_SETS) if name in ("defaults", "cert-manager", "everything")]


def place(scene: Scene, name: str) -> None:
    """A job that needs one rack gets one."""
    scene.submit(name, pods=2, required=scene.rack)
    scene.eventually(f"{name} to run", lambda now: not truth.check_all_bound(now, name, 2))


@pytest.mark.parametrize("values", mark_long(VALUE_SETS.values(), but=_TAKEN), ids=VALUE_SETS)
def test_helm_and_the_api_server_have_nothing_to_complain_of(own: Cluster, tmp_path: Path, values: Obj):
    path = tmp_path / "values.json"
    path.write_text(json.dumps(values))
    assert "0 chart(s) failed" in run_helm("lint", "--strict", CHART, "--values", path)
    if own.api.find("/api/v1/namespaces/topogate-system") is None:
        own.create_namespace("topogate-system")
    for crd in list_others():
        own.api.patch(f"{CRDS}/{crd['metadata']['name']}?fieldManager=e2e", crd, APPLY_PATCH)
    for obj in render(tmp_path, values):
        where = f"{manifests.get_path(obj)}/{obj['metadata']['name']}?dryRun=All&fieldManager=helm&fieldValidation=Strict"
        wait_for(f"{obj['apiVersion']} to be served", partial(own.api.find, manifests.get_path(obj)))
        taken = own.api.patch(where, obj, APPLY_PATCH)
        assert taken["metadata"]["name"] == obj["metadata"]["name"]


def list_others() -> Iterator[Obj]:
    for group_version, kinds in OTHERS.items():
        group, _, version = group_version.partition("/")
        for kind in kinds:
            schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
            yield {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": f"{kind.lower()}s.{group}"},
                "spec": {
                    "group": group,
                    "names": {"kind": kind, "plural": f"{kind.lower()}s"},
                    "scope": "Namespaced",
                    "versions": [{"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
                },
            }


@pytest.mark.long
def test_a_release_is_installed_upgraded_rolled_back_removed_and_installed_again(release: Release):
    """Under the predecessor only the webhook runs: today's reconciler needs rights that it does not grant."""
    alone = {"replicas": 1, "podDisruptionBudget": {"enabled": False}}
    values = release.values(webhook=alone, reconciler=alone)
    release.apply("install", PREDECESSOR, as_then(values))
    release.run("webhook")
    scene = Scene(release.cluster).open()
    scene.submit("before", pods=2, required=scene.rack)
    assert release.api.get(f"{JOBS.format(scene.namespace)}/before")["spec"]["suspend"] is True

    release.apply("upgrade", CHART, values)
    release.run()
    scene.eventually("what waited to run", lambda now: not truth.check_all_bound(now, "before", 2))
    place(scene, "after-the-upgrade")

    release.stop()
    release.helm("rollback", release.name, "1")
    release.run("webhook")
    scene.submit("after-the-rollback", pods=2, required=scene.rack)
    release.apply("upgrade", CHART, values)
    release.run()
    scene.eventually("what waited to run", lambda now: not truth.check_all_bound(now, "after-the-rollback", 2))
    assert truth.check_all_bound(scene.read(), "before", 2) == []

    release.stop()
    release.helm("uninstall", release.name, "--wait")
    assert {crd["metadata"]["name"] for crd in load_crds()} <= {crd["metadata"]["name"] for crd in release.api.list(CRDS)}
    assert len(release.api.list(f"/apis/{API_VERSION}/namespaces/{scene.namespace}/workloads")) == 3
    for kind in HOOKS:
        assert not release.api.list(f"/apis/admissionregistration.k8s.io/v1/{kind.lower()}s")
    scene.submit("unguarded", pods=1, queue=None)  # nobody is asked any more

    release.apply("install", CHART, release.values(webhook=alone, reconciler=alone))
    release.run()
    place(scene, "after-all")
    scene.close()


def as_then(values: Obj) -> Obj:
    """Values as the predecessor knew them: it had no metrics, so that where they are is told to today's process by a flag."""
    ports = {
        component: {f"--{port.removesuffix('Port')}-port={number}" for port, number in values[component].items() if port.endswith("Port")}
        for component in ("webhook", "reconciler")
    }
    return values | {
        component: {name: value for name, value in values[component].items() if not name.endswith("Port")} | {"extraArgs": sorted(flags)}
        for component, flags in ports.items()
    }


def test_missing_right_of_an_installed_process_is_reported_until_granted(release: Release):
    release.apply("install", CHART, release.values())
    role = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{release.service.removesuffix('webhook')}reconciler"
    rules = release.api.get(role)["rules"]
    release.api.patch(role, {"rules": [rule for rule in rules if "nodes" not in rule["resources"]]})
    release.run("webhook")
    pod = release.start("reconciler")
    wait_for(f"the missing right to be told; {pod.process.describe_log()}", lambda: "nodes" in pod.log and "forbidden" in pod.log)
    assert READY_MARK not in pod.log
    listed = "limitranges, namespaces, nodes, persistentvolumeclaims, persistentvolumes"
    told = f"no right to list and watch {listed} (the chart's ClusterRole has it)"
    wait_for("the rule that is missing to be told in one line", lambda: told in pod.log)
    release.api.patch(role, {"rules": rules})
    wait_for("the reconciler to go on once it may", lambda: READY_MARK in pod.log)


def test_processes_without_crds_report_this_and_wait_for_them(release: Release):
    release.apply("install", CHART, release.values(crds={"install": False}), has_crds=False)
    pod = release.start("reconciler")
    wait_for("it to be told", lambda: '"the cluster cannot be seen"' in pod.log)
    (line,) = [line for line in map(json.loads, pod.log.splitlines()) if line["level"] != "info"]
    assert line["why"].startswith("the API server does not serve ")
    assert line["why"].endswith("install their CustomResourceDefinitions: the chart does (crds.install: true)")
    optional = ("nodetopologies", "podgroups", "provisioningrequestconfigs")
    for crd in load_crds():
        assert crd["metadata"]["name"] in line["why"] or crd["spec"]["names"]["plural"] in (*optional, "workloads")
    assert READY_MARK not in pod.log
    release.apply("upgrade", CHART, release.values())
    # A list that failed often is tried again within 45 s.
    wait_for("the reconciler to go on once they are there", lambda: READY_MARK in pod.log)
    wait_for("that to be told", lambda: '"the cluster can be seen"' in pod.log)


@pytest.mark.long
def test_crds_of_another_owner_are_adopted_only_with_take_ownership(release: Release):
    for crd in load_crds():
        release.api.patch(f"{CRDS}/{crd['metadata']['name']}?fieldManager=another", crd, APPLY_PATCH)
    with pytest.raises(Refused, match="cannot be imported into the current release"):
        release.apply("install", CHART, release.values())
    assert not json.loads(release.helm("list", "--output", "json"))
    release.apply("install", CHART, release.values(), "--take-ownership")
    release.run()
    with_nodes = Scene(release.cluster).open()
    place(with_nodes, "taken-over")
    with_nodes.close()


@pytest.mark.long
def test_chart_installs_beside_crds_of_another_owner(release: Release):
    for crd in load_crds():
        crd["spec"]["conversion"] = {"strategy": "None"}
        release.api.patch(f"{CRDS}/{crd['metadata']['name']}?fieldManager=another", crd, APPLY_PATCH)
    release.apply("install", CHART, release.values(crds={"install": False}))
    release.run()
    release.helm("uninstall", release.name, "--wait")


def test_a_second_release_is_refused(release: Release, own: Cluster, tmp_path: Path):
    release.apply("install", CHART, release.values())
    with Release(own, tmp_path, "second", "elsewhere") as second, pytest.raises(Refused, match="cannot be imported"):
        second.apply("install", CHART, second.values())


@pytest.mark.long
def test_published_ca_survives_an_upgrade_and_a_new_installation(release: Release):
    values = {name: value for name, value in release.values().items() if name != "certs"}
    release.apply("install", CHART, values)
    assert list_trusted(release) == {""}, "nobody but the webhook writes it"
    release.run("webhook")
    (authority,) = list_trusted(release)
    assert_asked(release)

    changed = {"webhooks": {"kinds": {"Deployment": {"enabled": False}}, "timeoutSeconds": 7}, "crds": {"annotations": {"seen": "yes"}}}
    release.apply("upgrade", CHART, values | changed)
    assert list_trusted(release) == {authority}
    release.run("webhook")
    assert_asked(release)

    release.stop()
    release.helm("uninstall", release.name, "--wait")
    release.apply("install", CHART, values)
    release.run("webhook")
    assert list_trusted(release) == {authority}
    assert_asked(release)


def list_trusted(release: Release) -> set[str]:
    """What the API server is told to trust, by webhooks and CRDs alike."""
    configs = []
    for kind in HOOKS:
        (configuration,) = release.api.list(f"/apis/admissionregistration.k8s.io/v1/{kind.lower()}s")
        configs += [hook["clientConfig"] for hook in configuration["webhooks"]]
    for crd in release.api.list(CRDS):
        configs += [crd["spec"]["conversion"]["webhook"]["clientConfig"]] if crd["spec"]["conversion"]["strategy"] == "Webhook" else []
    return {config.get("caBundle", "") for config in configs}


def assert_asked(release: Release) -> None:
    """The webhook is, about a new job, and answers."""
    job = manifests.build_job("asked", "default", pods=1)
    assert release.api.create(f"{manifests.get_path(job)}?dryRun=All", job)["spec"]["suspend"] is True

"""Files that the chart has from the code are what the code says, and every right that is used is granted; without Helm."""

from __future__ import annotations

import ast
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
import yaml

import webhook.chart
from core.api.files.key_schema import build_key_schema
from core.jobs.kinds.pod_kinds import list_pod_kinds
from core.jobs.kinds.registry import KINDS
from core.model.gates import GATES
from core.plan.steps import api_resources, writes
from core.runtime import generated
from core.runtime.clock import SystemClock
from core.runtime.http.client import Client
from core.runtime.rbac_rules import list_rules
from reconciler import rbac
from reconciler.observe.observed import Observed
from sim.apiserver.server import Request
from tests.certs.in_memory import Replica, Server
from webhook.policies import list_policies

FOLDER = webhook.chart.FOLDER


def list_granted(document: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in document
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize(("folder", "render"), [(FOLDER, webhook.chart.render_all), (rbac.FOLDER, rbac.render_all)])
def test_generated_chart_files_match_the_code(folder: Path, render: Callable[[], dict[str, str]]):
    assert generated.find_drift(folder, render()) == ""


def test_no_policy_is_left_over_from_earlier():
    present = {path.name for path in (FOLDER / "policies").iterdir()}
    assert present == {f"{policy['metadata']['name']}.yaml" for policy in list_policies(KINDS)}


def test_generated_check_fails_for_a_changed_file(tmp_path: Path):
    (tmp_path / "a.yaml").write_text("a: 1\n")
    assert "-a: 1\n+a: 2" in generated.find_drift(tmp_path, {"a.yaml": "a: 2\n"})
    assert generated.run("x", tmp_path, {"a.yaml": "a: 2\n"}, ["--check"]) == 1
    assert generated.run("x", tmp_path, {"a.yaml": "a: 2\n"}, ["--write"]) == 0
    assert generated.run("x", tmp_path, {"a.yaml": "a: 2\n"}, ["--check"]) == 0


def test_generated_rbac_rules_grant_exactly_the_requested_rights():
    asked = {("", "pods", "get"), ("", "nodes", "get"), ("", "pods/status", "patch"), ("apps", "deployments", "get")}
    assert list_granted(list_rules(asked)) == asked
    assert len(list_rules(asked)) == 3


def test_no_right_is_wider_than_by_name():
    for path in (FOLDER / "rights").glob("*.yaml"):
        for group, resource, verb in list_granted(yaml.safe_load(path.read_text())):
            assert "*" not in (group, resource, verb)
            # This one the chart narrows down to one Secret of one namespace.
            assert resource != "secrets" or path.name == "webhook-certificates-secret.yaml"


def test_reconciler_rights_include_workload_status_patch_and_no_status_update():
    """Policies take who may patch the status of Workloads for topogate, and who may update the status of a kind for its controller."""
    mine = list_granted(yaml.safe_load((FOLDER / "rights" / "reconciler.yaml").read_text()))
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
def test_reconciler_rights_include_each_write_of_the_code(right: tuple[str, str, str]):
    assert right in list_granted(yaml.safe_load((FOLDER / "rights" / "reconciler.yaml").read_text()))


def test_of_all_config_maps_one_may_be_read_and_none_in_other_namespaces():
    (rule,) = yaml.safe_load((FOLDER / "rights" / "reconciler-pause.yaml").read_text())
    assert (rule["resources"], rule["resourceNames"], rule["verbs"]) == (["configmaps"], ["topogate-pause"], ["list", "watch"])
    assert "configmaps" not in {resource for _, resource, _ in rbac.list_cluster_rights()}
    observed = Observed(cast("Client", None), SystemClock(), namespace="somewhere")
    assert (observed.pauses.watcher.namespace, observed.pauses.watcher.field_selector) == ("somewhere", "metadata.name=topogate-pause")


def test_the_webhook_only_reads():
    assert {verb for _, _, verb in list_granted(yaml.safe_load((FOLDER / "rights" / "webhook.yaml").read_text()))} == {
        "get",
        "list",
        "watch",
    }


def test_rights_for_certificate_rotation_equal_the_used_rights():
    server = Recording()
    for _ in range(2):
        replica = Replica(server)
        replica.look()
        server.annotate_secret(**{"topogate.dev__rotate-ca": ""})
        replica.look()
    assert server.asked == {right for rules in webhook.chart.list_certificate_rights().values() for right in list_granted(rules)}


class Recording(Server):
    """Notes the rights that requests take."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: set[tuple[str, str, str]] = set()

    async def meet(self, request: Request) -> None:
        self.asked.add((request.kind.group, request.kind.plural, request.verb))
        await super().meet(request)


VERBS = {"Create": "create", "read": "get", "Delete": "delete", "Apply": "patch", "Patch": "patch"}


def list_written_requests() -> set[tuple[str, str, str]]:
    """Requests of the reconciler whose resource stands in the plan of a write, or in the reading of an object."""
    found, root = set(), Path(writes.__file__).parents[3]
    for path in (*root.glob("core/plan/**/*.py"), *root.glob("reconciler/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(func=ast.Name(id=called) | ast.Attribute(attr=called), args=[ast.Attribute(ast.Name("r"), name), *_]):
                    if called not in VERBS:
                        continue
                    resource, given = getattr(api_resources, name), {word.arg: word.value for word in node.keywords}
                    default = ast.Constant("status" if called == "Apply" else None)
                    sub = given.get("subresource", default)
                    assert isinstance(sub, ast.Constant | ast.Name)
                    parts = [resource.plural, *([str(sub.value)] if isinstance(sub, ast.Constant) and sub.value else [])]
                    found.add((resource.group, "/".join(parts), VERBS[called]))
                case _:
                    pass
    return found


def test_each_request_that_names_its_resource_is_granted():
    """A new one that nobody granted is found here, before it is refused in a cluster."""
    asked = list_written_requests()
    assert ("kueue.x-k8s.io", "workloads/status", "patch") in asked
    assert ("", "podtemplates", "create") in asked
    assert asked - rbac.list_cluster_rights() == set()


def test_each_resource_that_is_observed_may_be_listed_and_watched():
    observed = Observed(cast("Client", None), SystemClock(), places_groups=True)
    asked = {(informer.resource.group, informer.resource.plural, verb) for informer in observed.informers for verb in ("list", "watch")}
    of_one_object = list_granted(rbac.list_pause_rights())
    assert of_one_object <= asked
    asked -= of_one_object
    assert asked - rbac.list_cluster_rights() == set()
    assert {right for right in rbac.list_cluster_rights() if right[2] in ("list", "watch")} == asked, "what is granted is used"


def test_values_of_the_chart_name_every_kind_of_webhook():
    schema = json.loads((FOLDER.parent / "values.schema.json").read_text())
    named = set(schema["properties"]["webhooks"]["properties"]["kinds"]["properties"])
    assert named >= {kind.kind for kind in list_pod_kinds(KINDS)} | {kind.kind for kind in KINDS}


def test_schema_of_the_values_has_the_keys_of_the_configuration_file_and_the_gates_of_the_flag():
    """`python -m core.api.files.key_schema` prints what stands at `properties.config`."""
    properties = json.loads((FOLDER.parent / "values.schema.json").read_text())["properties"]
    assert properties["config"] == build_key_schema()
    assert properties["reconciler"]["properties"]["featureGates"]["propertyNames"]["enum"] == sorted(GATES)

"""What Helm makes of the chart: the registration's own webhooks, odd names, and values that contradict themselves refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml

import reconciler.settings
import webhook.settings
from certs.rotation import KINDS as KINDS_OF_CONFIGURATION
from certs.rotation import SECRETS, CertificateTarget
from core.api.schema import CRD_DIR
from core.jobs.kinds.registry import KINDS
from core.model.gates import DEVICES, GATES, GROUPED_SLICES, OF_THE_WEBHOOK, PARTIAL_SLICES, POD_GROUPS
from core.names import OLD_VERSION, OWN_GROUP, OWN_VERSION, VERSION
from core.runtime.rbac_rules import list_rights as rights_on
from reconciler import rbac
from tests.chart.helm import CHART, Refused, find_one, render, run_helm
from tests.chart.test_generated import list_granted
from tests.long import mark_long
from webhook.policies import list_policies
from webhook.registration import build_configurations, build_conversion

pytestmark = pytest.mark.cluster  # Helm may have to be built

CERT_MANAGER = {"certs": {"mode": "cert-manager"}}
PROVIDED = {"certs": {"mode": "provided", "existingSecret": "mine", "caBundle": "Q0E="}}
SERVICE = {"service": {"namespace": "topogate-system", "name": "topogate-webhook", "port": 443}}
CONFIGURATION = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
HOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
CONDITION = {"name": "not-mine", "expression": "request.userInfo.username != 'me'"}
VALUE_SETS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "cert-manager": CERT_MANAGER,
    "provided": PROVIDED,
    "issuer": {"enableCertManager": True, "certManager": {"issuerRef": {"name": "corporate", "kind": "ClusterIssuer"}}},
    "everything": {
        "priorityClass": {"create": True},
        "flowSchema": {"enabled": True},
        "networkPolicy": {"egress": [{"ports": [{"port": 6443}]}]},
        "telemetry": {"otlpEndpoint": "http://collector:4317", "otlpProtocol": "grpc", "traceRatio": 0.05, "traceSlowSeconds": 1},
        "config": {"waitForPodsReady": {"timeout": "10m"}},
        "commonLabels": {"team": "batch"},
        "webhookService": {"ipDualStack": {"enabled": True}},
        "enablePrometheus": True,
        "prometheusRule": {"enabled": True},
        "grafanaDashboard": {"enabled": True},
    },
    "visibility": {"visibility": {"enabled": True}},
    "least": {
        **PROVIDED,
        "crds": {"install": False},
        "rbac": {"create": False, "userRoles": False},
        "policies": {"enabled": False},
        "webhooks": {"enabled": False},
        "networkPolicy": {"enabled": False},
        "webhook": {"replicas": 1, "podDisruptionBudget": {"enabled": False}, "serviceAccount": {"create": False}},
        "reconciler": {"replicas": 1, "leaderElection": False, "podDisruptionBudget": {"enabled": False}},
    },
    "peer": {
        "controllerManager": {
            "replicas": 3,
            "strategy": {"type": "Recreate"},
            "podDisruptionBudget": {"enabled": False},
            "featureGates": [{"name": "TASBalancedPlacement", "enabled": True}],
            "manager": {"image": {"repository": "mirror/topogate", "tag": "v9"}, "priorityClassName": ""},
        },
        "managerConfig": {"controllerManagerConfigYaml": "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"},
    },
}


@pytest.fixture(params=VALUE_SETS)
def rendered(request: pytest.FixtureRequest, tmp_path: Path) -> list[dict[str, Any]]:
    return render(tmp_path, VALUE_SETS[request.param])


def get_pods(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    found = (obj for obj in objects if obj["kind"] == "Deployment")
    return {obj["spec"]["template"]["spec"]["containers"][0]["name"]: obj["spec"]["template"]["spec"] for obj in found}


def test_helm_has_nothing_to_complain_of():
    assert "0 chart(s) failed" in run_helm("lint", "--strict", CHART)


def test_nothing_is_made_twice_and_everything_has_labels_and_a_namespace_where_it_needs_one(rendered: list[dict[str, Any]]):
    names = [(obj["kind"], obj["metadata"]["name"]) for obj in rendered]
    assert len(names) == len(set(names))
    for obj in rendered:
        assert obj["metadata"]["labels"]["app.kubernetes.io/instance"] == "topogate"


def test_chart_pods_are_restricted_and_selected_once_by_services_and_budgets(rendered: list[dict[str, Any]]):
    assert set(get_pods(rendered)) == {"webhook", "reconciler"}
    for spec in get_pods(rendered).values():
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (container,) = spec["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {mount["name"] for mount in container.get("volumeMounts", ())} == {volume["name"] for volume in spec.get("volumes", ())}
    labels = [obj["spec"]["template"]["metadata"]["labels"] for obj in rendered if obj["kind"] == "Deployment"]
    for obj in rendered:
        if obj["kind"] in ("Service", "PodDisruptionBudget"):
            selector = obj["spec"]["selector"].get("matchLabels", obj["spec"]["selector"])
            assert sum(selector.items() <= of_pod.items() for of_pod in labels) == 1


def test_the_processes_take_the_arguments(rendered: list[dict[str, Any]]):
    specs = get_pods(rendered)
    asked = webhook.settings.parse(specs["webhook"]["containers"][0]["args"])
    assert asked.port == 9443
    if asked.own is None:
        assert (asked.cert_file, asked.key_file) == (Path("/etc/topogate/cert/tls.crt"), Path("/etc/topogate/cert/tls.key"))
        assert [volume["name"] for volume in specs["webhook"]["volumes"]] == ["cert"]
    else:
        assert "volumes" not in specs["webhook"], "the Secret is read through the API"
    # The file is in a ConfigMap, which is nowhere to be read from here.
    arguments = [word for word in specs["reconciler"]["containers"][0]["args"] if not word.startswith("--config=")]
    assert reconciler.settings.parse(arguments).namespace == "topogate-system"


def test_chart_ports_and_probes_match_the_process_arguments(rendered: list[dict[str, Any]]):
    specs = get_pods(rendered)
    arguments = [word for word in specs["reconciler"]["containers"][0]["args"] if not word.startswith("--config=")]
    asked = webhook.settings.parse(specs["webhook"]["containers"][0]["args"])
    for name, metrics_port in (("reconciler", reconciler.settings.parse(arguments).metrics_port), ("webhook", asked.metrics_port)):
        (container,) = specs[name]["containers"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert ports["metrics"] == metrics_port
        probed = {probe: container[probe]["httpGet"] for probe in ("readinessProbe", "livenessProbe")}
        assert {probe: http["path"] for probe, http in probed.items()} == {"readinessProbe": "/readyz", "livenessProbe": "/healthz"}
        assert all(http["port"] == "health" and http.get("scheme", "HTTP") == "HTTP" for http in probed.values())
        service = find_one(rendered, "Service", f"-{name}-metrics")
        assert [port["targetPort"] for port in service["spec"]["ports"]] == ["metrics"]
        health_port = asked.health_port if name == "webhook" else reconciler.settings.parse(arguments).health_port
        assert ports["health"] == health_port
    for policy in (obj for obj in rendered if obj["kind"] == "NetworkPolicy"):
        (container,) = specs[policy["metadata"]["labels"]["app.kubernetes.io/component"]]["containers"]
        let_in = {port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]}
        assert let_in == {port["containerPort"] for port in container["ports"]}


def test_telemetry_values_of_the_chart_reach_both_processes_including_zero(tmp_path: Path):
    collector = {"otlpEndpoint": "http://collector:4317", "otlpProtocol": "grpc", "traceRatio": 0, "traceSlowSeconds": 0}
    told = ["--otlp-endpoint=http://collector:4317", "--otlp-protocol=grpc", "--trace-ratio=0", "--trace-slow=0"]
    for values, expected in (({"telemetry": collector}, told), ({}, []), ({"telemetry": dict.fromkeys(collector)}, [])):
        for spec in get_pods(render(tmp_path, values)).values():
            arguments = [word for word in spec["containers"][0]["args"] if word.startswith(("--otlp-", "--trace-"))]
            assert sorted(arguments) == expected


def test_a_port_of_zero_is_served_nowhere(tmp_path: Path):
    objects = render(tmp_path, {"webhook": {"metricsPort": 0, "healthPort": 0}, "reconciler": {"metricsPort": 0}})
    (of_webhook,) = get_pods(objects)["webhook"]["containers"]
    assert [port["name"] for port in of_webhook["ports"]] == ["https"]
    probed = [of_webhook[probe]["httpGet"] for probe in ("readinessProbe", "livenessProbe")]
    assert [(http["port"], http["scheme"]) for http in probed] == [("https", "HTTPS")] * 2
    assert [obj["metadata"]["name"] for obj in objects if obj["kind"] == "Service"] == ["topogate-webhook"]
    for spec in get_pods(objects).values():
        assert "--metrics-port=0" in spec["containers"][0]["args"]
        assert "metrics" not in [port["name"] for port in spec["containers"][0]["ports"]]


def test_a_configuration_is_one_that_the_reconciler_reads(tmp_path: Path):
    text = find_one(render(tmp_path, VALUE_SETS["everything"]), "ConfigMap", "-reconciler")["data"]["config.yaml"]
    (tmp_path / "config.yaml").write_text(text)
    read = reconciler.settings.parse([f"--config={tmp_path / 'config.yaml'}"])
    assert read.pods_ready is not None


def test_webhooks_policies_and_conversion_are_the_registrations_own(tmp_path: Path):
    objects = render(tmp_path, PROVIDED)
    for wanted in build_configurations("Q0E=", SERVICE):
        found = find_one(objects, wanted["kind"])
        assert (found["metadata"]["name"], found["webhooks"]) == (wanted["metadata"]["name"], wanted["webhooks"])
    for wanted in list_policies(KINDS):
        found = find_one(objects, wanted["kind"], wanted["metadata"]["name"])
        assert found["spec"] == wanted["spec"]
    for path in CRD_DIR.glob("*.yaml"):
        crd = yaml.safe_load(path.read_text())
        if crd["spec"]["conversion"]["strategy"] == "Webhook":
            crd["spec"]["conversion"] = build_conversion("Q0E=", SERVICE)
        assert find_one(objects, "CustomResourceDefinition", crd["metadata"]["name"])["spec"] == crd["spec"]


def test_rights_are_those_of_the_code(tmp_path: Path):
    objects = render(tmp_path, PROVIDED)
    assert list_granted(find_one(objects, "ClusterRole", "-reconciler")["rules"]) == rbac.list_cluster_rights() | rbac.list_owner_rights()
    assert list_granted(find_one(objects, "ClusterRole", "-webhook")["rules"]) == read_webhook_rights()
    without = render(tmp_path, {"rbac": {"ownerFinalizers": False}})
    assert list_granted(find_one(without, "ClusterRole", "-reconciler")["rules"]) == rbac.list_cluster_rights()
    assert find_one(objects, "Role")["rules"] == [*rbac.list_namespace_rights(), *rbac.list_pause_rights()], "no Secrets here"
    alone = render(tmp_path, PROVIDED | {"reconciler": {"replicas": 1, "leaderElection": False, "podDisruptionBudget": {"enabled": False}}})
    assert find_one(alone, "Role")["rules"] == rbac.list_pause_rights()


def read_webhook_rights() -> set[tuple[str, str, str]]:
    return list_granted(yaml.safe_load((CHART / "files" / "rights" / "webhook.yaml").read_text()))


def test_values_are_laid_over_the_webhooks(tmp_path: Path):
    condition = {"name": "not-mine", "expression": "request.userInfo.username != 'me'"}
    values = {
        "failurePolicy": "Ignore",
        "timeoutSeconds": 5,
        "excludeNamespaces": ["infra"],
        "objectSelector": {"matchLabels": {"a": "b"}},
        "matchConditions": [condition],
        "kinds": {"Deployment": {"enabled": False}, "Job": {"failurePolicy": "Fail"}},
    }
    objects = render(tmp_path, {"webhooks": values, "mutatingWebhook": {"reinvocationPolicy": "IfNeeded"}})
    for kind, reinvocation in zip(HOOKS, ("IfNeeded", None), strict=True):
        configuration = find_one(objects, kind)
        for hook in configuration["webhooks"]:
            assert "deployment" not in hook["name"]
            assert hook["failurePolicy"] == ("Fail" if re.match("[mv]job[.]", hook["name"]) else "Ignore")
            assert hook["timeoutSeconds"] == 5
            excluded = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["infra"]}
            assert excluded in hook["namespaceSelector"]["matchExpressions"]
            of_object = not hook["name"].startswith("vscale.")
            assert (hook.get("objectSelector", {}).get("matchLabels") == {"a": "b"}) == of_object
            assert (hook["matchConditions"][-1] == condition) == of_object
            assert hook.get("reinvocationPolicy") == reinvocation


def test_a_ca_that_another_writes_is_not_rendered_so_that_an_upgrade_leaves_it(tmp_path: Path):
    injected = {"cert-manager.io/inject-ca-from": "topogate-system/topogate-webhook"}
    for values, expected in (({}, None), (CERT_MANAGER, injected)):
        objects = render(tmp_path, values)
        configs = []
        for kind in HOOKS:
            assert find_one(objects, kind)["metadata"].get("annotations") == expected
            configs += [hook["clientConfig"] for hook in find_one(objects, kind)["webhooks"]]
        for crd in (obj for obj in objects if obj["kind"] == "CustomResourceDefinition"):
            if (conversion := crd["spec"]["conversion"])["strategy"] == "Webhook":
                configs.append(conversion["webhook"]["clientConfig"])
                assert (expected or {}).items() <= crd["metadata"]["annotations"].items()
        assert len(configs) > 50
        assert all(set(config) == {"service"} for config in configs)


def get_target(objects: list[dict[str, Any]]) -> CertificateTarget:
    own = webhook.settings.parse(get_pods(objects)["webhook"]["containers"][0]["args"]).own
    assert own is not None
    return own


def test_own_certificate_of_the_chart_is_for_the_service_and_published_to_each_configuration(tmp_path: Path):
    objects = render(tmp_path, {"kubernetesClusterDomain": "cluster.example"}, release="7.odd", namespace="0-system")
    own, service = get_target(objects), find_one(objects, "Service", "-webhook")["metadata"]
    assert (own.namespace, own.secret) == ("0-system", f"{service['name']}-certs")
    assert own.names == (f"{service['name']}.0-system.svc", f"{service['name']}.0-system.svc.cluster.example")
    words = {KINDS_OF_CONFIGURATION[word].kind: word for word in KINDS_OF_CONFIGURATION}
    asking = [obj for obj in objects if obj["kind"] in words and f"'name': '{service['name']}'" in str(obj)]
    assert len(asking) > len(HOOKS)
    assert {str(one) for one in own.configurations} == {f"{words[obj['kind']]}/{obj['metadata']['name']}" for obj in asking}


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"crds": {"install": False}}, ["mutating", "validating"]),
        ({"webhooks": {"enabled": False}, "certs": {"configurations": ["mutating/mine", "crd/widgets.example.com"]}}, ["crd", "mutating"]),
        ({"webhooks": {"enabled": False}}, ["crd"]),
    ],
    ids=["CRDs of another", "webhooks of another", "no webhooks"],
)
def test_webhook_rights_on_certificates_are_limited_by_resource_name(tmp_path: Path, values: dict[str, Any], told: list[str]):
    objects = render(tmp_path, values)
    own = get_target(objects)
    assert sorted({one.kind for one in own.configurations}) == told
    by_name = [rule for rule in find_one(objects, "ClusterRole", "-webhook")["rules"] if "patch" in rule["verbs"]]
    may = {(plural, name) for rule in by_name for plural in rule["resources"] for name in rule["resourceNames"]}
    assert may == {(KINDS_OF_CONFIGURATION[one.kind].plural, one.name) for one in own.configurations}
    assert list_granted(by_name) == {right for kind in told for right in rights_on(KINDS_OF_CONFIGURATION[kind], "get", "patch")}
    rules = find_one(objects, "Role", "-webhook")["rules"]
    assert list_granted(rules) == rights_on(SECRETS, "get", "update", "create")
    assert [rule.get("resourceNames") for rule in rules] == [[own.secret], None]
    assert rules[1]["verbs"] == ["create"]


@pytest.mark.parametrize(("values", "serves_old"), [({}, False), ({"crds": {"servesOldVersions": True}}, True)])
def test_old_version_is_served_only_on_demand_and_crds_stay(tmp_path: Path, values: dict[str, Any], *, serves_old: bool):
    crds = [obj for obj in render(tmp_path, values) if obj["kind"] == "CustomResourceDefinition"]
    assert {crd["spec"]["conversion"]["strategy"] for crd in crds} == {"None", "Webhook"}
    for crd in crds:
        served = [OWN_VERSION] if crd["spec"]["group"] == OWN_GROUP else [VERSION, OLD_VERSION] if serves_old else [VERSION]
        assert [version["name"] for version in crd["spec"]["versions"] if version["served"]] == served
        assert crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_kueue_values_of_the_chart_have_the_same_effect(tmp_path: Path):
    objects = render(tmp_path, VALUE_SETS["peer"])
    assert not [obj for obj in objects if obj["kind"] == "PodDisruptionBudget"]
    assert [obj["spec"]["replicas"] for obj in objects if obj["kind"] == "Deployment"] == [3, 3]
    assert all(obj["spec"]["strategy"] == {"type": "Recreate"} for obj in objects if obj["kind"] == "Deployment")
    for spec in get_pods(objects).values():
        assert spec["containers"][0]["image"] == "mirror/topogate:v9"
        assert "priorityClassName" not in spec
    assert "TASBalancedPlacement" in GATES
    assert "--feature-gates=TASBalancedPlacement=true" in get_pods(objects)["reconciler"]["containers"][0]["args"]


def test_webhook_gets_the_gates_and_the_longest_time_that_it_judges_jobs_by(tmp_path: Path):
    gates = dict.fromkeys(OF_THE_WEBHOOK, True)
    mapping = {"name": "example.com/gpus", "deviceClassNames": ["gpu.example.com"]}
    config = {"waitForPodsReady": {"maxTimeoutOnWorkload": "3h"}, "resources": {"deviceClassMappings": [mapping]}}
    (container,) = get_pods(render(tmp_path, {"reconciler": {"featureGates": gates}, "config": config}))["webhook"]["containers"]
    settings = webhook.settings.parse(container["args"], environ={})
    assert settings.gates.values == gates
    assert settings.most_ready_s == 10800.0


@pytest.mark.parametrize(
    ("mappings", "gates", "is_on"),
    [
        ([{"name": "example.com/gpus", "deviceClassNames": ["gpu.example.com"]}], {}, True),
        ([{"name": "example.com/gpus", "deviceClassNames": ["gpu.example.com"]}], {DEVICES: False}, False),
        ([{"name": "example.com/gpus", "deviceClassNames": ["gpu.example.com"], "sources": []}], {}, False),
        ([{"name": "example.com/gpus", "deviceClassNames": ["gpu.example.com"], "sources": None}], {}, True),
        ([], {DEVICES: True}, False),
        (None, {}, False),
    ],
)
def test_webhook_accepts_claims_just_where_the_reconciler_counts_their_devices(
    tmp_path: Path, mappings: list[dict[str, Any]] | None, gates: dict[str, bool], *, is_on: bool
):
    config = {"resources": {"deviceClassMappings": mappings}} if mappings is not None else {}
    objects = render(tmp_path, {"config": config, "reconciler": {"featureGates": gates}})
    (container,) = get_pods(objects)["webhook"]["containers"]
    assert webhook.settings.parse(container["args"], environ={}).gates.values.get(DEVICES, False) is is_on
    (*files,) = (obj for obj in objects if obj["kind"] == "ConfigMap" and obj["metadata"]["name"].endswith("-reconciler"))
    path = tmp_path / "config.yaml"
    path.write_text(files[0]["data"]["config.yaml"] if files else "")
    arguments = get_pods(objects)["reconciler"]["containers"][0]["args"]
    here = [f"--config={path}" if word.startswith("--config=") else word for word in arguments]
    assert bool(reconciler.settings.parse(here, environ={}).resources.device_classes) is is_on


@pytest.mark.parametrize("gate", [POD_GROUPS, PARTIAL_SLICES, GROUPED_SLICES])
@pytest.mark.parametrize(
    ("values", "is_on"),
    [
        (lambda gate: {}, False),
        (lambda gate: {"reconciler": {"featureGates": {"TASBalancedPlacement": True}}}, False),
        (lambda gate: {"reconciler": {"featureGates": {gate: True}}}, True),
        (lambda gate: {"controllerManager": {"featureGates": [{"name": gate, "enabled": True}]}}, True),
        (lambda gate: {"config": {"featureGates": {gate: True}}}, True),
        (lambda gate: {"managerConfig": {"controllerManagerConfigYaml": f"{CONFIGURATION}featureGates:\n  {gate}: true\n"}}, True),
        (lambda gate: {"config": {"featureGates": {gate: True}}, "reconciler": {"featureGates": {gate: False}}}, False),
    ],
)
def test_the_webhook_lets_jobs_ask_for_a_group_or_uneven_slices_just_where_the_reconciler_serves_that(
    tmp_path: Path, gate: str, values: Callable[[str], dict[str, Any]], *, is_on: bool
):
    objects = render(tmp_path, values(gate))
    arguments = {part: spec["containers"][0]["args"] for part, spec in get_pods(objects).items()}
    assert webhook.settings.parse(arguments["webhook"], environ={}).gates.is_on(gate) is is_on
    (*files,) = (obj for obj in objects if obj["kind"] == "ConfigMap" and obj["metadata"]["name"].endswith("-reconciler"))
    text = files[0]["data"]["config.yaml"] if files else ""
    path = tmp_path / "config.yaml"
    path.write_text(text)
    here = [f"--config={path}" if word.startswith("--config=") else word for word in arguments["reconciler"]]
    assert reconciler.settings.parse(here, environ={}).gates.is_on(gate) is is_on


@pytest.mark.parametrize(
    ("namespace", "release"),
    mark_long(product(["default", "n" * 63, "0-system"], ["topogate", "a", "7.odd.name", "x" * 53, "my-topogate-2"]), but={0, 6, 8, 12}),
)
def test_odd_names_work(tmp_path: Path, namespace: str, release: str):
    objects = render(tmp_path, VALUE_SETS["everything"], release=release, namespace=namespace)
    for obj in objects:
        name, labels = obj["metadata"]["name"], obj["metadata"]["labels"]
        if obj["kind"] in ("Service", "Deployment"):
            assert re.fullmatch("[a-z]([-a-z0-9]{0,61}[a-z0-9])?", name)
        assert all(re.fullmatch("([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?", value) for value in labels.values())
    service = find_one(objects, "Service", "-webhook")["metadata"]
    for kind in HOOKS:
        for hook in find_one(objects, kind)["webhooks"]:
            where = hook["clientConfig"]["service"]
            assert (where["name"], where["namespace"]) == (service["name"], namespace)
    assert get_target(objects).names[0] == f"{service['name']}.{namespace}.svc"
    certificate = find_one(render(tmp_path, CERT_MANAGER, release=release, namespace=namespace), "Certificate", "-webhook")
    assert tuple(certificate["spec"]["dnsNames"]) == get_target(objects).names


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"webhok": {}}, "webhok"),
        ({"webhook": {"replica": 3}}, "replica"),
        ({"webhook": {"replicas": "three"}}, "replicas"),
        ({"webhooks": {"kinds": {"Jobb": {}}}}, "Jobb"),
        ({"webhooks": {"failurePolicy": "Maybe"}}, "failurePolicy"),
        ({"webhooks": {"timeoutSeconds": 31}}, "timeoutSeconds"),
        ({"controllerManager": {"manager": {"logLevel": 2}}}, "logLevel"),
        ({"crds": {"keeps": True}}, "keeps"),
        ({"logLevel": "TRACE"}, "logLevel"),
        ({"telemetry": {"traceRatio": 2}}, "traceRatio"),
        ({"telemetry": {"traceRatio": "most"}}, "traceRatio"),
        ({"telemetry": {"traceSlowSeconds": -1}}, "traceSlowSeconds"),
        ({"telemetry": {"otlpProtocol": "http/json"}}, "otlpProtocol"),
        ({"crds": {"install": False}, "webhooks": {"enabled": False}}, "nobody would be told of the CA"),
        ({"certs": {**PROVIDED["certs"], "configurations": ["crd/x"]}}, "certs.configurations: only with certs.mode: own"),
        ({"certs": {"configurations": ["deployment/x"]}}, "/certs/configurations/0"),
        ({"certs": {"mode": "provided"}}, "needs both certs.existingSecret and certs.caBundle"),
        ({"enablePrometheus": True, "webhook": {"metricsPort": 0}, "reconciler": {"metricsPort": 0}}, "there is nothing to scrape"),
        ({"reconciler": {"metricsPort": 80}}, "metricsPort"),
        ({"reconciler": {"healthPort": 0}}, "healthPort"),
        ({"reconciler": {"healthPort": 8080}}, "must be two ports"),
        ({"webhook": {"healthPort": 8080}}, "must be two ports"),
        ({"serviceMonitor": {"interval": "soon"}}, "interval"),
        ({"reconciler": {"leaderElection": False}}, "only with reconciler.replicas: 1"),
        ({"webhook": {"podDisruptionBudget": {"minAvailable": 2}}}, "webhook.podDisruptionBudget.minAvailable"),
        ({"webhooks": {"kinds": {"Jobb": {"enabled": False}}}}, "at '/webhooks/kinds': additional properties 'Jobb' not allowed"),
        ({"webhooks": {"matchConditions": [CONDITION, CONDITION]}}, "webhooks.matchConditions: the name"),
        ({"webhooks": {"matchConditions": [{**CONDITION, "name": "is-not-being-deleted"}]}}, "webhooks.matchConditions: the name"),
        ({"config": {"namespace": "a"}, "managerConfig": {"controllerManagerConfigYaml": "b: 1"}}, "only one of both"),
        ({"config": {"waitForPodsReady": {"timeOut": "5m"}}}, "additional properties 'timeOut' not allowed"),
        ({"config": {"fairSharin": {}}}, "additional properties 'fairSharin' not allowed"),
        ({"reconciler": {"featureGates": {"TASBalanced": True}}}, "invalid propertyName 'TASBalanced'"),
    ],
)
def test_invalid_chart_values_are_refused_with_the_mistake(tmp_path: Path, values: dict[str, Any], said: str):
    with pytest.raises(Refused, match=re.escape(said)):
        render(tmp_path, values)


def test_no_value_is_unknown_to_the_schema_and_the_other_way_round():
    """A value without a comment and a default is one that nobody finds."""
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())
    assert set(values) == set(schema["properties"]) - {"global"}


@pytest.mark.parametrize(
    "path", [("webhooks",), ("webhooks", "enabled"), ("policies", "enabled"), ("webhooks", "objectSelector"), ("webhooks", "kinds")]
)
def test_null_for_value_with_default_is_refused(tmp_path: Path, path: tuple[str, ...]):
    """Helm takes the default away: with `policies.enabled: null` there were no policies."""
    values: Any = None
    for key in reversed(path):
        values = {key: values}
    with pytest.raises(Refused, match=path[-1]):
        render(tmp_path, PROVIDED | values)


def test_object_selector_leaves_guard_of_scale_on(tmp_path: Path):
    """A Scale has not the labels of its object, so that a selector would match none."""
    values = {"objectSelector": {"matchLabels": {"b": "c"}}, "matchConditions": [CONDITION]}
    hooks = find_one(render(tmp_path, PROVIDED | {"webhooks": values}), "ValidatingWebhookConfiguration")["webhooks"]
    scale = [hook for hook in hooks if hook["name"].startswith("vscale.")]
    assert len(scale) == 2
    assert all("objectSelector" not in hook and CONDITION not in hook["matchConditions"] for hook in scale)


def test_policy_of_no_kind_is_not_rendered(tmp_path: Path):
    """An API server refuses a policy without rules, and with it the release."""
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())
    kinds = schema["properties"]["webhooks"]["properties"]["kinds"]["properties"]
    objects = render(tmp_path, PROVIDED | {"webhooks": {"kinds": {kind: {"enabled": False} for kind in kinds}}})
    made = [obj for obj in objects if obj["kind"] == "ValidatingAdmissionPolicy"]
    assert all(obj["spec"]["matchConstraints"]["resourceRules"] for obj in made)
    bound = {obj["spec"]["policyName"] for obj in objects if obj["kind"] == "ValidatingAdmissionPolicyBinding"}
    assert bound == {obj["metadata"]["name"] for obj in made}


def test_policies_have_selectors_and_kinds_of_webhooks(tmp_path: Path):
    """Former defect: a JobSet that no webhook was asked about could not be unsuspended by its user."""
    selector = {"matchLabels": {"team": "x"}, "matchExpressions": [{"key": "a", "operator": "Exists"}]}
    condition = {"name": "not-mine", "expression": "request.userInfo.username != 'me'"}
    kinds = {"JobSet": {"enabled": False}, "Job": {"enabled": False}}
    values = {
        "excludeNamespaces": ["legacy"],
        "namespaceSelector": selector,
        "objectSelector": {"matchLabels": {"b": "c"}},
        "matchConditions": [condition],
        "kinds": kinds,
    }
    objects = render(tmp_path, PROVIDED | {"webhooks": values})
    made = {obj["metadata"]["name"]: obj["spec"] for obj in objects if obj["kind"] == "ValidatingAdmissionPolicy"}
    assert {"topogate-unsuspend-jobsets", "topogate-gated-jobs"} & made.keys() == set()
    assert "topogate-parts-jobsets" in made, "a part of a TrainJob"
    excluded = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["legacy"]}
    for name, spec in made.items():
        found = spec["matchConstraints"].get("namespaceSelector")
        if name == "topogate-reconciler":
            assert found is None
            continue
        assert found["matchLabels"] == {"team": "x"}
        assert all(expression in found["matchExpressions"] for expression in (excluded, *selector["matchExpressions"]))
        of_queued = name.startswith(("topogate-unsuspend-", "topogate-gated-")) or name == "topogate-queues"
        assert (condition in spec.get("matchConditions", ())) == of_queued
        assert (spec["matchConstraints"].get("objectSelector") == {"matchLabels": {"b": "c"}}) == of_queued
    queues = made["topogate-queues"]["matchConstraints"]["resourceRules"]
    assert not {"jobs", "jobsets"} & {plural for rule in queues for plural in rule["resources"]}
    bound = {obj["spec"]["policyName"] for obj in objects if obj["kind"] == "ValidatingAdmissionPolicyBinding"}
    assert bound == set(made)


def test_policy_of_reconciler_names_account_of_release(tmp_path: Path):
    for values, name in (({}, "topogate-reconciler"), ({"reconciler": {"serviceAccount": {"name": "mine"}}}, "mine")):
        spec = find_one(render(tmp_path, PROVIDED | values), "ValidatingAdmissionPolicy", "topogate-reconciler")["spec"]
        assert spec["matchConditions"][0]["expression"] == f"request.userInfo.username == 'system:serviceaccount:topogate-system:{name}'"


def test_ca_of_clients_is_mounted_and_needs_no_conversion(tmp_path: Path):
    for more in ({}, PROVIDED):
        values = more | {"webhook": {"clientCASecret": "api-servers"}}
        spec = get_pods(render(tmp_path, values))["webhook"]
        (container,) = spec["containers"]
        assert "--client-ca-file=/etc/topogate/client-ca/ca.crt" in container["args"]
        assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in spec["volumes"]}
    with pytest.raises(Refused, match=r"webhook\.clientCASecret: needs crds\.servesOldVersions: false"):
        render(tmp_path, {"webhook": {"clientCASecret": "api-servers"}, "crds": {"servesOldVersions": True}})


@pytest.mark.parametrize(
    ("values", "budgets"),
    [
        ({}, 2),
        ({"webhook": {"replicas": 1}}, 1),
        ({"webhook": {"replicas": 1, "podDisruptionBudget": {"maxUnavailable": 1}}}, 2),
    ],
)
def test_one_replica_has_no_budget_that_keeps_its_node_from_being_drained(tmp_path: Path, values: dict[str, Any], budgets: int):
    found = [obj for obj in render(tmp_path, values) if obj["kind"] == "PodDisruptionBudget"]
    assert len(found) == budgets

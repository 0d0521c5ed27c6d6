"""The visibility API in the chart: all of it by one value, and none of it without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import reconciler.settings
from reconciler import rbac
from tests.chart.helm import Refused, find_one, render
from tests.chart.test_generated import list_granted
from tests.chart.test_rendered import CERT_MANAGER, PROVIDED, get_pods, get_target

pytestmark = pytest.mark.cluster  # Helm may have to be built

ON = {"visibility": {"enabled": True}}
API_SERVICE = "v1beta2.visibility.kueue.x-k8s.io"


def test_visibility_api_is_off_unless_a_value_enables_it(tmp_path: Path):
    objects = render(tmp_path)
    about = [obj["metadata"]["name"] for obj in objects if "visibility" in str(obj) and obj["kind"] != "CustomResourceDefinition"]
    assert set(about) == {"topogate-batch-admin", "topogate-batch-user"}  # roles with rights that mean nothing without it
    assert not [word for word in get_pods(objects)["reconciler"]["containers"][0]["args"] if "visibility" in word]


@pytest.mark.parametrize(
    ("values", "bundle", "annotations", "secret"),
    [
        ({}, None, None, "topogate-webhook-certs"),
        (CERT_MANAGER, None, {"cert-manager.io/inject-ca-from": "topogate-system/topogate-webhook"}, "topogate-webhook-cert"),
        (PROVIDED, "Q0E=", None, "mine"),
    ],
    ids=["own", "cert-manager", "provided"],
)
def test_visibility_api_is_registered_with_the_ca_of_each_mode(
    tmp_path: Path, values: dict[str, Any], bundle: str | None, annotations: Any, secret: str
):
    objects = render(tmp_path, values | ON)
    registered, service = find_one(objects, "APIService"), find_one(objects, "Service", "-visibility")
    assert (registered["metadata"]["name"], registered["metadata"].get("annotations")) == (API_SERVICE, annotations)
    spec = registered["spec"]
    assert spec.get("caBundle") == bundle
    port = service["spec"]["ports"][0]
    assert spec["service"] == {"namespace": "topogate-system", "name": service["metadata"]["name"], "port": port["port"]}
    assert "insecureSkipTLSVerify" not in spec
    (container,), (volume,) = (get_pods(objects)["reconciler"][part] for part in ("containers", "volumes"))
    settings = reconciler.settings.parse(container["args"]).visibility
    assert settings is not None
    assert {each["name"]: each["containerPort"] for each in container["ports"]}[port["targetPort"]] == settings.port
    assert volume["secret"]["secretName"] == secret
    assert [item["path"] for item in volume["secret"]["items"]] == ["tls.crt", "tls.key"], "not the key of the CA"
    assert {str(settings.cert_file.parent)} == {mount["mountPath"] for mount in container["volumeMounts"]}


def test_certificate_of_the_visibility_api_is_kept_by_the_webhook(tmp_path: Path):
    objects = render(tmp_path, ON, release="7.odd", namespace="0-system")
    own, service = get_target(objects), find_one(objects, "Service", "-visibility")["metadata"]
    assert f"{service['name']}.0-system.svc" in own.names[1:], "readiness is judged by the first"
    assert f"apiservice/{API_SERVICE}" in map(str, own.configurations)
    rules = find_one(objects, "ClusterRole", "-webhook")["rules"]
    (of_api_services,) = (rule for rule in rules if rule["apiGroups"] == ["apiregistration.k8s.io"])
    assert (of_api_services["resourceNames"], sorted(of_api_services["verbs"])) == ([API_SERVICE], ["get", "patch"])


def test_rights_of_the_visibility_api_are_those_of_the_code(tmp_path: Path):
    objects = render(tmp_path, ON)
    granted = list_granted(find_one(objects, "ClusterRole", "-reconciler")["rules"])
    assert granted - rbac.list_cluster_rights() - rbac.list_owner_rights() == list_granted(rbac.list_visibility_rights())
    role, binding = find_one(objects, "Role", "-front-proxy"), find_one(objects, "RoleBinding", "-front-proxy")
    assert role["metadata"]["namespace"] == binding["metadata"]["namespace"] == "kube-system"
    assert role["rules"] == rbac.list_front_proxy_rights()
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert [subject["name"] for subject in binding["subjects"]] == ["topogate-reconciler"]
    for kind in ("cq", "lq"):
        viewer = find_one(objects, "ClusterRole", f"-pending-workloads-{kind}-viewer-role")
        assert viewer["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"] == "true"


def test_port_of_the_visibility_api_that_is_in_use_is_refused(tmp_path: Path):
    with pytest.raises(Refused, match=r"visibility\.port"):
        render(tmp_path, {"visibility": {"enabled": True, "port": 8081}})

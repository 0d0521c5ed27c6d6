"""Which operators there are, how they are found and built, and what of their manifests is installed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from core.jobs.kinds.registry import KINDS
from e2e.operators.build import change_source, find_key
from e2e.operators.catalogue import HOST, OPERATORS, Change, Operator, Part, Place, UnknownOperator, find_operators
from e2e.operators.kueue import KUEUE
from e2e.operators.running import prepare
from e2e.progress import CommandFailed

Obj = dict[str, Any]
JOBSET = next(operator for operator in OPERATORS if operator.name == "jobset")
PLACE = Place(Path("/somewhere"), f"https://{HOST}:4", 1, 2, 3)


def test_operators_are_found_each_after_those_that_it_needs():
    assert [operator.name for operator in find_operators(["trainer", "appwrapper", "jobset"])] == [
        "jobset",
        "trainer",
        "training-operator",
        "appwrapper",
    ]


def test_operator_of_an_unknown_name_is_refused_with_those_that_there_are():
    with pytest.raises(UnknownOperator) as refused:
        find_operators(["jobset", "volcano"])
    assert str(refused.value).startswith("there is no operator 'volcano'; there are jobset, lws, ")


def test_every_kind_that_is_made_by_an_operator_has_one():
    of_kubernetes = {"Job", "Pod", "StatefulSet", "Deployment"}
    made = {kind for operator in OPERATORS for kind in operator.kinds}
    assert {kind.kind for kind in KINDS} - of_kubernetes - made == set()


@pytest.mark.parametrize("operator", [*OPERATORS, KUEUE], ids=lambda operator: operator.name)
def test_operator_listens_on_this_machine_alone(operator: Operator):
    """An address with a port and no host would be open to the network."""
    configuration = operator.configuration(PLACE) if operator.configuration is not None else {}
    shown = f"{operator.arguments(PLACE)} {dict(operator.environment(PLACE))} {configuration} {operator.objects(PLACE)}"
    for port in (PLACE.health, PLACE.metrics):
        assert f"=:{port}" not in shown
        assert f'":{port}' not in shown
    assert f"{HOST}:{PLACE.health}" in shown


@pytest.mark.parametrize(
    "changed",
    [
        {"version": "v9"},
        {"checksum": "h1:x"},
        {"package": "./x"},
        {"manifests": ("x",)},
        {"changes": (Change("a", "b", "c"),)},
        {"tags": "x"},
        {"parts": (Part("a", "b", "c", "d"),)},
    ],
)
def test_key_of_an_operator_with_another_source_is_another(changed: Obj):
    assert find_key(replace(JOBSET, **changed)) != find_key(JOBSET)


def test_change_of_a_text_that_is_there_once_is_made(tmp_path: Path):
    (tmp_path / "main.go").write_text("one two")
    change_source(replace(JOBSET, changes=(Change("main.go", "two", "three"), Change("main.go", "one", "1"))), tmp_path)
    assert (tmp_path / "main.go").read_text() == "1 three"


@pytest.mark.parametrize("text", ["no", "two two"])
def test_change_of_a_text_that_is_not_there_once_is_refused(tmp_path: Path, text: str):
    (tmp_path / "main.go").write_text(text)
    with pytest.raises(CommandFailed, match=r"main\.go of sigs\.k8s\.io/jobset v0\.12\.0 has 'two' "):
        change_source(replace(JOBSET, changes=(Change("main.go", "two", "three"),)), tmp_path)


def test_manifests_are_installed_in_the_namespace_of_the_operator_with_webhooks_of_this_machine():
    subject = {"kind": "ServiceAccount", "name": "a", "namespace": "default"}
    service = {"service": {"name": "s", "namespace": "n", "path": "/validate"}}
    manifests: list[Obj] = [
        {"kind": "Namespace", "metadata": {"name": "theirs"}},
        {"kind": "ServiceAccount", "metadata": {"name": "a", "namespace": "default"}},
        {"kind": "ClusterRoleBinding", "metadata": {"name": "b"}, "subjects": [subject, {"kind": "Group", "name": "g"}]},
        {"kind": "ValidatingWebhookConfiguration", "metadata": {"name": "w"}, "webhooks": [{"name": "v", "clientConfig": service}]},
        {"kind": "CustomResourceDefinition", "metadata": {"name": "c"}, "spec": {"conversion": {"strategy": "Webhook"}}},
    ]
    namespace, account, binding, webhook, definition = prepare(manifests, JOBSET, "https://127.0.0.1:1", "bundle")
    assert namespace["metadata"]["name"] == "jobset-system"
    assert account["metadata"]["namespace"] == "jobset-system"
    assert [s.get("namespace") for s in binding["subjects"]] == ["jobset-system", None]
    assert webhook["webhooks"][0]["clientConfig"] == {"url": "https://127.0.0.1:1/validate", "caBundle": "bundle"}
    assert definition["spec"]["conversion"] == {"strategy": "None"}

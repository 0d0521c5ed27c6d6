"""The converter from models to structural schemas: what it collapses, what it refuses, and that the files are current."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Literal

import pytest
import yaml
from pydantic import Field

from core.api import schema
from core.api.kinds.crd import Crd, PrinterColumn
from core.api.kinds.marks import ATOMIC_LIST, RULES, Mark, add_rule, default_on_server
from core.api.kinds.meta import Int32, KubernetesObject, Quantity, Wire


class Part(Wire):
    """A part."""

    rules: ClassVar[tuple[Mark, ...]] = (add_rule("self.a != ''", "a must not be empty"),)

    a: str = ""
    """The a."""


class Thing(KubernetesObject):
    """A
    thing."""

    crd: ClassVar[Crd] = Crd("things", "Namespaced", ("th",), has_status=True, columns=(PrinterColumn("A", ".a", "string", "The a", 1),))

    part: Part | None = None
    """A part of it."""
    parts: Annotated[tuple[Part, ...], Field(max_length=3), ATOMIC_LIST] = ()
    named: Mapping[str, Part] = Field(default_factory=dict)
    kind_of: Literal["one"] = "one"
    amount: Annotated[Quantity, default_on_server(1)] | None = None
    number: Annotated[Int32, Field(ge=0)] | None = None
    both: Annotated[str, add_rule("self != 'x'", "not x"), add_rule("self != 'y'", "not y")] = ""
    required: bool


def test_generated_schema_files_match_the_models():
    assert schema.find_drift() == ""


def test_an_optional_model_becomes_that_model_with_the_fields_own_description():
    part = schema.build_schema(Thing)["properties"]["part"]
    assert part == {
        "type": "object",
        "description": "A part of it.",
        "properties": {"a": {"type": "string", "description": "The a."}},
        RULES: [{"rule": "self.a != ''", "message": "a must not be empty"}],
    }


def test_lists_maps_literals_quantities_and_formats_are_converted_to_openapi_types():
    properties = schema.build_schema(Thing)["properties"]
    assert properties["parts"]["items"]["description"] == "A part."
    assert properties["parts"] | {"items": None} == {"type": "array", "items": None, "maxItems": 3, "x-kubernetes-list-type": "atomic"}
    assert properties["named"]["additionalProperties"]["type"] == "object"
    assert properties["kindOf"] == {"type": "string", "enum": ["one"]}
    assert properties["amount"]["x-kubernetes-int-or-string"]
    assert properties["amount"]["anyOf"] == [{"type": "integer"}, {"type": "string"}]
    assert "type" not in properties["amount"]
    assert properties["number"] == {"type": "integer", "format": "int32", "minimum": 0}


def test_only_marked_defaults_reach_the_api_server():
    properties = schema.build_schema(Thing)["properties"]
    assert properties["amount"]["default"] == 1
    assert not any("default" in properties[name] for name in properties if name != "amount")


def test_several_rules_on_one_field_are_all_kept():
    rules = schema.build_schema(Thing)["properties"]["both"][RULES]
    assert [one["message"] for one in rules] == ["not x", "not y"]


def test_the_envelope_is_the_api_servers_and_required_fields_are_required():
    built = schema.build_schema(Thing)
    assert built["properties"]["metadata"] == {"type": "object"}
    assert built["required"] == ["required"]
    assert built["description"] == "A thing."


def test_a_union_is_refused_with_the_path_to_it():
    class Odd(KubernetesObject):
        parts: tuple[int | str, ...] = ()

    with pytest.raises(schema.NotStructural, match=r"Odd\.parts\[\] is a union of 2 types"):
        schema.build_schema(Odd)


def test_a_kind_that_does_not_say_how_it_is_offered_is_refused():
    class Bare(KubernetesObject):
        pass

    with pytest.raises(TypeError, match="Bare does not say how it is offered"):
        schema.build_crd("Bare", [schema.Version("v1", Bare, storage=True)])


def test_a_kind_may_have_several_versions():
    crd = schema.build_crd("Thing", [schema.Version("v1", Thing, storage=False), schema.Version("v2", Thing, storage=True)])
    assert [(v["name"], v["served"], v["storage"]) for v in crd["spec"]["versions"]] == [("v1", True, False), ("v2", True, True)]
    assert crd["spec"]["names"] == {"kind": "Thing", "listKind": "ThingList", "plural": "things", "singular": "thing", "shortNames": ["th"]}
    assert crd["spec"]["versions"][0]["additionalPrinterColumns"][0]["priority"] == 1


def test_drift_is_shown_as_a_difference_and_mended_by_write(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(schema, "CRD_DIR", tmp_path)
    schema.write_all(tmp_path)
    assert schema.find_drift(tmp_path) == ""
    changed = tmp_path / "kueue.x-k8s.io_topologies.yaml"
    changed.write_text(changed.read_text().replace("maxItems: 16", "maxItems: 8", 1))
    (tmp_path / "kueue.x-k8s.io_strangers.yaml").write_text("kind: Stranger\n")
    drift = schema.find_drift(tmp_path)
    assert "-                maxItems: 8" in drift
    assert "+                maxItems: 16" in drift
    assert "-kind: Stranger" in drift
    schema.write_all(tmp_path)
    assert schema.find_drift(tmp_path) == ""


def test_schema_command_with_drift_fails_and_prints_the_write_command(monkeypatch, capsys):
    assert schema.main(["--check"]) == 0
    monkeypatch.setattr(schema, "find_drift", lambda: "-a\n+b")
    assert schema.main(["--check"]) == 1
    assert "run: python -m core.api.schema --write" in capsys.readouterr().err


def find_unbounded_parts(node: Any, path: str = "") -> list[str]:
    """Lists without maxItems: CEL's cost estimate takes them for endless."""
    found: list[str] = []
    if isinstance(node, dict):
        if node.get("type") == "array" and "maxItems" not in node:
            found.append(path)
        for key, value in node.items():
            found += find_unbounded_parts(value, f"{path}.{key}")
    elif isinstance(node, list):
        for index, value in enumerate(node):
            found += find_unbounded_parts(value, f"{path}[{index}]")
    return found


def test_every_list_that_rules_may_walk_is_bounded():
    for crd in render_all():
        for version in crd["spec"]["versions"]:
            # A label selector is the API machinery's own type, which bounds nothing; no rule looks into it, nor into v1beta1's domains.
            unbounded = [path for path in find_unbounded_parts(version["schema"]) if "namespaceSelector" not in path]
            assert [path for path in unbounded if not path.endswith("topologyAssignment.properties.domains")] == []


@cache
def render_all() -> list[dict[str, Any]]:
    return [yaml.load(content, yaml.CSafeLoader) for content in schema.render_all().values()]


def list_specs(group: str) -> list[dict[str, Any]]:
    found = [crd["spec"] for crd in render_all()]
    return [spec for spec in found if spec["group"] == group]


def test_kinds_of_our_own_have_one_version():
    assert {spec["names"]["kind"]: [version["name"] for version in spec["versions"]] for spec in list_specs("topogate.dev")} == {
        "NodeTopology": ["v1alpha1"],
        "PodGroup": ["v1alpha1"],
    }


def test_v1beta2_of_every_kind_is_served_and_stored_and_v1beta1_is_not():
    for spec in list_specs("kueue.x-k8s.io"):
        served = {
            version["name"]: (version["served"], version["storage"], version.get("deprecated", False)) for version in spec["versions"]
        }
        assert served == {"v1beta2": (True, True, False), "v1beta1": (False, False, True)}
        by_webhook = spec["names"]["kind"] in {"ClusterQueue", "Cohort", "LocalQueue", "Workload"}
        assert spec["conversion"]["strategy"] == ("Webhook" if by_webhook else "None")


def find_differences(old: Any, new: Any, path: str = "") -> list[str]:
    """Names of fields that only one of two schemas has: `-` is the first's."""
    before, after = old.get("properties") or {}, new.get("properties") or {}
    found = [f"-{path}.{name}" for name in before if name not in after]
    found += [f"+{path}.{name}" for name in after if name not in before]
    for name in before.keys() & after.keys():
        found += find_differences(before[name], after[name], f"{path}.{name}")
    for key in ("items", "additionalProperties"):
        if isinstance(old.get(key), dict) and isinstance(new.get(key), dict):
            found += find_differences(old[key], new[key], f"{path}[]")
    return sorted(found)


ASSIGNMENT = ".status.admission.podSetAssignments[].topologyAssignment"
V1BETA1 = {
    "AdmissionCheck": ["-.spec.retryDelayMinutes"],
    "ClusterQueue": ["+.spec.cohortName", "-.spec.admissionChecks", "-.spec.cohort"],
    "LocalQueue": ["+.status.flavorsUsage", "-.status.flavorUsage"],
    "Workload": sorted(
        [
            *("+.spec.priorityClassRef", "-.spec.priorityClassName", "-.spec.priorityClassSource"),
            "+.spec.podSets[].topologyRequest.podsetSliceRequiredTopologyConstraints",
            *("+.status.accumulatedPastExecutionTimeSeconds", "-.status.accumulatedPastExexcutionTimeSeconds"),
            *(f"-{ASSIGNMENT}.domains", f"+{ASSIGNMENT}.slices"),
        ]
    ),
}


def test_v1beta1_differs_in_these_fields_only():
    found = {}
    for spec in list_specs("kueue.x-k8s.io"):
        schemas = {version["name"]: version["schema"]["openAPIV3Schema"] for version in spec["versions"]}
        found[spec["names"]["kind"]] = find_differences(schemas["v1beta1"], schemas["v1beta2"])
    assert {kind: names for kind, names in found.items() if names} == V1BETA1


KEPT = {
    "ClusterQueue": [("spec", "concurrentAdmissionPolicy"), ("status", "pendingWorkloadsStatus"), ("status", "effectiveQuotas")],
    "Cohort": [("status", "effectiveQuotas")],
    "LocalQueue": [("status", "flavors")],
}


@pytest.mark.parametrize("kind", KEPT)
def test_fields_of_kueue_without_effect_are_stored_in_both_versions(kind: str):
    """Former defect: the API server dropped them, though docs/migration.md calls the CRDs supersets of Kueue's."""
    (spec,) = [each for each in list_specs("kueue.x-k8s.io") if each["names"]["kind"] == kind]
    assert {version["name"] for version in spec["versions"]} == {"v1beta1", "v1beta2"}
    for version in spec["versions"]:
        for part, field in KEPT[kind]:
            schema = version["schema"]["openAPIV3Schema"]["properties"][part]["properties"][field]
            assert schema.get("items", schema)["x-kubernetes-preserve-unknown-fields"] is True


def test_columns_of_workloads_show_the_reason_and_with_wide_the_message():
    (spec,) = [each for each in list_specs("kueue.x-k8s.io") if each["names"]["kind"] == "Workload"]
    for version in spec["versions"]:
        columns = {column["name"]: (column["jsonPath"], column.get("priority", 0)) for column in version["additionalPrinterColumns"]}
        assert columns["Reason"] == (".status.conditions[?(@.type=='QuotaReserved')].reason", 0)
        assert columns["Message"] == (".status.conditions[?(@.type=='QuotaReserved')].message", 1)

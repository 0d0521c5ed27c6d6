"""v1beta1, the version that older manifests and clients speak: described by what differs from v1beta2, which is stored.

Each function below turns the v1beta2 entry of a kind's CRD into its v1beta1 entry. `core.api.convert` turns the objects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from core.api.kinds.marks import ATOMIC_LIST, RULES, SET_LIST, Mark, add_rule, merge
from core.api.kinds.meta import DNS_SUBDOMAIN, MAX_LEVELS, Int32, Int64, LevelLabel, NodeLabelValue, Wire
from core.api.kinds.quota_fields import CheckName
from core.names import OLD_API_VERSION, VERSION

Json = dict[str, Any]
Change = Callable[[Json], None]
# The schema of a model; `core.api.schema` brings it.
Builder = Callable[[type[Wire]], Json]

DEPRECATION = f"{OLD_API_VERSION} is deprecated; use {VERSION}, which says more"
POD_PRIORITY = "scheduling.k8s.io/priorityclass"
WORKLOAD_PRIORITY = "kueue.x-k8s.io/workloadpriorityclass"


class OldDomain(Wire):
    """One domain of the assignment."""

    values: Annotated[tuple[NodeLabelValue, ...], Field(min_length=1, max_length=MAX_LEVELS), ATOMIC_LIST]
    """The domain's value for each of the levels."""
    count: Annotated[Int32, Field(ge=1)]
    """How many pods it gets."""


class OldTopologyAssignment(Wire):
    """Which domain gets how many pods."""

    levels: Annotated[tuple[LevelLabel, ...], Field(min_length=1, max_length=MAX_LEVELS), ATOMIC_LIST]
    """The node labels that pods are given selectors for."""
    domains: Annotated[tuple[OldDomain, ...], ATOMIC_LIST]
    """The domains in the order of ranks."""


class PriorityFields(Wire):
    """What v1beta1 has instead of priorityClassRef."""

    rules: ClassVar[tuple[Mark, ...]] = (
        add_rule("!has(self.priorityClassName) || has(self.priority)", "priority must be set where priorityClassName is"),
    )

    priority_class_name: Annotated[str, Field(max_length=253, pattern=DNS_SUBDOMAIN)] | None = None
    """The name of the class that the priority comes from."""
    priority_class_source: Literal["kueue.x-k8s.io/workloadpriorityclass", "scheduling.k8s.io/priorityclass", ""] | None = None
    """Which kind of class that is."""


class CheckFields(Wire):
    """What v1beta1 has beside admissionChecksStrategy."""

    rules: ClassVar[tuple[Mark, ...]] = (
        add_rule(
            "!has(self.admissionChecks) || !has(self.admissionChecksStrategy)",
            "admissionChecks and admissionChecksStrategy exclude each other",
        ),
    )

    admission_checks: Annotated[tuple[CheckName, ...], Field(max_length=64), SET_LIST] | None = None
    """Admission checks that workloads of all flavors must pass; admissionChecksStrategy says the same and more."""


class RetryFields(Wire):
    """What v1beta1 of an AdmissionCheck had besides."""

    retry_delay_minutes: Int64 | None = None
    """Has no effect: the controller of a check says itself when it tries again."""


def describe(kind: str, entry: Json, build: Builder) -> None:
    """Changes `entry`, a copy of the v1beta2 version in the CRD of a kind, in place into that of v1beta1, marked as deprecated. Kinds
    without differences get the marking alone. `build` returns the schema of a model."""
    entry["deprecated"] = True
    entry["deprecationWarning"] = DEPRECATION
    change = _CHANGES.get(kind)
    if change is not None:
        change(entry, build)


def _build_workload(entry: Json, build: Builder) -> None:
    root = _build_schema(entry)
    spec, status = (root["properties"][name] for name in ("spec", "status"))
    del spec["properties"]["priorityClassRef"]
    _drop_rules(spec, "priorityClassRef")
    _add(spec, build(PriorityFields))
    _drop_rules(root, "priorityClassRef")
    _add_rules(root, *_PRIORITY_WHILE_RESERVED)
    request = spec["properties"]["podSets"]["items"]["properties"]["topologyRequest"]
    del request["properties"]["podsetSliceRequiredTopologyConstraints"]
    _drop_rules(request, "podsetSliceRequiredTopologyConstraints")
    # The old spelling is v1beta1's own.
    _rename(status, "accumulatedPastExecutionTimeSeconds", "accumulatedPastExexcutionTimeSeconds")
    given = status["properties"]["admission"]["properties"]["podSetAssignments"]["items"]["properties"]
    given["topologyAssignment"] = {**build(OldTopologyAssignment), "description": given["topologyAssignment"]["description"]}


def _build_cluster_queue(entry: Json, build: Builder) -> None:
    spec = _build_schema(entry)["properties"]["spec"]
    _rename(spec, "cohortName", "cohort")
    for one in spec[RULES]:
        one.update({key: text.replace("cohortName", "cohort") for key, text in one.items()})
    for column in entry["additionalPrinterColumns"]:
        column["jsonPath"] = column["jsonPath"].replace(".cohortName", ".cohort")
    _add(spec, build(CheckFields))
    fungibility = spec["properties"]["flavorFungibility"]["properties"]
    fungibility["whenCanBorrow"]["enum"] = [*fungibility["whenCanBorrow"]["enum"], "Borrow"]
    fungibility["whenCanPreempt"]["enum"] = [*fungibility["whenCanPreempt"]["enum"], "Preempt"]


def _build_local_queue(entry: Json, build: Builder) -> None:
    _rename(_build_schema(entry)["properties"]["status"], "flavorsUsage", "flavorUsage")


def _build_topology(entry: Json, build: Builder) -> None:
    levels = _build_schema(entry)["properties"]["spec"]["properties"]["levels"]
    _drop_rules(levels, "oldSelf")
    _add_rules(levels, add_rule("self == oldSelf", "levels cannot be changed in v1beta1; v1beta2 lets those above the hostname change"))


def _build_admission_check(entry: Json, build: Builder) -> None:
    _add(_build_schema(entry)["properties"]["spec"], build(RetryFields))


_CHANGES: Mapping[str, Callable[[Json, Builder], None]] = {
    "AdmissionCheck": _build_admission_check,
    "ClusterQueue": _build_cluster_queue,
    "LocalQueue": _build_local_queue,
    "Topology": _build_topology,
    "Workload": _build_workload,
}


def _build_text(subject: str, field: str) -> str:
    return f"(has({subject}.spec.{field}) ? {subject}.spec.{field} : '')"


_WAS_RESERVED = """(has(oldSelf.status) && has(oldSelf.status.conditions)
    && oldSelf.status.conditions.exists(c, c.type == 'QuotaReserved' && c.status == 'True'))"""
_SAME_SOURCE = f"{_build_text('self', 'priorityClassSource')} == {_build_text('oldSelf', 'priorityClassSource')}"
_SAME_NAME = f"{_build_text('self', 'priorityClassName')} == {_build_text('oldSelf', 'priorityClassName')}"
_PRIORITY_WHILE_RESERVED = (
    add_rule(f"!{_WAS_RESERVED} || ({_SAME_SOURCE})", "priorityClassSource cannot be changed while quota is reserved"),
    add_rule(
        f"!{_WAS_RESERVED} || {_build_text('self', 'priorityClassSource')} == '{WORKLOAD_PRIORITY}' || ({_SAME_NAME})",
        "while quota is reserved priorityClassName can only be changed to another WorkloadPriorityClass",
    ),
)


def _build_schema(entry: Json) -> Json:
    schema: Json = entry["schema"]["openAPIV3Schema"]
    return schema


def _rename(node: Json, old: str, new: str) -> None:
    """Another name for a property, in its place."""
    node["properties"] = {new if name == old else name: child for name, child in node["properties"].items()}


def _add(node: Json, fields: Json) -> None:
    """Properties and rules of another schema, after the node's own."""
    node["properties"] |= fields["properties"]
    node.update(merge(node, {RULES: fields[RULES]} if RULES in fields else {}))


def _add_rules(node: Json, *marks: Mark) -> None:
    for mark in marks:
        node.update(merge(node, mark.values))


def _drop_rules(node: Json, word: str) -> None:
    """Returns the rules without those that contain one of some texts."""
    node[RULES] = [one for one in node[RULES] if word not in one["rule"]]
    if not node[RULES]:
        del node[RULES]

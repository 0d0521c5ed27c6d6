"""PodGroup and NodeTopology of topogate.dev: what KEP-5732 says and the API server of Kubernetes 1.36 lacks."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from core.api.kinds.crd import AGE, Crd, PrinterColumn
from core.api.kinds.marks import ATOMIC_LIST, Mark, add_rule, default_on_server, list_map, set_int_format
from core.api.kinds.meta import DNS_LABEL, LABEL_NAME, MAX_LEVELS, Conditions, KubernetesObject, ObjectName, Wire
from core.names import OWN_GROUP

Count = Annotated[int, Field(ge=1, le=2**31 - 1), set_int_format("int32")]
_ONE_POLICY, _UNIQUE_LEVELS = "one of gang and basic must be given", "levels must be unique"
Level = Annotated[str, Field(min_length=1, max_length=316, pattern=LABEL_NAME)]


class GangSchedulingPolicy(Wire):
    """All or nothing."""

    min_count: Count
    """So many pods of the group are placed together, or none is."""


class BasicSchedulingPolicy(Wire):
    """Pods are placed as they come."""

    desired_count: Count | None = None
    """How many pods there will be: the placement is chosen so that it has room for them, too (KEP-5732, Basic Policy Extension)."""


class PodGroupSchedulingPolicy(Wire):
    """How many pods must be placed at once."""

    rules: ClassVar[tuple[Mark, ...]] = (add_rule("has(self.gang) != has(self.basic)", _ONE_POLICY),)

    basic: BasicSchedulingPolicy | None = None
    """Pods are placed as they come."""
    gang: GangSchedulingPolicy | None = None
    """All or nothing."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        if (self.gang is None) == (self.basic is None):
            raise ValueError(_ONE_POLICY)
        return self


class TopologyConstraintFields(Wire):
    """All pods share one domain."""

    level: Level
    """The key of a node label, or an alias that a NodeTopology gives one."""
    mode: Annotated[Literal["Required", "Preferred"], default_on_server("Required")] = "Required"
    """Preferred: where one domain does not take the group it may go wherever the levels before this one allow."""


class DraConstraint(Wire):
    """All pods get devices that lie together."""

    resource_claim_template_name: ObjectName
    """The ResourceClaimTemplate of the claim that they share."""


class PodGroupSchedulingConstraints(Wire):
    """What placements a group may have."""

    topology_constraints: Annotated[
        tuple[TopologyConstraintFields, ...],
        Field(max_length=MAX_LEVELS),
        ATOMIC_LIST,
        add_rule("self.all(a, self.exists_one(b, b.level == a.level))", _UNIQUE_LEVELS),
    ] = ()
    """The levels that pods must share, from the widest to the narrowest."""
    dra_constraints: Annotated[tuple[DraConstraint, ...], Field(max_length=4), ATOMIC_LIST] = ()
    """Devices that must lie together."""

    @field_validator("topology_constraints")
    @classmethod
    def _are_unique(cls, constraints: tuple[TopologyConstraintFields, ...]) -> tuple[TopologyConstraintFields, ...]:
        if len({constraint.level for constraint in constraints}) < len(constraints):
            raise ValueError(_UNIQUE_LEVELS)
        return constraints


class PodGroupSpec(Wire):
    """How the pods that name the group are placed. How many they are may change, not what they ask for."""

    rules: ClassVar[tuple[Mark, ...]] = (
        add_rule(
            """has(self.schedulingConstraints) == has(oldSelf.schedulingConstraints)
            && (!has(self.schedulingConstraints) || self.schedulingConstraints == oldSelf.schedulingConstraints)""",
            "schedulingConstraints cannot be changed",
        ),
        add_rule("has(self.schedulingPolicy.gang) == has(oldSelf.schedulingPolicy.gang)", "the kind of schedulingPolicy cannot be changed"),
    )

    scheduling_policy: PodGroupSchedulingPolicy
    """How many pods must be placed at once."""
    scheduling_constraints: PodGroupSchedulingConstraints | None = None
    """What placements the group may have; without one topogate leaves it alone."""
    replicas: Annotated[Count, default_on_server(1)] = 1
    """How many groups like this one there are: pods name theirs by its index, and each is placed by itself."""


class PodGroupStatus(Wire):
    """What became of it."""

    conditions: Conditions = ()
    """PodGroupScheduled says whether the group has its placement, and if not what each lacks."""


class PodGroup(KubernetesObject):
    """Pods that are placed together on one placement."""

    crd: ClassVar[Crd] = Crd(
        "podgroups",
        "Namespaced",
        has_status=True,
        columns=(
            PrinterColumn(
                "Scheduled", ".status.conditions[?(@.type=='PodGroupScheduled')].status", "string", "Whether it has its placement"
            ),
            AGE,
        ),
        group=OWN_GROUP,
    )

    spec: PodGroupSpec
    """How its pods are placed."""
    status: PodGroupStatus = Field(default_factory=PodGroupStatus)
    """What became of it."""


class NodeTopologyLevel(Wire):
    """A node label under a name that users need not look up."""

    name: Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_LABEL)]
    """What TopologyConstraints may call it."""
    node_label: Level
    """The key of the node label."""


class NodeTopologySpec(Wire):
    """The levels of the nodes."""

    levels: Annotated[tuple[NodeTopologyLevel, ...], Field(min_length=1, max_length=MAX_LEVELS), list_map("name")]
    """From the widest to the narrowest."""


class NodeTopology(KubernetesObject):
    """Names for node labels (KEP-5732, future extension 5)."""

    crd: ClassVar[Crd] = Crd("nodetopologies", "Cluster", columns=(AGE,), group=OWN_GROUP)

    spec: NodeTopologySpec
    """The levels."""

"""ResourceFlavor: a kind of nodes - their labels and taints, and by `topologyName` the topology they are arranged in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from core.api.kinds.crd import AGE, Crd, PrinterColumn
from core.api.kinds.marks import ATOMIC_LIST, ATOMIC_MAP, Mark, add_rule
from core.api.kinds.meta import Int64, KubernetesObject, ObjectName, Time, Wire

TaintEffect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


class Taint(Wire):
    """A taint that the nodes carry."""

    key: Annotated[str, Field(max_length=316)]
    """The taint's key."""
    value: Annotated[str, Field(max_length=63)] | None = None
    """The taint's value."""
    effect: TaintEffect
    """What it does to pods that do not tolerate it."""
    time_added: Time | None = None
    """When it was added; for NoExecute only."""


class Toleration(Wire):
    """Tolerates taints that match key, value and effect."""

    rules: ClassVar[tuple[Mark, ...]] = (
        add_rule("has(self.key) || (has(self.operator) && self.operator == 'Exists')", "without a key the operator must be Exists"),
        add_rule(
            "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')",
            "tolerationSeconds is for the effect NoExecute only",
        ),
        add_rule("!has(self.operator) || self.operator != 'Exists' || !has(self.value)", "with the operator Exists there must be no value"),
    )

    key: Annotated[str, Field(max_length=316)] | None = None
    """The taint key; absent matches all keys."""
    operator: Literal["Equal", "Exists"] | None = None
    """How key and value relate; Equal if absent."""
    value: Annotated[str, Field(max_length=63)] | None = None
    """The taint value; only with Equal."""
    effect: TaintEffect | None = None
    """The taint effect; absent matches all effects."""
    toleration_seconds: Int64 | None = None
    """For how long a NoExecute taint is tolerated; for ever if absent."""


Tolerations = Annotated[tuple[Toleration, ...], Field(max_length=8), ATOMIC_LIST]


class ResourceFlavorSpec(Wire):
    """Which nodes the flavor stands for."""

    rules: ClassVar[tuple[Mark, ...]] = (
        add_rule(
            "!has(self.topologyName) || (has(self.nodeLabels) && size(self.nodeLabels) >= 1)",
            "a flavor with a topologyName needs at least one entry in nodeLabels",
        ),
        add_rule(
            "!has(oldSelf.topologyName) || (has(self.topologyName) && self.topologyName == oldSelf.topologyName)",
            "topologyName cannot be changed once it is set",
        ),
    )

    node_labels: Annotated[Mapping[str, str], Field(max_length=8), ATOMIC_MAP] = Field(default_factory=dict)
    """Labels that the nodes of this flavor have; they become the node selector of admitted pods."""
    node_taints: Annotated[tuple[Taint, ...], Field(max_length=8), ATOMIC_LIST] = ()
    """Taints that the nodes of this flavor have; only workloads that tolerate them get it."""
    tolerations: Tolerations = ()
    """Tolerations added to the pods of workloads that get this flavor."""
    topology_name: ObjectName | None = None
    """The Topology by which pods are placed on the nodes of this flavor."""


class ResourceFlavor(KubernetesObject):
    """A kind of nodes for which quota can be given."""

    crd: ClassVar[Crd] = Crd(
        "resourceflavors",
        "Cluster",
        ("flavor", "flavors", "rf"),
        columns=(PrinterColumn("Topology", ".spec.topologyName", "string", "The topology of the flavor's nodes"), AGE),
    )

    spec: ResourceFlavorSpec = Field(default_factory=ResourceFlavorSpec)
    """Which nodes the flavor stands for."""

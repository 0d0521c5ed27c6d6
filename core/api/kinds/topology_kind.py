"""Topology: the node labels that name the levels of a data centre, from the widest to the narrowest."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from core.api.kinds.crd import AGE, Crd
from core.api.kinds.marks import ATOMIC_LIST, add_rule
from core.api.kinds.meta import LABEL_NAME, MAX_LEVELS, Conditions, KubernetesObject, Wire


class TopologyLevel(Wire):
    """One level, identified by a node label; the values of the label name its domains."""

    node_label: Annotated[str, Field(min_length=1, max_length=316, pattern=LABEL_NAME)]
    """The key of the node label, such as cloud.provider.com/topology-rack."""


class TopologySpec(Wire):
    """The levels of the hierarchy."""

    levels: Annotated[
        tuple[TopologyLevel, ...],
        Field(min_length=1, max_length=MAX_LEVELS),
        ATOMIC_LIST,
        add_rule("self.all(a, self.exists_one(b, b == a))", "levels must be unique"),
        add_rule(
            "self.all(l, l.nodeLabel != 'kubernetes.io/hostname') || self[size(self) - 1].nodeLabel == 'kubernetes.io/hostname'",
            "kubernetes.io/hostname can only be the lowest level",
        ),
        # With hostname lowest an assignment names nodes alone, so that the levels above may change under running workloads.
        add_rule(
            """self == oldSelf || (self[size(self) - 1].nodeLabel == 'kubernetes.io/hostname'
               && oldSelf[size(oldSelf) - 1].nodeLabel == 'kubernetes.io/hostname')""",
            "levels can only be changed while kubernetes.io/hostname is the lowest level, before and after the change",
        ),
    ]
    """The levels from the widest to the narrowest, at least one."""


class TopologyStatus(Wire):
    """What topogate found when it built the tree; an addition of topogate's; Kueue has no status here."""

    conditions: Conditions = ()
    """Active says whether workloads can be placed, and which nodes were left out."""


class Topology(KubernetesObject):
    """A hierarchy of node labels, by which workloads are placed."""

    crd: ClassVar[Crd] = Crd("topologies", "Cluster", ("topo",), has_status=True, columns=(AGE,))

    spec: TopologySpec
    """The levels."""
    status: TopologyStatus = Field(default_factory=TopologyStatus)
    """What was observed."""

"""A workload's admission: queue, flavors, usage and assignment per pod set; to and from `status.admission`."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from core.model.pod_resources import parse_resources
from core.model.quantity import format_quantity
from core.model.wire.assignment import TopologyAssignment
from core.model.wire.encoding import decode, encode
from core.names import TOPOLOGY_PENDING


@dataclass(frozen=True, slots=True)
class PodSetAdmission:
    """What one pod set was given: `usage` are canonical amounts of all `count` pods."""

    name: str
    flavors: Mapping[str, str]  # resource -> flavor
    usage: Mapping[str, int]
    count: int
    assignment: TopologyAssignment | None = None
    delayed: str | None = None  # whether the assignment is to follow (Pending), or came, in a second pass (Ready)
    # Nodes that are kept free for it, by name; `status.admission` has no field for them (core.model.spare_nodes).
    spares: tuple[str, ...] = ()
    # Of its own nodes, as its assignment calls them, those that are another's spares and lent to it: nor has it for these.
    borrowed: tuple[str, ...] = ()

    def with_spares(self, nodes: tuple[str, ...]) -> "PodSetAdmission":
        """Returns a copy with these nodes, by name, kept free instead of the earlier ones; they are not checked."""
        return replace(self, spares=nodes)


@dataclass(frozen=True, slots=True)
class Admission:
    """Pod sets in the order of the workload's spec (readers index by position)."""

    cluster_queue: str
    pod_sets: tuple[PodSetAdmission, ...]

    @property
    def awaits_topology(self) -> bool:
        """Whether any pod set has no assignment yet and is to get it in a second pass (`delayedTopologyRequest: Pending`)."""
        return any(pod_set.delayed == TOPOLOGY_PENDING and pod_set.assignment is None for pod_set in self.pod_sets)


def encode_admission(admission: Admission) -> dict[str, Any]:
    """Returns the JSON of `status.admission` (v1beta2), usage as Kubernetes quantities; spare and borrowed nodes have no field in it.
    Raises InvalidAssignment where an assignment cannot be written."""
    return {
        "clusterQueue": admission.cluster_queue,
        "podSetAssignments": [
            {
                "name": pod_set.name,
                "flavors": dict(pod_set.flavors),
                "resourceUsage": {name: format_quantity(name, amount) for name, amount in pod_set.usage.items()},
                "count": pod_set.count,
            }
            | ({"topologyAssignment": encode(pod_set.assignment)} if pod_set.assignment is not None else {})
            | ({"delayedTopologyRequest": pod_set.delayed} if pod_set.delayed is not None else {})
            for pod_set in admission.pod_sets
        ],
    }


def decode_admission(wire: Mapping[str, Any] | None) -> Admission | None:
    """Returns the admission that `status.admission` describes, usage in canonical amounts, without spare or borrowed nodes, which it does
    not have; None where `wire` is None or empty.

    Raises InvalidAssignment where an assignment contradicts itself or the API, InvalidQuantity where an amount is negative or no quantity.
    """
    if not wire:
        return None
    return Admission(
        wire["clusterQueue"],
        tuple(
            PodSetAdmission(
                entry["name"],
                dict(entry.get("flavors") or {}),
                parse_resources(entry.get("resourceUsage")),
                int(entry.get("count") or 0),
                decode(entry["topologyAssignment"]) if entry.get("topologyAssignment") else None,
                entry.get("delayedTopologyRequest"),
            )
            for entry in wire.get("podSetAssignments") or ()
        ),
    )

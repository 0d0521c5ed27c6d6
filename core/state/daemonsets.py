"""What DaemonSets will still take: on each node that one of them wants a pod on and that has none of it yet, its share is reserved.

A node that joins is empty for a moment only. Whoever counted it as empty would take the place of the
DaemonSets' pods, and then wait for it beside them. Which nodes a DaemonSet wants is judged as its
controller does: by node name, selector, required node affinity and tolerations, whatever is free.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from core.model.pod_traits import PodTraits, traits_of_pod
from core.model.resources import PODS, Resources, add, pod_requests
from core.placement.feasibility import InvalidSelector, find_untolerated, node_matches
from core.state.facts import NodeFacts, PodFacts

Json = Mapping[str, Any]
# What the DaemonSet controller adds to every pod it makes.
_ADDED = tuple(
    {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": effect}
    for key, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    )
)
_ADDED_FOR_HOST_NETWORK = ({"key": "node.kubernetes.io/network-unavailable", "operator": "Exists", "effect": "NoSchedule"},)


@dataclass(frozen=True, slots=True)
class DaemonSetFacts:
    """A DaemonSet: where it wants its pods, and what each takes, its one of `pods` included."""

    key: str
    uid: str
    node: str  # the only one it is for, if its template names one
    node_selector: Mapping[str, str]
    affinity: Json | None
    tolerations: tuple[Json, ...]
    requests: Resources
    traits: PodTraits | None
    deleting: bool

    @classmethod
    def read(cls, daemon_set: Json) -> "DaemonSetFacts":
        metadata, template = daemon_set["metadata"], daemon_set["spec"]["template"]
        spec = template.get("spec") or {}
        requests = pod_requests(spec)
        add(requests, {PODS: 1})
        labels = (template.get("metadata") or {}).get("labels") or {}
        return cls(
            f"{metadata['namespace']}/{metadata['name']}",
            metadata["uid"],
            spec.get("nodeName") or "",
            dict(spec.get("nodeSelector") or {}),
            spec.get("affinity"),
            (*(spec.get("tolerations") or ()), *_ADDED, *(_ADDED_FOR_HOST_NETWORK if spec.get("hostNetwork") else ())),
            requests,
            traits_of_pod({"metadata": {"namespace": metadata["namespace"], "labels": labels}, "spec": spec}),
            bool(metadata.get("deletionTimestamp")),
        )

    def wants(self, node: NodeFacts) -> bool:
        """Whether its controller makes a pod for a node."""
        if self.deleting or self.node not in ("", node.name) or find_untolerated(node.state.taints, self.tolerations) is not None:
            return False
        try:
            return node_matches(node.name, node.labels, self.node_selector, self.affinity)
        except InvalidSelector:
            return False


class DaemonSets:
    """DaemonSets, nodes and the daemon pods bound on them. `take` is told of each share reserved (1) and given back (-1)."""

    def __init__(self, take: Callable[[DaemonSetFacts, str, int], None]) -> None:
        self._take = take
        self.sets: dict[str, DaemonSetFacts] = {}
        self.nodes: dict[str, NodeFacts] = {}
        self.shares: dict[str, dict[str, int]] = {}  # node -> what is reserved on it
        self._reserved: dict[str, set[str]] = {}  # key of a DaemonSet -> nodes
        self._key_of: dict[str, str] = {}  # uid -> key
        self._bound: dict[str, Counter[str]] = {}  # uid -> node -> pods

    def observe_set(self, key: str, facts: DaemonSetFacts | None) -> bool:
        """Folds a DaemonSet's present facts (None: gone). Says whether they are new."""
        old = self.sets.get(key)
        if old == facts:
            return False
        if old is not None:
            for node in self._reserved.pop(key):
                self._reserve(old, node, -1)
            del self.sets[key], self._key_of[old.uid]
        if facts is not None:
            self.sets[key], self._key_of[facts.uid], self._reserved[key] = facts, key, set()
            for name in self.nodes:
                self._settle(facts, name)
        return True

    def observe_node(self, name: str, node: NodeFacts | None) -> None:
        """Folds a node's present facts (None: gone)."""
        old = self.nodes.get(name)
        if node is None:
            self.nodes.pop(name, None)
        else:
            self.nodes[name] = node
            if old is not None and (old.labels, old.state.taints) == (node.labels, node.state.taints):
                return
        for facts in self.sets.values():
            self._settle(facts, name)

    def observe_pod(self, old: PodFacts | None, new: PodFacts | None) -> None:
        """Follows a pod whose facts changed."""
        for facts, sign in ((new, 1), (old, -1)):
            if facts is None or not facts.of_daemon_set or not facts.holds or facts.owner_uid is None:
                continue
            bound = self._bound.setdefault(facts.owner_uid, Counter())
            bound[facts.node] += sign
            if not bound[facts.node]:
                del bound[facts.node]
            if not bound:
                del self._bound[facts.owner_uid]
            key = self._key_of.get(facts.owner_uid)
            if key is not None:
                self._settle(self.sets[key], facts.node)

    def _settle(self, facts: DaemonSetFacts, name: str) -> None:
        """Reserves a share or gives it back, as things are now."""
        node, reserved = self.nodes.get(name), self._reserved[facts.key]
        wanted = node is not None and not self._bound.get(facts.uid, Counter())[name] and facts.wants(node)
        if wanted and name not in reserved:
            reserved.add(name)
            self._reserve(facts, name, 1)
        elif not wanted and name in reserved:
            reserved.remove(name)
            self._reserve(facts, name, -1)

    def _reserve(self, facts: DaemonSetFacts, name: str, sign: int) -> None:
        share = self.shares.setdefault(name, {})
        add(share, facts.requests, sign)
        if not any(share.values()):
            del self.shares[name]
        self._take(facts, name, sign)

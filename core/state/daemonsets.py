"""What DaemonSets will still take: their shares of nodes that joined a moment ago, and of nodes that lost a pod of theirs.

A node that joins is empty for a moment only. A decision that counted it as empty would take the place of the
DaemonSets' pods, and its own pods would wait beside them. The same holds while a DaemonSet replaces its pod on a node.
Which nodes a DaemonSet wants is judged as its controller does: by node name, selector, required node affinity and
tolerations, whatever is free.

A share is reserved for `WINDOW_S` at most: the pods of a DaemonSet may never come, for example where a ResourceQuota
refuses them. None is reserved where a pod of the DaemonSet is larger than the node, on nodes that were there
long before the DaemonSet, or for a DaemonSet with more rules than can be judged in time (`MOST_RULES`).
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from core.model.pod_resources import PODS, Resources, add, compute_pod_requests
from core.model.pod_traits import PodTraits, read_pod_traits
from core.placement.topology.node_eligibility import InvalidSelector, find_untolerated, is_node_match
from core.state.facts import NodeFacts, PodFacts

Json = Mapping[str, Any]
Windows = Mapping[str, Mapping[str, float]]  # node -> key of a DaemonSet -> when its window ends, in seconds
WINDOW_S = 120.0
"""Seconds for which a share is reserved: the DaemonSet controller makes the pods of a new node within seconds."""
MOST_RULES = 256
"""Tolerations and values of selectors that a DaemonSet may have and still get shares."""
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
    judged: bool = True  # whether its rules are few enough

    @classmethod
    def read(cls, daemon_set: Json) -> "DaemonSetFacts":
        """Returns the facts of a DaemonSet (JSON), with the tolerations that its controller adds. Raises InvalidQuantity where its requests
        cannot be read."""
        metadata, template = daemon_set["metadata"], daemon_set["spec"]["template"]
        spec = template.get("spec") or {}
        requests = compute_pod_requests(spec)
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
            read_pod_traits({"metadata": {"namespace": metadata["namespace"], "labels": labels}, "spec": spec}),
            bool(metadata.get("deletionTimestamp")),
            _count_rules(spec) <= MOST_RULES,
        )

    def is_wanted(self, node: NodeFacts) -> bool:
        """Returns whether its controller makes a pod for a node, and the node, were it empty, would have room for that. False also for a
        DaemonSet that is being deleted or has too many rules (`MOST_RULES`), and for an invalid selector."""
        if self.deleting or not self.judged or self.node not in ("", node.name):
            return False
        if any(amount > node.state.allocatable.get(resource, 0) for resource, amount in self.requests.items()):
            return False
        if find_untolerated(node.state.taints, self.tolerations) is not None:
            return False
        try:
            return is_node_match(node.name, node.labels, self.node_selector, self.affinity)
        except InvalidSelector:
            return False


def _count_rules(spec: Json) -> int:
    terms = (((spec.get("affinity") or {}).get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get(
        "nodeSelectorTerms"
    )
    asked = [rule for term in terms or () for part in ("matchExpressions", "matchFields") for rule in term.get(part) or ()]
    values = sum(1 + len(rule.get("values") or ()) for rule in asked)
    return len(spec.get("tolerations") or ()) + len(spec.get("nodeSelector") or ()) + len(terms or ()) + values


class DaemonSets:
    """DaemonSets, nodes and the daemon pods bound on them. `take` is called for each share reserved (1) and given back (-1).

    A window is the time in which a DaemonSet's share of a node may be reserved. `windows` are those that stand, for a recount: then
    none is opened or closed. As long as `observe_time` was never called windows stay open.
    """

    def __init__(self, take: Callable[[DaemonSetFacts, str, int], None], windows: Windows | None = None) -> None:
        self._take = take
        self._now, self._is_recount = -math.inf, windows is not None
        self._epoch = math.inf  # when 1970 began, on the clock of `_now`
        self._seen: dict[str, float] = {}  # node -> when it was created, or first observed where that is not known
        self._windows: dict[str, dict[str, float]] = {node: dict(ends) for node, ends in (windows or {}).items()}  # node -> set -> its end
        self.sets: dict[str, DaemonSetFacts] = {}
        self.nodes: dict[str, NodeFacts] = {}
        self.shares: dict[str, dict[str, int]] = {}  # node -> what is reserved on it
        self._reserved: dict[str, set[str]] = {}  # key of a DaemonSet -> nodes
        self._key_of: dict[str, str] = {}  # uid -> key
        self._bound: dict[str, Counter[str]] = {}  # uid -> node -> pods

    @property
    def windows(self) -> Windows:
        """Returns per node and key of a DaemonSet until when a share may be reserved there, in seconds of the clock of `observe_time`;
        infinite before its first call. It is no copy."""
        return self._windows

    def observe_time(self, now: float, since_1970: float = -math.inf) -> bool:
        """Closes the windows (in which shares may be reserved) that are over at `now`, in seconds; `since_1970` is the same moment by the
        calendar, in which nodes have their creation; without it they count as made when they were first observed. The first call sets the
        ends of windows that are open. Returns whether a share was given back."""
        is_first, self._now, self._epoch = self._now == -math.inf, now, now - since_1970
        if is_first:  # what was observed before any time was known
            self._seen = {node: self._find_creation(self.nodes[node]) for node in self._seen}
            self._windows = {node: dict.fromkeys(ends, self._seen.get(node, now) + WINDOW_S) for node, ends in self._windows.items()}
        over = [(key, node) for node, ends in self._windows.items() for key, end in ends.items() if end <= now]
        for key, node in over:
            del self._windows[node][key]
            if not self._windows[node]:
                del self._windows[node]
        given_back = False
        for key, node in over:
            given_back |= node in self._reserved.get(key, ())
            if key in self.sets:
                self._settle(self.sets[key], node)
        return given_back

    def _find_creation(self, node: NodeFacts) -> float:
        """When a node was created, now where that is not known or to come."""
        return min(self._now, node.created + self._epoch)

    def _open(self, key: str, node: str, since: float | None = None) -> None:
        if not self._is_recount:
            end = math.inf if self._now == -math.inf else (self._now if since is None else since) + WINDOW_S
            self._windows.setdefault(node, {})[key] = end

    def _is_young(self, node: str) -> bool:
        return self._now == -math.inf or self._now < self._seen[node] + WINDOW_S

    def observe_set(self, key: str, facts: DaemonSetFacts | None) -> bool:
        """Applies a DaemonSet's present facts (None: gone), and reserves its shares (what one of its pods takes of a node) or gives them
        back. For a new one they may be reserved, for `WINDOW_S` seconds, on nodes that came less than that ago; before the first
        `observe_time` on all. Returns whether the facts differ from those before."""
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
                if self._is_young(name) and (old is None or old.uid != facts.uid):
                    self._open(key, name)
                self._settle(facts, name)
        else:
            self._windows = {
                node: left for node, ends in self._windows.items() if (left := {k: end for k, end in ends.items() if k != key})
            }
        return True

    def observe_node(self, name: str, node: NodeFacts | None) -> None:
        """Records a node's present facts (None: gone), and reserves shares there or gives them back. Where a new node was made less than
        `WINDOW_S` ago, the share of each DaemonSet may be reserved there until it is that old. Equal labels, taints and allocatable amounts
        change nothing."""
        old = self.nodes.get(name)
        if node is None:
            self.nodes.pop(name, None)
            self._seen.pop(name, None)
            self._windows.pop(name, None)
        else:
            self.nodes[name] = node
            if old is None:
                self._seen[name] = self._find_creation(node)
                if self._is_young(name):
                    for key in self.sets:
                        self._open(key, name, self._seen[name])
            elif _place_of(old) == _place_of(node):
                return
        for facts in self.sets.values():
            self._settle(facts, name)

    def observe_pod(self, old: PodFacts | None, new: PodFacts | None) -> None:
        """Applies a change of a pod's facts (None: not there) to the pods bound per node; pods of no DaemonSet change nothing. The share
        of its DaemonSet is reserved or given back. Where the last one on a node went, and used no less than the next one will, a share may
        be reserved for `WINDOW_S` seconds."""
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
                gone = facts.node in self.nodes and not self._bound.get(facts.owner_uid, Counter())[facts.node]
                if gone and _is_covered(facts.requests, self.sets[key].requests):
                    self._open(key, facts.node)  # its controller creates a replacement, which uses no more than this one did
                self._settle(self.sets[key], facts.node)

    def _settle(self, facts: DaemonSetFacts, name: str) -> None:
        """Reserves a share or gives it back, as things are now."""
        node, reserved = self.nodes.get(name), self._reserved[facts.key]
        is_open = facts.key in self._windows.get(name, ())
        wanted = node is not None and is_open and not self._bound.get(facts.uid, Counter())[name] and facts.is_wanted(node)
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


def _place_of(node: NodeFacts) -> tuple[object, ...]:
    """What of a node decides whether a DaemonSet wants it."""
    return node.labels, node.state.taints, node.state.allocatable


def _is_covered(had: Resources, asked: Resources) -> bool:
    """Whether a pod that is gone had as much as another one requests: no one gets more room by replacing a small pod with a large one."""
    return all(amount <= had.get(resource, 0) for resource, amount in asked.items())

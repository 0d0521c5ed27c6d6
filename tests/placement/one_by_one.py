"""kube-scheduler's NodePorts and InterPodAffinity filters written a second time, for one pod after the other on plain JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = Mapping[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass
class World:
    """Labels per node and namespace, and pods with the node they are on."""

    nodes: Mapping[str, Mapping[str, str]]
    namespaces: Mapping[str, Mapping[str, str]]
    pods: list[tuple[str, Json]] = field(default_factory=list)

    def refusal(self, pod: Json, node: str) -> str | None:
        """The first filter that keeps a pod from a node."""
        if self._ports_taken(pod, node):
            return "ports"
        if not self._affinity_holds(pod, node):
            return "affinity"
        if any(self._near(term, node, other) for term in terms(pod, "podAntiAffinity") for other in self._matching([term], pod)):
            return "anti-affinity"
        for where, other in self.pods:
            for term in terms(other, "podAntiAffinity"):
                if self._takes(term, other, pod) and self._near(term, node, where):
                    return "existing anti-affinity"
        return None

    def schedule(self, pods: Sequence[tuple[str, Json]]) -> list[tuple[str, Json]]:
        """Binds pods, each to its node, in whatever order that goes; those for which it never does are left over."""
        left = list(pods)
        while True:
            bound = next(((node, pod) for node, pod in left if self.refusal(pod, node) is None), None)
            if bound is None:
                return left
            left = [each for each in left if each[1] is not bound[1]]
            self.pods.append(bound)

    # --- the filters ------------------------------------------------------------------------------------

    def _ports_taken(self, pod: Json, node: str) -> bool:
        theirs = [port for where, other in self.pods if where == node for port in host_ports(other)]
        return any(_clash(mine, their) for mine in host_ports(pod) for their in theirs)

    def _affinity_holds(self, pod: Json, node: str) -> bool:
        wanted = terms(pod, "podAffinity")
        if any(term["topologyKey"] not in self.nodes[node] for term in wanted):
            return False
        where = self._matching(wanted, pod) if wanted else []
        if all(any(self._near(term, node, other) for other in where) for term in wanted):
            return True
        counted = [1 for other in where for term in wanted if term["topologyKey"] in self.nodes[other]]
        return not counted and all(self._takes(term, pod, pod) for term in wanted)

    def _matching(self, wanted: Sequence[Json], owner: Json) -> list[str]:
        return [where for where, other in self.pods if all(self._takes(term, owner, other) for term in wanted)]

    def _near(self, term: Json, one: str, other: str) -> bool:
        key = term["topologyKey"]
        return key in self.nodes[one] and self.nodes[one][key] == self.nodes[other].get(key)

    def _takes(self, term: Json, owner: Json, pod: Json) -> bool:
        home = pod["metadata"]["namespace"]
        among = term.get("namespaceSelector")
        named = list(term.get("namespaces") or [])
        if not named and among is None:
            named = [owner["metadata"]["namespace"]]
        if home not in named and not (among is not None and _selects(among, self.namespaces[home])):
            return False
        selector, labels = term.get("labelSelector"), pod["metadata"].get("labels") or {}
        if selector is None or not _selects(selector, labels):
            return False
        own = owner["metadata"].get("labels") or {}
        same = all(labels.get(key) == own[key] for key in term.get("matchLabelKeys") or () if key in own)
        return same and all(labels.get(key) != own[key] for key in term.get("mismatchLabelKeys") or () if key in own)


def terms(pod: Json, kind: str) -> list[Json]:
    return list((((pod["spec"].get("affinity") or {}).get(kind) or {}).get(REQUIRED)) or [])


def host_ports(pod: Json) -> Iterator[tuple[str, int, str]]:
    spec = pod["spec"]
    for container in spec["containers"] + [c for c in spec.get("initContainers") or [] if c.get("restartPolicy") == "Always"]:
        for port in container.get("ports") or []:
            number = port.get("hostPort", 0) or (port["containerPort"] if spec.get("hostNetwork") else 0)
            if number:
                yield port.get("protocol", "TCP"), number, port.get("hostIP", "") or "0.0.0.0"


def _clash(one: tuple[str, int, str], other: tuple[str, int, str]) -> bool:
    return one[:2] == other[:2] and (one[2] == other[2] or "0.0.0.0" in (one[2], other[2]))


def _selects(selector: Json, labels: Mapping[str, str]) -> bool:
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for expression in selector.get("matchExpressions") or ():
        key, values = expression["key"], expression.get("values") or []
        match expression["operator"]:
            case "In" if labels.get(key, object()) not in values:
                return False
            case "NotIn" if key in labels and labels[key] in values:
                return False
            case "Exists" if key not in labels:
                return False
            case "DoesNotExist" if key in labels:
                return False
    return True

"""The rules of the vectors' validate.py for replacements, extended to any number of nodes that fail at once.

Judged by the wire form of a case and of an answer alone, with what `generate.py` of the vectors knows of nodes: nothing of the engine is
asked. Cases are made of those whose answer is measured: the answer becomes what the workload was admitted with, and its nodes fail.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from types import ModuleType
from typing import Any

from core.names import HOSTNAME_LABEL

Case = dict[str, Any]
Path = tuple[str, ...]
_MOST_LOST = 4


def can_fail(case: Case) -> bool:
    """Whether a case is a first placement over hostnames that fits, in which each host has one name."""
    hosts = Counter(node["labels"].get(HOSTNAME_LABEL) for node in case["nodes"])
    resized = any(pod_set.get("previous_assignment") for pod_set in case["pod_sets"])
    special = case.get("workload") or case.get("simulate_empty") or resized
    by_host = case["levels"][-1] == HOSTNAME_LABEL and max(hosts.values()) == 1
    return bool(case["expect"]["ok"] and by_host and not special)


def fail(case: Case, draw: random.Random) -> Case:
    """The case in which some of the nodes that its answer names have failed, and others are cordoned meanwhile."""
    made = deepcopy({key: value for key, value in case.items() if key != "expect"})
    answers = {entry["name"]: entry["assignment"] for entry in case["expect"]["pod_sets"]}
    used = sorted({domain["values"][-1] for given in answers.values() for domain in given["domains"]})
    lost = draw.sample(used, draw.randint(1, min(_MOST_LOST, len(used))))
    made["workload"] = {
        "unhealthy_nodes": lost,
        "admitted": [
            {"pod_set": pod_set["name"], "count": pod_set["count"], "assignment": answers[pod_set["name"]]} for pod_set in case["pod_sets"]
        ],
    }
    made["usage"] = [*made.get("usage", ()), *_usage_of(case["pod_sets"], answers)]
    for node in made["nodes"]:
        if node["labels"].get(HOSTNAME_LABEL) not in lost and draw.random() < 0.1:
            node["unschedulable"] = True
    return made


def _usage_of(pod_sets: Sequence[Case], answers: Mapping[str, Case]) -> Iterator[Case]:
    for pod_set in pod_sets:
        for domain in answers[pod_set["name"]]["domains"]:
            yield {"values": domain["values"], "single_pod_requests": pod_set["single_pod_requests"], "count": domain["count"]}


class Judge:
    """One case of nodes that have failed. `generate` is the vectors' module of that name."""

    def __init__(self, case: Case, generate: ModuleType) -> None:
        self._case, self._generate = case, generate
        self._levels: list[str] = case["levels"]
        self._lost = set(case["workload"]["unhealthy_nodes"])
        self._paths = {
            node["labels"][HOSTNAME_LABEL]: self._path_of(node) for node in case["nodes"] if set(self._levels) <= set(node["labels"])
        }
        self._view = generate.View(case)
        self._before = {each["pod_set"]: _counts(each["assignment"]) for each in case["workload"]["admitted"]}
        self._kept = {name: Counter({h: n for h, n in pods.items() if h not in self._lost}) for name, pods in self._before.items()}

    def _path_of(self, node: Case) -> Path:
        return tuple(node["labels"][level] for level in self._levels)

    def problems(self, answer: Case) -> list[str]:
        """What is wrong with an answer."""
        found = {entry["name"]: entry for entry in answer["pod_sets"]}
        if not answer["ok"]:
            return list(self._wrongly_refused())
        wrong: list[str] = []
        after: dict[str, Counter[str]] = {}
        for pod_set in self._case["pod_sets"]:
            name = pod_set["name"]
            if "assignment" not in found.get(name, {}):
                return [f"missing: {name}"]
            domains = found[name]["assignment"]["domains"]
            after[name] = _counts(found[name]["assignment"])
            if len(after[name]) != len(domains) or min(domain["count"] for domain in domains) <= 0:
                wrong.append(f"domains: {name} has some twice, or empty ones")
            wrong += self._of_pod_set(pod_set, after[name])
        return wrong + list(self._over_capacity(after)) + list(self._apart(after))

    def _of_pod_set(self, pod_set: Case, now: Counter[str]) -> Iterator[str]:
        name = pod_set["name"]
        kept = self._kept[name]
        if now.total() != pod_set["count"]:
            yield f"sum: {name} has {now.total()} of {pod_set['count']} pods"
        if kept - now:
            yield f"moved: {name} from {dict(kept - now)}"
        if kept == self._before[name] and now != kept:
            yield f"moved: {name} has lost nothing"
        for host in now - kept:
            path = self._view.by_values.get((host,))
            if host in self._lost or path is None or not self._view.eligible(path, pod_set):
                yield f"ineligible: {name} on {host}"
        if len(self._domains(pod_set, now)) > 1:
            yield f"required: {name} is in {self._domains(pod_set, now)}"
        for layer in self._generate.constraints(pod_set.get("topology_request")):
            at = self._levels.index(layer["topology"]) + 1
            per_domain: Counter[Path] = Counter()
            for host, count in now.items():
                per_domain[self._paths[host][:at]] += count
            if any(count % int(layer["size"]) for count in per_domain.values()):
                yield f"slices: {name} is not whole at {layer['topology']}"

    def _domains(self, pod_set: Case, pods: Counter[str]) -> set[Path]:
        """Those of the required level that have pods; none where no level is required."""
        level = (pod_set.get("topology_request") or {}).get("required")
        at = self._levels.index(level) + 1 if level in self._levels else 0
        return {self._paths[host][:at] for host in pods} if at else set()

    def _over_capacity(self, after: Mapping[str, Counter[str]]) -> Iterator[str]:
        """All pod sets together; what has stayed is in the usage already."""
        for pod_set in self._case["pod_sets"]:
            for host, count in (after[pod_set["name"]] - self._kept[pod_set["name"]]).items():
                self._view.take([host], pod_set["single_pod_requests"], count)
        for path, leaf in self._view.leaf.items():
            came = [each for each in self._case["pod_sets"] if (after[each["name"]] - self._kept[each["name"]])[path[-1]]]
            asked = {"pods", *(name for each in came for name, amount in each["single_pod_requests"].items() if amount)}
            if came and (over := {name: left for name, left in leaf["free"].items() if left < 0 and name in asked}):
                yield f"capacity: {path[-1]} is over by {over}"

    def _apart(self, after: Mapping[str, Counter[str]]) -> Iterator[str]:
        groups: dict[str, list[Case]] = {}
        for pod_set in self._case["pod_sets"]:
            if pod_set.get("pod_set_group_name"):
                groups.setdefault(pod_set["pod_set_group_name"], []).append(pod_set)
        for name, members in groups.items():
            together: Counter[str] = sum((after[each["name"]] for each in members), Counter())
            if len(self._domains(members[0], together)) > 1:
                yield f"group: {name} is apart"

    def _wrongly_refused(self) -> Iterator[str]:
        """Of one pod set without slices: whether what it lacks fits where it may be, by counting."""
        (pod_set, *others) = self._case["pod_sets"]
        if others or self._generate.constraints(pod_set.get("topology_request")):
            return
        kept = self._kept[pod_set["name"]]
        within = self._domains(pod_set, kept)
        room: Counter[Path] = Counter()
        for path, fit in self._view.caps(pod_set).items():
            if path[-1] not in self._lost:
                (domain,) = self._domains(pod_set, Counter([path[-1]])) or {()}
                room[domain] += fit
        missing = pod_set["count"] - kept.total()
        best = max((fit for domain, fit in room.items() if not within or domain in within), default=0)
        if best >= missing:
            yield f"refused: {missing} pods, and {best} fit"


def _counts(assignment: Case) -> Counter[str]:
    return Counter({domain["values"][-1]: domain["count"] for domain in assignment["domains"]})

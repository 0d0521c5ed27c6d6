"""Topology spreading (KEP-13746 of Kueue), for the audit from objects alone: was a Workload put where a `Required` rule closes the domain,
or where a `Preferred` one would rather not have it?

It is asked at the moment of the admission. What another process may still have counted, or count no more, is in favour of the product.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from core.names import HOSTNAME_LABEL, JOB_UID_LABEL, TOPOLOGY_SPREADING
from e2e.audit.amounts import Amounts, read_quantity
from e2e.audit.recount_places import read_domains
from e2e.audit.recount_promises import count_of_each

Obj = Mapping[str, Any]
Domain = tuple[str, ...]
FlavorLabels = Mapping[str, Mapping[str, str]]


class Crowd:
    """A topology as it is now: its levels, the highest first, and the labels of the nodes whose place is beyond doubt, by hostname."""

    def __init__(self, levels: Sequence[str], nodes: Collection[Obj]) -> None:
        self.levels = levels
        labels = [node["metadata"].get("labels") or {} for node in nodes]
        self._labels = {each.get(HOSTNAME_LABEL, ""): each for each in labels}

    def find_domains(self, given: Obj, level: str) -> set[Domain] | None:
        """Domains of a level that a pod set's assignment is in, by the labels of all levels down to it; None where that is in doubt."""
        above = self.levels[: self.levels.index(level) + 1]
        found = [self._labels.get(values[-1]) for values, _ in read_domains(given["topologyAssignment"])]
        if any(labels is None or any(each not in labels for each in above) for labels in found):
            return None
        return {tuple(labels[each] for each in above) for labels in found if labels is not None}

    def find_crowded(self, workload: Obj, present: Collection[Obj], doubtful: Collection[Obj]) -> Iterator[str]:
        """Sentences about rules that did not hold when a Workload was admitted; none if all is well. Of the others those that are `present`
        count, and those that are `doubtful` perhaps."""
        for pod_set, given in _list_given(workload):
            text = ((pod_set["template"].get("metadata") or {}).get("annotations") or {}).get(TOPOLOGY_SPREADING)
            asked = json.loads(text or "{}")
            for rule in asked.get("rules", ()):
                if rule.get("enforcementMode", "Required") == "Required" and rule["topologyKey"] in self.levels:
                    chosen = _select(workload, asked)
                    sure, unsure = ([o for o in others if chosen(o, given, pod_set)] for others in (present, doubtful))
                    yield from self._judge(workload, pod_set, given, rule, sure, unsure)

    def _judge(self, workload: Obj, pod_set: Obj, given: Obj, rule: Obj, sure: Sequence[Obj], unsure: Sequence[Obj]) -> Iterator[str]:
        key, share = rule["topologyKey"], Fraction(read_quantity(str(rule["maxShareAllowingPlacement"])))
        here = self.find_domains(given, key)
        if here is None:
            return
        known = [domains for other in sure if (domains := self._find_unit(other, pod_set, key)) is not None]
        lost = len(sure) - len(known) + len(unsure)
        for domain in here:
            inside = sum(domain in domains for domains in known)
            around = lost + sum(any(each[:-1] == domain[:-1] for each in domains) for domains in known)
            if inside > share * around:
                name, shown = f"{workload['metadata']['namespace']}/{workload['metadata']['name']}", "/".join(domain)
                yield f"workload {name} was put into {shown}, which has {inside} of at most {around} others, more than {float(share):g}"

    def find_worse(
        self, workload: Obj, present: Collection[Obj], doubtful: Collection[Obj], free: Mapping[str, Amounts], of_flavors: FlavorLabels
    ) -> Iterator[str]:
        """Sentences about pod sets that have another domain than `Preferred` rules ask for, by what is `free` on each host, and the labels
        of each flavor's nodes; none if all is well. Not judged are pod sets that stand with others or choose among nodes, and those for
        which a `doubtful` one of the others counts."""
        for pod_set, given in _list_given(workload):
            spec, request = pod_set["template"].get("spec") or {}, pod_set.get("topologyRequest") or {}
            text = ((pod_set["template"].get("metadata") or {}).get("annotations") or {}).get(TOPOLOGY_SPREADING)
            asked, level = json.loads(text or "{}"), str(request.get("required") or "")
            rules = [rule for rule in asked.get("rules", ()) if rule["topologyKey"] in self.levels]
            is_alone = len(workload["spec"]["podSets"]) == 1 and not spec.keys() & {"nodeSelector", "affinity"}
            if not is_alone or level not in self.levels or not any(rule.get("enforcementMode") == "Preferred" for rule in rules):
                continue
            counts = _select(workload, asked)
            units = [self._find_unit(other, pod_set, level) for other in present if counts(other, given, pod_set)]
            known, here = [unit for unit in units if unit is not None], self.find_domains(given, level)
            is_doubted = len(known) < len(units) or any(counts(other, given, pod_set) for other in doubtful)
            if here is None or len(here) != 1 or is_doubted:
                continue
            (chosen,), ordered = here, sorted(rules, key=lambda rule: self.levels.index(rule["topologyKey"]))
            mine = self._rank(chosen, ordered, known)
            for domain in self._find_roomy(level, given, free, of_flavors):
                rank = self._rank(domain, ordered, known)
                if rank is not None and mine is not None and rank < mine:
                    name, shown = f"{workload['metadata']['namespace']}/{workload['metadata']['name']}", "/".join(chosen)
                    yield f"workload {name} was put into {shown}, and its rules rather have {'/'.join(domain)}, where it has room"

    def _rank(self, domain: Domain, rules: Sequence[Obj], units: Sequence[set[Domain]]) -> list[int] | None:
        """The place of a domain in the order of `Preferred` rules, coarse to fine: 0 used, 1 unused, more where it has more than its share.
        None where a `Required` rule closes it."""
        found = []
        for rule in rules:
            depth, share = self.levels.index(rule["topologyKey"]) + 1, Fraction(read_quantity(str(rule["maxShareAllowingPlacement"])))
            inside = sum(any(each[:depth] == domain[:depth] for each in unit) for unit in units)
            around = sum(any(each[: depth - 1] == domain[: depth - 1] for each in unit) for unit in units)
            is_over = inside > share * around
            if rule.get("enforcementMode", "Required") == "Preferred":
                found.append(2 + inside if is_over else int(not inside))
            elif is_over:
                return None
        return found

    def _find_roomy(self, level: str, given: Obj, free: Mapping[str, Amounts], of_flavors: FlavorLabels) -> Iterator[Domain]:
        """Domains of a level in which all pods of a pod set have room, on nodes of its flavor."""
        above, room = self.levels[: self.levels.index(level) + 1], Counter[Domain]()
        wanted = [of_flavors.get(flavor, {}).items() for flavor in {*(given.get("flavors") or {}).values()}]
        for host, amounts in free.items():
            labels = self._labels.get(host, {})
            if all(each in labels for each in above) and all(items <= labels.items() for items in wanted):
                fit = min(amounts.get(name, 0) // of_each for name, of_each in count_of_each(given).items() if of_each)
                room[tuple(labels[each] for each in above)] += int(max(fit, 0))
        yield from (domain for domain, count in room.items() if count >= given["count"])

    def _find_unit(self, other: Obj, pod_set: Obj, level: str) -> set[Domain] | None:
        """Where another Workload has the unit of a pod set: its group, or itself."""
        found = [self.find_domains(given, level) for mine, given in _list_given(other) if _get_unit(mine) == _get_unit(pod_set)]
        return None if None in found else set[Domain]().union(*(each for each in found if each is not None))


def _get_unit(pod_set: Obj) -> str:
    return (pod_set.get("topologyRequest") or {}).get("podSetGroupName") or str(pod_set["name"])


def _list_given(workload: Obj) -> Iterator[tuple[Obj, Obj]]:
    """Pod sets that have a place by hosts, with what they were admitted with."""
    pod_sets = {each["name"]: each for each in workload["spec"]["podSets"]}
    for given in ((workload.get("status") or {}).get("admission") or {}).get("podSetAssignments") or ():
        assigned = given.get("topologyAssignment")
        if assigned and assigned["levels"][-1] == HOSTNAME_LABEL:
            yield pod_sets[given["name"]], given


def _select(workload: Obj, asked: Obj) -> Any:
    """Whether another Workload counts for a pod set: of the same queue and namespace, with the label, and by the flavor and unit. One
    without an admission may count: it may have been decided on."""
    labels = workload["metadata"].get("labels") or {}
    selectors = asked.get("workloadLabelSelectors") or [{"key": JOB_UID_LABEL, "values": [labels.get(JOB_UID_LABEL, "")]}]
    queue = workload["status"]["admission"]["clusterQueue"]

    def counts(other: Obj, given: Obj, pod_set: Obj) -> bool:
        metadata, admission = other["metadata"], (other.get("status") or {}).get("admission") or {}
        mine = (metadata.get("labels") or {}).get(selectors[0]["key"])
        is_like = mine is not None and mine in selectors[0]["values"] and metadata["namespace"] == workload["metadata"]["namespace"]
        is_in_unit = not admission or (
            admission["clusterQueue"] == queue
            and any(
                _get_unit(each) == _get_unit(pod_set)
                and set((theirs.get("flavors") or {}).values()) & set((given.get("flavors") or {}).values())
                for each, theirs in _list_given(other)
            )
        )
        return is_like and is_in_unit and metadata["uid"] != workload["metadata"]["uid"]

    return counts

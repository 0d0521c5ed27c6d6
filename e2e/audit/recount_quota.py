"""Quota as ClusterQueues and Cohorts say it, for the audit in `e2e.audit.recount`: which of them uses more than it may.

Kueue's rule (API fields nominalQuota, borrowingLimit, lendingLimit): a queue or cohort keeps what it has above its lendingLimit, and its
parent has the rest to share. What it uses beyond what it keeps is used of its parent. `core.model.quota_tree` has the same for the product.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from e2e.audit.amounts import Amount, read_quantity, show_amount

Obj = Mapping[str, Any]
Owner = tuple[str, str]  # kind and name
Use = tuple[str, str, str]  # ClusterQueue, flavor, resource


class Quotas:
    """The trees of cohorts. Owners in or below a circle of cohorts have no parent, as the product has it."""

    def __init__(self, cluster_queues: Iterable[Obj], cohorts: Iterable[Obj]) -> None:
        specs: dict[Owner, Obj] = {("queue", queue["metadata"]["name"]): queue.get("spec") or {} for queue in cluster_queues}
        specs |= {("cohort", cohort["metadata"]["name"]): cohort.get("spec") or {} for cohort in cohorts}
        self._entries = {owner: dict(_read_entries(spec)) for owner, spec in specs.items()}
        self.groups = {name: spec.get("resourceGroups") or () for (kind, name), spec in specs.items() if kind == "queue"}
        parents = {owner: spec.get("cohortName" if owner[0] == "queue" else "parentName") for owner, spec in specs.items()}
        children: dict[Owner | None, list[Owner]] = {}
        for owner, parent in parents.items():
            children.setdefault(("cohort", parent) if parent else None, []).append(owner)
        named = [owner for owner in children if owner is not None and owner not in specs]  # a Cohort needs no object
        self._order = [*children.get(None, ()), *named]  # parents first
        self._parents: dict[Owner, Owner] = {}
        for owner in self._order:
            self._order += children.get(owner, ())
            self._parents |= dict.fromkeys(children.get(owner, ()), owner)
        self._order += specs.keys() - set(self._order)

    def find_excess(self, used: Mapping[Use, Amount]) -> Iterator[str]:
        """Sentences about queues and cohorts of whose quota more is used than they may use."""
        for flavor, resource in dict.fromkeys((flavor, resource) for _, flavor, resource in used):
            total: dict[Owner, Amount] = dict.fromkeys(self._order, 0)
            use = total.copy()
            entries = {owner: self._entries.get(owner, {}).get((flavor, resource), {}) for owner in self._order}
            for owner in reversed(self._order):
                total[owner] += entries[owner].get("nominalQuota", 0)
                use[owner] += used.get((owner[1], flavor, resource), 0) if owner[0] == "queue" else 0
                parent = self._parents.get(owner)
                if parent is not None:
                    kept = max(0, total[owner] - entries[owner].get("lendingLimit", total[owner]))
                    total[parent] += total[owner] - kept
                    use[parent] += max(0, use[owner] - kept)
            for owner in self._order:
                most: Amount = total[owner]
                if owner in self._parents:
                    if "borrowingLimit" not in entries[owner]:
                        continue
                    most += entries[owner]["borrowingLimit"]
                if use[owner] > most:
                    limit, uses = f"{show_amount(most)} {resource} of flavor {flavor}", show_amount(use[owner])
                    if owner[0] == "queue":
                        yield f"queue {owner[1]} may use {limit}, and pods use {uses}"
                    else:
                        yield f"cohort {owner[1]} has {limit} to share, and pods use {uses} of it"


def _read_entries(spec: Obj) -> Iterator[tuple[tuple[str, str], dict[str, Amount]]]:
    for group in spec.get("resourceGroups") or ():
        for flavor in group["flavors"]:
            for entry in flavor["resources"]:
                limits = ("nominalQuota", "borrowingLimit", "lendingLimit")
                yield (
                    (flavor["name"], entry["name"]),
                    {limit: read_quantity(str(entry[limit])) for limit in limits if entry.get(limit) is not None},
                )

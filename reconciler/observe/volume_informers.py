"""PersistentVolumeClaims and PersistentVolumes, and which Workloads depend on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from core.plan.steps import api_resources as r
from core.resource import Obj, Resource
from core.runtime.watch.informer import Informer
from core.runtime.watch.store import Change, build_object_key
from core.state.facts import WorkloadFacts, find_controller
from core.state.volumes import Volumes, list_prefixes, list_volume_claims
from reconciler.observe.indexes import find_owned
from reconciler.observe.slim import slim_volume, slim_volume_claim


class ObservedVolumes:
    """Informers of both kinds. `read_again` is called with the keys of Workloads with pods that may use other nodes now."""

    def __init__(
        self,
        make: Callable[[Resource, Callable[[Obj], Obj]], Informer],
        workloads: Informer,
        stateful_sets: Informer,
        read_again: Callable[[Iterable[str]], None],
    ) -> None:
        self.claims, self.volumes = make(r.VOLUME_CLAIMS, slim_volume_claim), make(r.VOLUMES, slim_volume)
        self._workloads, self._stateful_sets, self._read_again = workloads.store, stateful_sets.store, read_again
        self._rules = Volumes(self.claims.store.get, self.volumes.store.get)
        self._workloads.add_index("volume claim", _list_claims)
        self._stateful_sets.add_index("volume claims", _list_claims_of_templates)
        self.claims.add_handler(self._observe_claim)
        self.volumes.add_handler(self._observe_volume)
        stateful_sets.add_handler(self._observe_stateful_set)

    def adjust(self, facts: WorkloadFacts, workload: Obj) -> WorkloadFacts:
        """Returns the facts of a Workload with the nodes that its volumes leave it: see `core.state.volumes`."""
        return self._rules.adjust(facts, workload, self._get_stateful_set(workload))

    def expect_all(self, is_complete: bool) -> None:
        """Sets what a PersistentVolumeClaim that is not observed means. True: it does not exist, and Workloads that name it are refused
        until it does. False: it is not known, and restricts nothing."""
        self._rules = replace(self._rules, misses=is_complete)

    def _observe_claim(self, change: Change) -> None:
        if change.old is None or change.new is None or _list_read(change.old) != _list_read(change.new):
            self._read_dependents(build_object_key(change.obj))

    def _observe_volume(self, change: Change) -> None:
        claim = change.obj["spec"]["claimRef"]
        if claim:
            self._read_dependents(f"{claim.get('namespace')}/{claim.get('name')}")

    def _read_dependents(self, claim: str) -> None:
        self._read_again(map(build_object_key, self._workloads.list_by_index("volume claim", claim)))
        for stateful_set in self._stateful_sets.list_by_index("volume claims", claim.rpartition("-")[0]):
            self._read_workloads_of(stateful_set)

    def _observe_stateful_set(self, change: Change) -> None:
        if change.old is None and _list_claims_of_templates(change.obj):
            self._read_workloads_of(change.obj)

    def _read_workloads_of(self, owner: Obj) -> None:
        self._read_again(map(build_object_key, find_owned(self._workloads, owner)))

    def _get_stateful_set(self, workload: Obj) -> Obj | None:
        owner = find_controller(workload)
        if owner is None or owner["kind"] != "StatefulSet":
            return None
        found = self._stateful_sets.get(f"{workload['metadata']['namespace']}/{owner['name']}")
        return found if found is not None and found["metadata"]["uid"] == owner["uid"] else None


def _list_claims(workload: Obj) -> list[str]:
    namespace, pod_sets = workload["metadata"].get("namespace"), (workload.get("spec") or {}).get("podSets") or ()
    return list(dict.fromkeys(f"{namespace}/{name}" for pod_set in pod_sets for name in list_volume_claims(pod_set)))


def _list_claims_of_templates(stateful_set: Obj) -> list[str]:
    return [f"{stateful_set['metadata'].get('namespace')}/{prefix}" for prefix in list_prefixes(stateful_set)]


def _list_read(claim: Obj) -> tuple[object, ...]:
    return claim["spec"], claim["status"], claim["metadata"].get("deletionTimestamp")

"""Quota and nodes that are being released: which workloads are being evicted, and for which workload."""

from collections.abc import Collection, Container
from typing import NamedTuple

from core.model.quantity import show_count
from core.queueing.flavors.outcome import Preempting, name_workloads
from core.queueing.flavors.spare_lending import list_loans
from core.queueing.preemption.eviction_cycles import Circles
from core.state.cluster import ClusterState
from core.state.facts import WorkloadFacts


class _Notice(NamedTuple):
    """The uid of a workload that is to go, the uid of that for which it goes, and both as the parties that they are."""

    uid: str
    by: str
    pair: tuple[str, str]

    @classmethod
    def build_notice(cls, victim: WorkloadFacts, preemptor: WorkloadFacts) -> "_Notice":
        return cls(victim.uid, preemptor.uid, (victim.party, preemptor.party))


class Claims:
    """The workloads that wait until others are gone, and those others.

    During a cycle a reservation counts as used as soon as its workload had its turn: workloads later in the order see
    no room there, earlier ones do. The reservation of a workload that has lost nodes and takes lent spare nodes back
    counts from the start: without it, what the workload already holds would be useless.
    """

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self.circles = Circles()
        self._by_uid: dict[str, Preempting] = {}
        self._evicting: dict[str, _Notice] = {}  # by key: workloads that are to be evicted and are not seen to be yet
        self._preemptors: set[str] = set()  # uids of workloads for which others were evicted
        self._taking_back: dict[str, tuple[str, Preempting]] = {}  # by uid: key of one that has lost nodes, and what it waits for

    def list_preemptors(self) -> list[str]:
        """Returns the uids of the workloads for which others were evicted, and that have waited since for what these release. They are in
        the order in which that was decided last."""
        return [uid for uid in self._by_uid if uid in self._preemptors]

    def begin(self, pending: Container[str]) -> bool:
        """Begins a cycle: drops reservations of workloads with a uid not in `pending`, and victims that are observed as evicted or gone.
        Reserves again what workloads that take lent spare nodes back wait for, and drops that of those that have lost no nodes now. Returns
        whether records of evictions were dropped, so that a workload may preempt others that it has spared
        (`core.queueing.preemption.eviction_cycles`)."""
        self.withdraw([uid for uid in self._by_uid if uid not in pending])
        facts = self._state.workloads.facts
        is_freed = self.circles.begin(facts, self._state.rule_changes)
        self._evicting = {
            key: entry for key, entry in self._evicting.items() if key in facts and facts[key].uid == entry.uid and not facts[key].evicted
        }
        for uid, (key, preempting) in list(self._taking_back.items()):
            if not self._has_lost(key, uid):
                self._drop_replacement(uid)
            elif not self._state.workloads.is_assumed(key):  # else it has its new place, if only that can be written
                self._state.reserve_beside(key, preempting.beside.amounts, preempting.beside.pods)
        return is_freed

    def list_leaving(self) -> set[str]:
        """Returns the keys of the workloads that are being evicted, observed or only requested, and still hold quota."""
        return self._state.workloads.list_leaving() | {key for key in self._evicting if self._state.workloads.find_holding(key) is not None}

    def list_unseen(self) -> Collection[str]:
        """Returns the keys of the workloads with evictions that are requested and not observed yet. It is a view that changes with them,
        until the next cycle begins."""
        return self._evicting.keys()

    def list_uids(self) -> list[str]:
        """Returns the uids of the workloads that wait until others are gone, and have no place yet, in the order in which that was decided
        last."""
        return list(self._by_uid)

    def has_any(self) -> bool:
        """Whether any workload waits until others are gone, also one that has a place and takes lent spare nodes back."""
        return bool(self._by_uid or self._taking_back)

    def find_preempting(self, uid: str) -> Preempting | None:
        """Returns what a workload without a place waits for, by uid, if it waits for others to go; else None."""
        return self._by_uid.get(uid)

    def is_preemptor(self, uid: str) -> bool:
        """Whether workloads were evicted for this one, and it waits for that room since."""
        return uid in self._by_uid and uid in self._preemptors

    def note(self, workload: WorkloadFacts, preempting: Preempting | None) -> None:
        """Records what a workload waits for from now on, with its victims as requested evictions; it replaces what was recorded before.
        None: for no others; evictions that were requested stay so. What was reserved for it and is not any more is free for others, which
        are decided on again."""
        before = self._by_uid.pop(workload.uid, None)
        if before is not None and (preempting is None or _read_room(preempting) != _read_room(before)):
            self._state.note_unclaimed(before.found.admission.cluster_queue)
        if preempting is not None:
            self._by_uid[workload.uid] = preempting
            if preempting.victims:
                self._preemptors.add(workload.uid)
                self.circles.note(workload, (victim.workload for victim in preempting.victims))
            self._evicting |= {victim.workload.key: _Notice.build_notice(victim.workload, workload) for victim in preempting.victims}
            return
        self._preemptors.discard(workload.uid)

    # --- workloads that have lost nodes -------------------------------------------------------------

    def reserve_replacement(self, workload: WorkloadFacts, preempting: Preempting | None) -> None:
        """Records what a workload that has its place, and has lost nodes, waits for from now on, and reserves it until the end of the
        cycle: that others leave what it lent them.

        None: no others have to be evicted; what was recorded before is dropped. It is also dropped, and others are decided on again, where
        the nodes that it gets in addition have changed.
        """
        _, before = self._taking_back.get(workload.uid, ("", None))
        if before is not None and (preempting is None or preempting.beside != before.beside):
            self._drop_replacement(workload.uid)
        if preempting is not None:
            self._taking_back[workload.uid] = workload.key, preempting
            self._evicting |= {victim.workload.key: _Notice.build_notice(victim.workload, workload) for victim in preempting.victims}
        self.reserve_rest(workload)

    def reserve_rest(self, workload: WorkloadFacts) -> None:
        """Reserves what a workload that has lost nodes waits for, and does not hold, until the end of the cycle: the others do not see it.
        Does nothing where it waits for none."""
        if workload.uid in self._taking_back:
            _, preempting = self._taking_back[workload.uid]
            self._state.reserve_beside(workload.key, preempting.beside.amounts, preempting.beside.pods)

    def is_awaiting(self, workload: WorkloadFacts) -> bool:
        """Whether workloads that must leave lent spare nodes of this one are being evicted, and any of them still is on such a node that is
        ready."""
        _, preempting = self._taking_back.get(workload.uid, ("", None))
        if preempting is None:
            return False
        named, leaving = {victim.workload.key for victim in preempting.victims} | set(preempting.leaving), self.list_leaving()
        nodes, loans = self._state.nodes, list_loans(self._state, workload, leaving)
        return any(not (named & leaving).isdisjoint(loan.keys) for loan in loans if nodes[loan.node].state.ready)

    def _has_lost(self, key: str, uid: str) -> bool:
        facts, state = self._state.workloads.facts.get(key), self._state
        is_there = facts is not None and facts.uid == uid and state.workloads.find_holding(key) is not None
        return is_there and facts is not None and not facts.evicted and bool(facts.unhealthy_nodes or key in state.stuck)

    def _drop_replacement(self, uid: str) -> None:
        _, preempting = self._taking_back.pop(uid, ("", None))
        if preempting is not None:
            self._state.note_unclaimed(preempting.found.admission.cluster_queue)

    # --- the end of waiting -------------------------------------------------------------------------

    def record_admission(self, workload: WorkloadFacts) -> None:
        """Records that a workload is admitted, and waits no more. Its victims stay among those that are leaving."""
        self._by_uid.pop(workload.uid, None)
        self._preemptors.discard(workload.uid)
        self.circles.note_admitted(workload)

    def withdraw(self, uids: Collection[str]) -> None:
        """Removes the reservations of workloads, by uid, and the evictions requested for them that are not observed yet. Unknown uids are
        ignored. The caller names workloads that now need others to go, or none, or for which the eviction may not have been requested.
        Their victims no longer count as leaving for them. Refused workloads that share a root cohort with them are decided on again. What
        `reserve` has counted stays until the end of the cycle; what `reserve_replacement` has recorded stays, too."""
        claims = [claim for claim in (self._by_uid.pop(uid, None) for uid in uids) if claim is not None]
        self._preemptors.difference_update(uids)
        of = set(uids)
        withdrawn = {key: entry for key, entry in self._evicting.items() if entry.by in of} if uids else {}
        self.circles.withdraw(entry.pair for entry in withdrawn.values())
        for key in withdrawn:
            del self._evicting[key]
        for claim in claims:
            self._state.note_unclaimed(claim.found.admission.cluster_queue)

    def reserve(self, workload: WorkloadFacts) -> None:
        """Reserves what a workload waits for, so that the others do not see it, until the end of the cycle. Does nothing where it waits for
        none."""
        claim = self._by_uid.get(workload.uid)
        if claim is not None:
            plan = {placement.pod_set: placement.nodes for _, placement in claim.found.placements}
            self._state.reserve(workload.key, claim.found.admission, plan)

    def exclude_victim(self, key: str) -> list[str]:
        """Records that the victim `key` could not be evicted: it is not leaving. Returns the uids of the workloads that wait for it; their
        reservations stay."""
        entry = self._evicting.pop(key, None)
        self.circles.withdraw([entry.pair] if entry is not None else [])
        waiting = [uid for uid, claim in self._by_uid.items() if any(victim.workload.key == key for victim in claim.victims)]
        return list(dict.fromkeys([*waiting, *([entry.by] if entry is not None else [])]))


def _read_room(preempting: Preempting) -> tuple[object, ...]:
    """Returns the quota and the nodes that are reserved."""
    found = preempting.found
    return found.admission, *((flavor, placed.pod_set, placed.nodes, placed.spares) for flavor, placed in found.placements)


def show(preempting: Preempting, preemptor: WorkloadFacts) -> str:
    """Returns a text about the workloads that one preempts, and how many evicted ones it waits for; empty if there are neither. It has the
    number of the former, and those of its namespace by name (`name_workloads`)."""
    names = [victim.workload.key for victim in preempting.victims]
    leaving, unseen = len(preempting.leaving), len(preempting.unseen)
    waits = f"waits until {show_count(leaving, 'evicted workload')} {'is' if leaving == 1 else 'are'} gone" if leaving else ""
    if unseen:  # it is decided on again in a moment
        waits += (" and " if waits else "waits ") + f"to preempt {show_count(unseen, 'workload')} admitted a moment ago"
    if not names:
        return waits
    by = ", ".join(dict.fromkeys(victim.why for victim in preempting.victims))
    cut = "; the search stopped at its limit of steps, fewer victims may be enough" if preempting.is_cut else ""

    def describe() -> str:
        return f"preempts {show_count(len(names), 'workload')} by {by}: {name_workloads(names, preemptor)}" + (
            f", and {waits}" if waits else ""
        )

    return describe() + cut

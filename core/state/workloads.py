"""Workloads with what was decided for them but not yet observed, and the quota they hold."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from core.model.admission import Admission
from core.model.quota_tree import Amounts, FlavorResource, QuotaOwner, QuotaTree
from core.state.facts import WorkloadFacts
from core.state.spreading_counts import SpreadingIndex
from core.state.workload_indexes import Heirs, StandingIndexes
from core.state.workload_state import judge_standing


@dataclass(slots=True)
class _Assumed:
    admission: Admission
    uid: str | None  # of the workload that it was decided for; None: that is not known yet
    seen_at: int = 0  # resourceVersion of the workload that its write is guarded by
    written_at: int | None = None  # resourceVersion that the write returned


class Workloads:
    """Facts per workload; an assumed decision counts until an event at least as new as its write is observed."""

    def __init__(self, *, counts_spares: bool = False) -> None:
        self._counts_spares = counts_spares  # nodes that are kept free for a workload use quota, too
        self.facts: dict[str, WorkloadFacts] = {}
        self._assumed: dict[str, _Assumed] = {}
        self._heirs = Heirs()
        self._indexes = StandingIndexes()  # kept in step with facts and decisions by `_update`

    def observe(self, key: str, facts: WorkloadFacts | None) -> list[str]:
        """Records a workload's present facts (None: gone), and corrects quota and indexes. An assumed decision ends where it is gone, has
        another uid, or is as new as the confirmed write. Returns the keys of others that hold what they did not hold before, or the other
        way round, since it replaces another one now."""
        affected = self._heirs.put(key, facts.replaces if facts is not None else None)
        self._record(key, facts)
        return [other for other in affected if self._update(other)]

    def _record(self, key: str, facts: WorkloadFacts | None) -> None:
        if facts is None:
            self.facts.pop(key, None)
            self._assumed.pop(key, None)
            self._update(key)
            return
        known = self.facts.get(key)
        if known is not None and known.uid != facts.uid:
            self._assumed.pop(key, None)
        self.facts[key] = facts
        self._settle(key)

    def find_replaced(self, key: str) -> str | None:
        """Returns the key of the workload of the same elastic job that a workload replaces, there or not. None where it replaces none or is
        not observed itself."""
        return self._heirs.get_elder(key)

    def is_replaced(self, key: str) -> bool:
        """Returns whether another workload with the same owner and the same pods replaces this one and holds quota, which then includes
        what this one held. False for one that is not there or has no owner."""
        mine = self.facts.get(key)
        if mine is None or mine.owner_uid is None:
            return False
        heirs = (self.facts.get(heir) for heir in self._heirs.list_heirs(key) if self.find_holding(heir) is not None)
        return any(heir is not None and heir.may_take_over(mine) for heir in heirs)

    def assume(self, key: str, admission: Admission) -> None:
        """Records a decision before its write is sent, in place of an earlier one: it counts as held from now on."""
        facts = self.facts.get(key)
        self._assumed[key] = _Assumed(admission, facts.uid, facts.resource_version) if facts is not None else _Assumed(admission, None)
        self._update(key)

    def begin_write(self, key: str, resource_version: int) -> None:
        """Records the resourceVersion by which the write of an assumed decision is guarded: with an answer to an earlier write the decision
        does not end."""
        assumed = self._assumed.get(key)
        if assumed is not None:
            assumed.seen_at = resource_version

    def is_assumed_for(self, key: str, uid: str | None) -> bool:
        """Returns whether a decision that is not observed yet was made for the workload of a uid (None: of any): another workload may have
        its name now. True also if the workload was not observed when it was made."""
        assumed = self._assumed.get(key)
        return assumed is not None and (uid is None or assumed.uid in (uid, None))

    def confirm(self, key: str, resource_version: int) -> None:
        """Records the resourceVersion that a write of an assumed decision returned; nothing where none is assumed, or where that is of the
        workload as it was before and it has not got this very admission. Where facts at least as new are observed already, the decision
        ends at once."""
        assumed, facts = self._assumed.get(key), self.facts.get(key)
        if assumed is None:
            return
        if resource_version > assumed.seen_at or (facts is not None and facts.admission == assumed.admission):
            assumed.written_at = resource_version
            self._settle(key)

    def drop_assumed(self, key: str) -> None:
        """Removes an assumed decision that could not be written, if there is one: what is observed counts again."""
        self._assumed.pop(key, None)
        self._update(key)

    def _settle(self, key: str) -> None:
        assumed, facts = self._assumed.get(key), self.facts.get(key)
        if assumed is not None and facts is not None and assumed.written_at is not None and facts.resource_version >= assumed.written_at:
            del self._assumed[key]
        self._update(key)

    def _update(self, key: str) -> bool:
        """Updates what is stored per key by facts and decisions; also for the workload that it replaces, and so on: none twice. Returns
        whether it holds something and did not before, or the other way round."""
        following: str | None = key
        changes = list[bool]()
        while following is not None:
            held = self.find_holding(following) is not None
            self._update_alone(following)
            changes.append(held != (self.find_holding(following) is not None))
            following = self._heirs.get_elder(following) if changes[-1] else None
        return changes[0]

    def _update_alone(self, key: str) -> None:
        assumed, is_replaced = self._assumed.get(key), self.is_replaced(key)
        admission = assumed.admission if assumed is not None else None
        standing = judge_standing(self.facts.get(key), admission, is_replaced=is_replaced, counts_spares=self._counts_spares)
        self._indexes.put(key, standing)

    @property
    def quota(self) -> QuotaTree:
        """Returns the quota of ClusterQueues and cohorts, with what is in use: one tree, in which usage changes in place, until
        `arrange`."""
        return self._indexes.quota.tree

    @property
    def spreading(self) -> SpreadingIndex:
        """Returns how many Workloads are in which domain, for rules of topology spreading: one object, which follows what is held."""
        return self._indexes.spreading

    def arrange(self, queues: Iterable[QuotaOwner], cohorts: Iterable[QuotaOwner]) -> None:
        """Replaces the quota tree by a new one of these ClusterQueues and cohorts, with all present usage. The former tree is not kept up
        to date."""
        self._indexes.quota.arrange(queues, cohorts)

    def is_assumed(self, key: str) -> bool:
        """Returns whether a decision on the workload counts that is not observed yet."""
        return key in self._assumed

    def is_moving(self, key: str) -> bool:
        """Returns whether a decision that is not observed yet gives a workload other assignments than those observed, or its first. False
        where none is assumed or it holds no admission that is observed."""
        assumed, facts = self._assumed.get(key), self.facts.get(key)
        if assumed is None or facts is None or facts.admission is None:
            return False
        before, after = ([given.assignment for given in admission.pod_sets] for admission in (facts.admission, assumed.admission))
        return before != after

    def find_holding(self, key: str) -> Admission | None:
        """Returns the admission by which a workload holds quota and domains now: assumed, or observed and not finished. None where it holds
        nothing, or where the workload that replaces it (elastic job) holds that. Its usage is what it still needs, its counts are what it
        was given."""
        return self._indexes.quota.get(key)

    def list_holders(self, cluster_queue: str) -> list[WorkloadFacts]:
        """Returns the facts of the workloads that hold quota of a ClusterQueue, assumed decisions included, as a new list. Those with the
        latest changes of what they hold come last; one that is not observed is left out."""
        return [self.facts[key] for key in self._indexes.quota.list_holders(cluster_queue) if key in self.facts]

    def list_unseen(self) -> list[tuple[WorkloadFacts, str]]:
        """Returns, as a new list, the workloads with an admission that is decided and not observed yet, with the ClusterQueue of it; none
        that held one before."""
        assumed = [(self.facts.get(key), each.admission.cluster_queue) for key, each in self._assumed.items()]
        return [(facts, queue) for facts, queue in assumed if facts is not None and facts.admission is None]

    def list_local_holders(self, local_queue: str) -> list[WorkloadFacts]:
        """Returns the facts of the workloads of a LocalQueue that hold quota, assumed decisions included, as a new list. Those that have
        held it longest come first."""
        return [self.facts[key] for key in self._indexes.lines.list_line(local_queue, holds=True)]

    def count_pending(self, local_queue: str) -> int:
        """Returns the number of workloads of a LocalQueue that wait for a decision, as in `list_pending`."""
        return self._indexes.lines.count_line(local_queue, holds=False)

    def list_leaving(self) -> set[str]:
        """Returns the keys, as a new set, of workloads that are evicted and still hold something."""
        return set(self._indexes.leaving)

    def list_starting(self) -> Mapping[str, str]:
        """Returns the ClusterQueue of each workload, by its key, that holds quota, is not evicted and has pods that are not reported as
        ready. The mapping is not a copy: it changes with the workloads."""
        return self._indexes.starting

    def list_lenders(self) -> Sequence[str]:
        """Returns the keys, as a new list, of workloads with nodes that are kept free for them and that they lend. Those that are evicted
        or need the nodes now are among them; see `is_lending`."""
        return list(self._indexes.lending.lenders)

    def is_lending(self, key: str) -> bool:
        """Returns whether a workload lends nodes that are kept free for it now. It is one of `list_lenders`, active, not evicted or being
        deleted, and has no unhealthy nodes."""
        facts = self.facts.get(key) if key in self._indexes.lending.lenders else None
        return facts is not None and facts.active and not (facts.evicted or facts.deleting or facts.unhealthy_nodes)

    def has_borrowers(self) -> bool:
        """Returns whether any workload was given spare nodes of others."""
        return self._indexes.lending.has_borrowers()

    def find_borrowers(self, host: str) -> Sequence[str]:
        """Returns the keys, as a new list, of workloads that were given a spare node of another one, by the node's hostname. Empty where
        none was."""
        return self._indexes.lending.find_borrowers(host)

    def list_awaiting_topology(self) -> list[WorkloadFacts]:
        """Returns the facts of active workloads that hold quota by an observed admission, and have a pod set with places still to be found
        (`delayed`). Evicted ones are left out, and so are those with a decision on its way. The list is new."""
        return list(self._indexes.awaiting.values())

    def list_unhealthy(self) -> list[WorkloadFacts]:
        """Returns the facts of active workloads with an observed admission and nodes in `status.unhealthyNodes`; evicted ones are left out,
        and so are those with a decision on its way."""
        return list(self._indexes.unhealthy.values())

    def list_pending(self) -> Iterable[WorkloadFacts]:
        """Returns the facts of workloads that wait for a decision: active, without quota, not finished, being deleted, on hold or replaced.
        They are a view that changes with the workloads, in the order in which they began to wait."""
        return self._indexes.lines.pending.values()

    def find_pending(self, key: str) -> WorkloadFacts | None:
        """Returns the facts of a workload, if it waits for a decision; else None."""
        return self._indexes.lines.pending.get(key)

    def watch_pending(self) -> set[str]:
        """Returns a new set of keys of workloads that wait. From now on each that begins or ends to wait, or changes, is added; the caller
        empties it (`Lines.watch`)."""
        return self._indexes.lines.watch()

    def remove_pending_watch(self, watch: set[str]) -> None:
        """Ends that keys are added to a set of `watch_pending`; nothing happens for any other set."""
        self._indexes.lines.remove_watch(watch)

    def compute_usage_below(self, cluster_queue: str, priority: int, name: FlavorResource, *, inclusive: bool = False) -> int:
        """Returns what workloads of a priority below `priority` hold of a flavor and resource of a ClusterQueue, in canonical units.
        `inclusive`: those of `priority` itself count, too. Evicted ones do not count."""
        return self._indexes.quota.sum_below(cluster_queue, priority, name, inclusive=inclusive)

    def compute_leaving_usage(self, cluster_queue: str) -> Amounts:
        """Returns what evicted workloads still hold of a ClusterQueue's quota, by flavor and resource in canonical units. It is no copy."""
        return self._indexes.quota.get_going(cluster_queue)

    def get_usage(self, cluster_queue: str) -> Amounts:
        """Returns the quota of a ClusterQueue that is held, evicted workloads included, by flavor and resource in canonical units. It is no
        copy."""
        return self._indexes.quota.get_usage(cluster_queue)

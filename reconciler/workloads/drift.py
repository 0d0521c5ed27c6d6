"""The audit of drift: soon after a process has begun to lead, once a minute from then on, and soon after a node got
other labels, all running pods are compared with their assignments (`core.plan.workloads.drift`), reported on the
Workload and counted.

What can be corrected without ending running pods is corrected elsewhere: pods that are not bound yet by the ungater,
lost nodes by the second pass, the ledger by a recount. What is left needs an administrator: the condition describes it,
and returns to True when it is over.
"""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial

from core.model.admission import PodSetAdmission
from core.plan.pods.node_health import explain_departure
from core.plan.steps import pacing
from core.plan.steps.steps import make_plan
from core.plan.workloads.drift import Drift, DriftKind, find_drift
from core.plan.workloads.reports import report_drift
from core.resource import Obj
from core.runtime.apart import FEW, run_apart
from core.runtime.clock import Clock
from core.runtime.http.errors import KubeError
from core.runtime.watch.store import Change
from core.state.facts import FlavorFacts, NodeFacts, PodFacts, TopologyFacts, WorkloadFacts, find_family
from reconciler.execute.executor import Executor
from reconciler.observe.observed import Observed

logger = logging.getLogger(__name__)


class DriftAudit:
    """`counts` has how many workloads are adrift, by the gravest kind, as the last audit found them."""

    def __init__(self, observed: Observed, executor: Executor, clock: Clock) -> None:
        self._observed, self._executor, self._clock = observed, executor, clock
        self.counts: Mapping[DriftKind, int] = dict.fromkeys(DriftKind, 0)
        self._relabelled = asyncio.Event()
        observed.nodes.add_handler(self._on_node)

    def _on_node(self, change: Change) -> None:
        if change.old is None or change.new is None:
            return
        labels = {level for topology in self._observed.state.topologies.values() for level in topology.levels}
        labels |= {label for flavor in self._observed.state.flavors.values() if flavor.topology for label in flavor.node_labels}
        before, now = _get_labels(change.old), _get_labels(change.new)
        if any(before.get(label) != now.get(label) for label in labels):
            self._relabelled.set()

    async def run(self) -> None:
        """Audits `pacing.DRIFT_SETTLE_S` seconds after its start, then once in `pacing.AUDIT_S` seconds and soon after a node's level or
        flavor labels have changed. Never returns."""
        while True:  # at first without a wait: leaders that follow one another within a minute would never look
            await self._clock.sleep(pacing.DRIFT_SETTLE_S)  # a rack is relabelled node by node
            self._relabelled.clear()
            await self.audit()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pacing.AUDIT_S):
                    await self._relabelled.wait()

    async def audit(self) -> None:
        """Compares the running pods of all workloads with their assignments once and writes the condition of each workload for which it
        changes. Sets `counts`: workloads by the kind of their first drift, 0 for kinds without any. A workload that cannot be judged is set
        aside; a write that fails is logged."""
        found: Counter[DriftKind] = Counter()
        keys = list(self._observed.state.workloads.facts)
        seen = 0
        for key in keys:
            if seen >= pacing.DRIFT_AT_ONCE:
                seen = 0
                await self._clock.sleep(0)
            facts, workload = self._observed.state.workloads.facts.get(key), self._observed.workloads.store.get(key)
            if facts is None or workload is None:
                continue
            seen += 1 + sum(given.count for given in facts.admission.pod_sets) if facts.admission is not None else 1
            try:
                drifts = await self._find_drifts(facts, workload)
                if self._observed.workloads.store.get(key) is not workload:
                    continue  # the next audit looks at it as it is then
                if drifts:
                    found[drifts[0].kind] += 1
                await self._report(workload, drifts, runs=facts.runs)
            except Exception as error:
                self._observed.set_aside.add(self._observed.workloads.resource, key, workload, error)
        self.counts = {kind: found[kind] for kind in DriftKind}

    async def _find_drifts(self, facts: WorkloadFacts, workload: Obj) -> Sequence[Drift]:
        if facts.admission is None or not facts.runs:
            return ()
        if all(given.assignment is None for given in facts.admission.pod_sets) and self._observed.counted is None:
            return ()
        pods = self._observed.list_pods(find_family(workload))
        nodes = self._observed.state.nodes
        nodes = nodes if len(pods) <= FEW else dict(nodes)  # in a thread they change meanwhile
        return await run_apart(len(pods), partial(self._find_drift, facts, pods, nodes))

    def _find_drift(self, facts: WorkloadFacts, pods: Sequence[PodFacts], nodes: Mapping[str, NodeFacts]) -> Sequence[Drift]:
        own = [pod for pod in pods if pod.owner_uid == facts.owner_uid is not None]
        return find_drift(facts, own, nodes, self._list_levels, self._explain_departure)

    def _list_levels(self, given: PodSetAdmission) -> Sequence[str]:
        _, topology = self._find_topology(given)
        return topology.levels if topology is not None else ()

    def _explain_departure(self, given: PodSetAdmission, node: NodeFacts) -> str:
        flavor, topology = self._find_topology(given)
        if flavor is not None and topology is not None:
            return explain_departure(node.labels, flavor, topology)
        lacks = f"flavor {' or '.join(sorted({*given.flavors.values()}))} is not there any more, or has no topology"
        if flavor is not None:
            lacks = f"topology {flavor.topology} of its flavor is not there any more"
        return f"{lacks}: pods that are made anew stay gated until it is made again"

    def _find_topology(self, given: PodSetAdmission) -> tuple[FlavorFacts | None, TopologyFacts | None]:
        state = self._observed.state
        flavor = state.flavors.get(state.find_topology_flavor(given.flavors.values()) or "")
        return flavor, state.topologies.get(flavor.topology or "") if flavor is not None else None

    async def _report(self, workload: Obj, drifts: Sequence[Drift], *, runs: bool) -> None:
        try:
            await self._executor.execute(make_plan(report_drift(workload, drifts, self._executor.format_now(), runs=runs)))
        except KubeError as error:  # the next audit reports it
            logger.warning("drift could not be reported", extra={"workload": workload["metadata"]["name"], "error": str(error)})


def _get_labels(node: Obj) -> Mapping[str, str]:
    return node["metadata"].get("labels") or {}

"""The native way: a group is handed to kube-scheduler's own topology-aware scheduling (Kubernetes 1.36, with its feature gates on), and
what it makes of it is explained and verified. Pods belong to such a group by `spec.schedulingGroup`; nothing is written to them.
"""

from collections.abc import Sequence
from typing import Any

from core.model.quantity import show_count
from core.model.step_budget import StepBudget
from core.placement.topology.free_capacity import FreeCapacity
from core.podgroups.acting import SCATTERED, SCHEDULED, UNSCHEDULABLE, WAITING, GroupStep
from core.podgroups.algorithm import decide
from core.podgroups.framework import Plugins
from core.podgroups.group import PodGroupInfo, TopologyConstraint
from core.podgroups.group_explanation import explain
from core.podgroups.members import GroupKey, Member, as_pod_sets, order_members, split
from core.podgroups.podgroup_facts import KUBERNETES, OURS, PodGroupFacts
from core.podgroups.required_domain import count_there, describe_spread, find_domain


class NotNative(ValueError):
    """A group that a PodGroup of kube-scheduler cannot express; the message names all that it lacks."""


def build_native_group(facts: PodGroupFacts, levels: Sequence[TopologyConstraint], key: GroupKey) -> dict[str, Any]:
    """Returns the PodGroup of scheduling.k8s.io, in JSON, that is equivalent to one replica of ours, and owned by ours. `levels`: as node
    labels. Raises NotNative, which names all of them, for more than one level, a preferred level, `desiredCount` and device constraints."""
    lacks = []
    if len(levels) > 1:
        lacks.append(f"{len(levels)} levels (it takes one)")
    lacks += [f"level {level.level} that is preferred (it only requires)" for level in levels if level.preferred]
    if facts.desired_count is not None:
        lacks.append("desiredCount")
    if facts.claim_templates:
        lacks.append("draConstraints")
    if lacks:
        raise NotNative(
            f"kube-scheduler's own PodGroup has no {', no '.join(lacks)}; pods with the gate of topogate are placed by it instead"
        )
    policy: dict[str, Any] = {"basic": {}} if facts.min_count is None else {"gang": {"minCount": facts.min_count}}
    spec: dict[str, Any] = {"schedulingPolicy": policy}
    if levels:
        spec["schedulingConstraints"] = {"topology": [{"key": levels[0].level}]}
    owner = {"apiVersion": OURS, "kind": "PodGroup", "name": facts.name, "uid": facts.uid, "controller": True}
    metadata = {"name": build_native_name(key), "namespace": key.namespace, "ownerReferences": [owner]}
    return {"apiVersion": KUBERNETES, "kind": "PodGroup", "metadata": metadata, "spec": spec}


def build_native_name(key: GroupKey) -> str:
    """Returns the name of kube-scheduler's group of one replica: the name of topogate's, followed by the number of the
    replica but for the first."""
    return f"{key.name}-{key.replica}" if key.replica else key.name


def plan_native_step(
    facts: PodGroupFacts,
    levels: Sequence[TopologyConstraint],
    key: GroupKey,
    members: Sequence[Member],
    view: FreeCapacity,
    plugins: Plugins,
) -> GroupStep:
    """Returns a step without actions, with the state of one replica that kube-scheduler places, and why it may have placed none of its
    pods. `levels`: its levels as node labels; `members` are all pods that name it, and `view` counts what bound ones have as used.

    Raises InvalidSelector where a node affinity cannot be evaluated, GroupTooLarge where too many pods or unlike pods wait, and what the
    plugins raise (NotServed, Unanswered).
    """
    view = view.copy_with_budget(StepBudget())
    live = order_members(member for member in members if member.is_live)
    bound, pending = [m for m in live if m.node in view.tree.index], [m for m in live if not m.node]
    done = sum(member.succeeded for member in members)
    on = count_there((member.node for member in bound), view)
    where = find_domain(levels, on, view)
    if where is None:
        return GroupStep(False, SCATTERED, f"kube-scheduler has bound {show_count(len(bound), 'pod')} {describe_spread(levels, on, view)}")
    wanted = facts.min_count or 1
    if len(live) + done < wanted:
        return GroupStep(False, WAITING, f"{len(live) + done} of at least {wanted} pods are there")
    if not pending:
        return GroupStep(True, SCHEDULED, f"kube-scheduler has bound {show_count(len(bound), 'pod')}{f' in {where}' if where else ''}")
    pod_sets, missing = as_pod_sets(split(pending, view.neighbours)), max(wanted - done, len(bound) + 1)
    group = PodGroupInfo(key.namespace, key.name, pod_sets, tuple(levels), missing, None, key.replica, on)
    outcome = decide(view, group, plugins)
    said = next((member.unschedulable for member in pending if member.unschedulable), "")
    is_enough = len(bound) + done >= wanted
    reason = SCHEDULED if is_enough else UNSCHEDULABLE
    before = f"kube-scheduler has bound {len(bound)} of {show_count(len(live), 'pod')}"
    if outcome.chosen is not None:
        would = f"placement {outcome.chosen.placement.name} has room for the rest" if outcome.chosen.placement.name else "there is room"
        return GroupStep(is_enough, reason, f"{before}, though {would}{f'; it says: {said}' if said else ''}", waits=True)
    lacks = explain(view, group, outcome.tried)
    return GroupStep(is_enough, reason, f"{before}: {lacks}", waits=True, explanation=lacks)

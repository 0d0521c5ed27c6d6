"""What controllers made for a job, such as the JobSet of a TrainJob and its Jobs, and whether it is more than was admitted."""

from functools import partial

from core.jobs.contract import JobKind
from core.model.pod_resources import Resources, compute_pod_requests
from core.names import MAIN_POD_SET
from core.plan.jobs.prebuilt import find_more_claims
from core.plan.steps.excess import limit_to_admitted
from core.plan.workloads.desired_workload import get_admitted_counts
from core.resource import Obj
from core.runtime.watch.store import build_object_key
from core.state.facts import WorkloadFacts, find_controller
from reconciler.observe.indexes import show_as_owner
from reconciler.observe.observed import Observed


def find_parts(observed: Observed, job: Obj) -> list[tuple[JobKind, Obj]]:
    """Returns the objects of queued kinds below a job, as pairs (kind, object): what its controller made, and what that made in turn, by
    owner references. The job itself is not there. Each is there once, in no order."""
    found = []
    key = show_as_owner(job)
    for below in observed.owners.list_descendants(key) - {key}:
        parts = (
            (observed.kinds[key], part) for key, informer in observed.jobs.items() for part in informer.store.list_by_index("uid", below)
        )
        found += [part for part in [next(parts, None)] if part is not None]
    return found


def limit_facts(observed: Observed, facts: WorkloadFacts) -> WorkloadFacts:
    """Returns the facts of a workload with no higher requests than quota was reserved for, a pod of each pod set: what a LimitRange or a
    RuntimeClass has added since is cut off. Only resources that the ClusterQueue covers are cut. Returns `facts` itself where none is
    higher, nothing is admitted, or its ClusterQueue is gone."""
    queue = observed.state.cluster_queues.get(facts.admission.cluster_queue) if facts.admission is not None else None
    if facts.admission is None or queue is None:
        return facts
    covered = {name for group in queue.groups for name in group.resources}
    read_template = partial(_read_template, observed, facts.key)
    return limit_to_admitted(facts, facts.admission, covered, observed.state.resource_rules, read_template)


def _read_template(observed: Observed, key: str, pod_set: str) -> Resources:
    """What the template of a pod set requests in the Workload itself; nothing where the Workload or the pod set is gone."""
    workload = observed.workloads.store.get(key)
    for each in workload["spec"].get("podSets") or () if workload is not None else ():
        if (each.get("name") or MAIN_POD_SET) == pod_set:
            return compute_pod_requests((each.get("template") or {}).get("spec") or {})
    return {}


def find_excess_of_parts(observed: Observed, job: Obj, workload: Obj) -> str:
    """Returns, as text, the first thing that was made for a running job beyond the admission of its `workload`: more pods of a pod set in
    one part, larger ones, ones with other claims if quota counts these, or an unknown pod set. Looks only at parts that the job itself
    controls, and that are neither suspended nor finished. Empty if there is none, or nothing is admitted. The controller of a job that
    refers to its templates reads these when it makes a part. It makes a part that was deleted by what they are then."""
    facts = observed.state.workloads.facts.get(build_object_key(workload))
    if facts is None or facts.admission is None:
        return ""
    counts = get_admitted_counts(workload)
    templates = {each.get("name") or MAIN_POD_SET: each.get("template") or {} for each in workload["spec"]["podSets"]}
    requests = {pod_set.name: pod_set.requests for pod_set in limit_facts(observed, facts).pod_sets}
    for kind, part in find_parts(observed, job):
        owner = find_controller(part)
        if owner is None or owner["uid"] != job["metadata"]["uid"] or kind.is_suspended(part) or kind.find_finish(part) is not None:
            continue
        named = f"{kind.kind} {part['metadata']['name']}"
        for pod_set in kind.list_pod_sets(part):
            if pod_set.name not in counts:  # of many templates the first are listed: pods may be behind those that have none
                return f"{named} has pods as {pod_set.name}, which was not admitted"
            if pod_set.count > counts[pod_set.name]:
                return f"{named} has {pod_set.count} pods as {pod_set.name}, {counts[pod_set.name]} were admitted"
            asked = compute_pod_requests(pod_set.template.get("spec") or {})
            if any(amount > requests[pod_set.name].get(name, 0) for name, amount in asked.items()):
                return f"the pods of {named} request more as {pod_set.name} than was admitted"
            if observed.counted is not None and (more := find_more_claims(pod_set.template, templates[pod_set.name])):
                return f"the pods of {named} claim devices as {pod_set.name} that were not admitted: {', '.join(more[:3])}"
    return ""

"""Every name on a trace: spans, their events, attributes. docs/traces.md has the same as tables, held to it by a test.

`k8s.*` are names of OpenTelemetry's semantic conventions, with their meaning; what is ours begins with `topogate.`.
"""

from collections.abc import Mapping

# --- spans ------------------------------------------------------------------------------------------------

REVIEW = "admission.review"
CONVERSION = "conversion.review"
CYCLE = "scheduler.cycle"
CREATE = "workload.create"
QUEUED = "workload.queued"
SOLVE = "placement.solve"
ADMIT = "workload.admit"
PROVISION = "nodes.request"
CHECKED = "workload.checked"
START = "job.start"
GATHERED = "pods.gathered"
UNGATE = "pods.ungate"
BOUND = "pods.bound"
EVICT = "workload.evict"
RELEASE = "workload.release"
FINISH = "workload.finish"
GROUP = "podgroup.observe"
KEEP = "places.keep"

SPANS: Mapping[str, tuple[str, str]] = {  # the process that emits it, and what it is
    REVIEW: ("webhook", "One admission review. That of a new job begins its trace; later ones of it and of its Workload join it"),
    CONVERSION: ("webhook", "One conversion between v1beta1 and v1beta2, a trace of its own"),
    CREATE: ("reconciler", "The Workload is made for a job, or for pods; linked to the traces of all of these pods"),
    QUEUED: ("reconciler", "From when the Workload was made or evicted until it got quota, time out after an eviction included"),
    SOLVE: ("reconciler", "One decision on it: flavors tried, best domains, place or refusal; linked to the cycle that it was part of"),
    ADMIT: ("reconciler", "The admission is written: quota and place, or quota alone where admission checks come first"),
    PROVISION: ("reconciler", "A ProvisioningRequest is made for it"),
    CHECKED: ("reconciler", "From when it had quota until its admission checks were passed"),
    START: ("reconciler", "The job is unsuspended, or its pods lose the admission gate; linked to the decision"),
    GATHERED: (
        "reconciler",
        "From its admission until its first pods were there, and gathered; of later pods, from their creation",
    ),
    UNGATE: (
        "reconciler",
        "Some of its pods lose the topology gate and get their domain; linked to the decision and to pods' own traces",
    ),
    BOUND: ("reconciler", "From its first ungating until all of its pods were seen bound"),
    EVICT: ("reconciler", "It loses its place; where that is for another's sake linked to the decision on that one"),
    RELEASE: ("reconciler", "All of it has stopped: its quota and domains are free again"),
    FINISH: ("reconciler", "It is said to be over"),
    GROUP: ("reconciler", "A PodGroup without a trace is observed for the first time: its trace begins"),
    KEEP: ("reconciler", "Places are kept for pods of a group, before any of them is let go"),
    CYCLE: ("reconciler", "One round of decisions in which something was decided, a trace of its own"),
}

# --- events -----------------------------------------------------------------------------------------------

FLAVOR_REFUSED = "flavor.refused"
LEVEL_BEST = "level.best_domain"
NODES_EXCLUDED = "nodes.excluded"
FLAVOR_ASSIGNED = "flavor.assigned"
PLACED = "pod_set.placed"
CHOSEN = "domain.chosen"
VICTIM_CHOSEN = "victim.chosen"
VICTIM_LEAVING = "victim.leaving"
VICTIM_UNSEEN = "victim.unseen"
CHECK_STATE = "check.state"
DOMAIN_UNGATED = "domain.ungated"
POD_FAILED = "pod.failed"
PLACEMENT_LACKS = "placement.lacks"
NODE_KEPT = "node.kept"

EVENTS: Mapping[str, tuple[str, str]] = {  # the span that it is on, and what it says
    FLAVOR_REFUSED: (SOLVE, "A flavor that was tried, and why it does not serve"),
    LEVEL_BEST: (
        SOLVE,
        "The best domain of a level: of each one of a flavor that did not serve, and of the one asked for where it widened",
    ),
    NODES_EXCLUDED: (SOLVE, "Nodes that take no pod, by reason, with one of them as an example"),
    FLAVOR_ASSIGNED: (SOLVE, "The flavors that a pod set gets"),
    PLACED: (SOLVE, "Where a pod set goes; of a workload that waits for victims, where it will"),
    CHOSEN: (SOLVE, "Why there: the domain that was taken, and the next best"),
    VICTIM_CHOSEN: (SOLVE, "A workload that has to go for it, and by what right"),
    VICTIM_LEAVING: (SOLVE, "A workload that it waits for, which was evicted before"),
    VICTIM_UNSEEN: (SOLVE, "A workload that has to go for it as soon as its admission, decided a moment ago, is observed"),
    CHECK_STATE: (CHECKED, "An admission check, at the time at which it got its state"),
    DOMAIN_UNGATED: (UNGATE, "Pods that were given one domain"),
    POD_FAILED: (UNGATE, "A pod that could not be ungated, and why; the same on the span by which pods are started"),
    PLACEMENT_LACKS: (SOLVE, "A placement that does not take a group: how many pods it takes, and what it lacks for all"),
    NODE_KEPT: (SOLVE, "A node on which places are kept for pods of a group; the same on the span by which they are let go"),
}

# --- attributes -------------------------------------------------------------------------------------------

NAMESPACE = "k8s.namespace.name"
JOB_NAME = "k8s.job.name"
STATEFUL_SET_NAME = "k8s.statefulset.name"
POD_NAME = "k8s.pod.name"
NODE_NAME = "k8s.node.name"
OBJECT_KIND = "topogate.object.kind"
OBJECT_NAME = "topogate.object.name"
REVIEW_PATH = "topogate.admission.path"
REVIEW_OPERATION = "topogate.admission.operation"
REVIEW_UID = "topogate.admission.uid"
REVIEW_DRY_RUN = "topogate.admission.dry_run"
REVIEW_ALLOWED = "topogate.admission.allowed"
CONVERSION_UID = "topogate.conversion.uid"
CONVERSION_VERSION = "topogate.conversion.desired"
CONVERSION_COUNT = "topogate.conversion.objects"
CONVERSION_KINDS = "topogate.conversion.kinds"
WORKLOAD = "topogate.workload.name"
REQUEUE_COUNT = "topogate.workload.requeue_count"
POD_GROUP = "topogate.pod_group.name"
REPLICA = "topogate.pod_group.replica"
PREEMPTOR = "topogate.preemptor.name"
VICTIM = "topogate.victim.name"
VICTIM_COUNT = "topogate.victim.count"
CLUSTER_QUEUE = "topogate.cluster_queue.name"
PASS = "topogate.decision.pass"
REFUSED = "topogate.refused"
BEGINS = "topogate.trace.begins"
REASON = "topogate.reason"
MESSAGE = "topogate.message"
FORMER = "topogate.former"
FLAVOR = "topogate.flavor.name"
BORROWS = "topogate.quota.borrows"
POD_SET = "topogate.pod_set.name"
LEVEL = "topogate.topology.level"
DOMAIN = "topogate.domain.name"
DOMAIN_COUNT = "topogate.domain.count"
DOMAIN_FIT = "topogate.domain.fit"
DOMAIN_WANTED = "topogate.domain.wanted"
POD_COUNT = "topogate.pod.count"
NODE_COUNT = "topogate.node.count"
SPARES = "topogate.node.spares"
CHECK = "topogate.check.name"
STATE = "topogate.check.state"
PROVISIONING_REQUEST = "topogate.provisioning_request.name"
VERDICT_COUNT = "topogate.verdict.count"

FIRST_PASS, SECOND_PASS, REPLACEMENT = "first", "second", "replacement"  # of PASS

ATTRIBUTES: Mapping[str, str] = {
    NAMESPACE: "Namespace of the job",
    JOB_NAME: "The job, where it is a batch/v1 Job",
    STATEFUL_SET_NAME: "The StatefulSet that was queued",
    POD_NAME: "The pod that was queued by itself, or could not be ungated",
    NODE_NAME: "A node, as an example",
    OBJECT_KIND: "Kind of what was reviewed, or of what a Workload stands for",
    OBJECT_NAME: "Its name, or before it has one what its name begins with",
    REVIEW_PATH: "Path of the review",
    REVIEW_OPERATION: "CREATE, UPDATE or DELETE",
    REVIEW_UID: "Uid of the review, as in the audit log of the API server",
    REVIEW_DRY_RUN: "Whether nothing is to be kept",
    REVIEW_ALLOWED: "The answer",
    CONVERSION_UID: "Uid of the conversion review",
    CONVERSION_VERSION: "The version that was asked for",
    CONVERSION_COUNT: "How many objects it had",
    CONVERSION_KINDS: "Their kinds",
    WORKLOAD: "The Workload",
    REQUEUE_COUNT: "How often it was queued again after its pods were not ready in time",
    POD_GROUP: "The PodGroup",
    REPLICA: "Which of its replicas, from 0",
    PREEMPTOR: "Namespace and name of the Workload that it makes room for",
    VICTIM: "Namespace and name of a Workload that has to go",
    VICTIM_COUNT: "How many have to go; of very many only the first are events",
    CLUSTER_QUEUE: "The ClusterQueue",
    PASS: "`first`; `second`: a place after admission checks; `replacement`: a place for pods of failed nodes",
    REFUSED: "True where the answer was no; a trace with such a span is always kept",
    BEGINS: "True on the first span of a trace of a workload, which is always kept",
    REASON: "The reason, as in the condition or event",
    MESSAGE: "The sentence that users see, word for word",
    FORMER: "Of one that was evicted before: why, where it was, and where it is placed again",
    FLAVOR: "The ResourceFlavor, of a pod set with several all of them",
    BORROWS: "Whether it borrows from its cohort",
    POD_SET: "The pod set, or those that were tried together",
    LEVEL: "Node label of a level",
    DOMAIN: "A domain, as the values of its levels",
    DOMAIN_COUNT: "How many domains",
    DOMAIN_FIT: "How many pods or slices the domain had room for",
    DOMAIN_WANTED: "How many were wanted there",
    POD_COUNT: "How many pods",
    NODE_COUNT: "How many nodes",
    SPARES: "Nodes that were kept free for it and take the pods of failed ones",
    CHECK: "The AdmissionCheck",
    STATE: "Its state",
    PROVISIONING_REQUEST: "The ProvisioningRequest",
    VERDICT_COUNT: "Decisions of a cycle",
}

# Spans that last as long as work takes, not as long as a workload waits: one of these that is slow is worth its trace.
WORK = frozenset({REVIEW, CONVERSION, CYCLE, CREATE, SOLVE, ADMIT, START, EVICT})


def format_tables() -> str:
    """All of them as docs/traces.md has them."""
    spans = "\n".join(f"| `{name}` | {process} | {says} |" for name, (process, says) in SPANS.items())
    events = "\n".join(f"| `{name}` | `{span}` | {says} |" for name, (span, says) in EVENTS.items())
    attributes = "\n".join(f"| `{name}` | {says} |" for name, says in ATTRIBUTES.items())
    return (
        f"| Span | Process | What it is |\n|---|---|---|\n{spans}\n\n"
        f"| Event | On | What it says |\n|---|---|---|\n{events}\n\n"
        f"| Attribute | Meaning |\n|---|---|\n{attributes}\n"
    )


if __name__ == "__main__":
    print(format_tables(), end="")

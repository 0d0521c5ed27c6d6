"""Every metric: its name, its labels and what it says. docs/metrics.md has the same as a table, held to it by a test.

`kueue_` are Kueue's names, with its labels and its meaning, so that dashboards carry over; what is ours begins with
`topogate_`. No label holds a name of a job, a pod or a node: those belong on spans.
"""

from dataclasses import replace

from core.model.pause_state import PAUSABLE
from core.names import (
    ADMISSION_GATE,
    REASON_ADMISSION_CHECK,
    REASON_DEACTIVATED,
    REASON_FAIR_SHARING,
    REASON_IN_QUEUE,
    REASON_LIMIT_EXCEEDED,
    REASON_LOCAL_QUEUE_STOPPED,
    REASON_MAX_EXEC_TIME,
    REASON_NODE_FAILURES,
    REASON_PODS_READY_TIMEOUT,
    REASON_PREEMPTED,
    REASON_QUEUE_STOPPED,
    REASON_RECLAIMED,
    REASON_RECLAIMED_BY_BORROWER,
    REASON_SPARES_TAKEN_BACK,
    REASON_START_REFUSED,
    TOPOLOGY_GATE,
)
from core.runtime.report.metrics import Instrument, Kind, Label

# --- labels ---------------------------------------------------------------------------------------------

ACTIVE, INADMISSIBLE = "active", "inadmissible"
SUCCESS = "success"
PENDING_QUEUE, TERMINATING = "pending", "terminating"
FOUND, REFUSED = "found", "refused"
DRIFTS = ("MoreDevices", "Outside", "Relabelled", "Split")
HELD, MISSING, LENT = "held", "missing", "lent"
USABLE, CORDONED, NOT_READY = "usable", "cordoned", "not_ready"
LEADS = "leader"  # a replica that does not lead counts nothing
ALLOWED, DENIED, MALFORMED, FAILED = "allowed", "denied", "malformed", "failed"

CLUSTER_QUEUE = Label("cluster_queue")
COHORT = Label("cohort")
FLAVOR = Label("flavor")
RESOURCE = Label("resource")
LEVEL = Label("level")
CONTROLLER = Label("controller")
_WAITING = Label("status", frozenset({ACTIVE, INADMISSIBLE}))
_QUEUE_STATUS = Label("status", frozenset({PENDING_QUEUE, ACTIVE, TERMINATING}))
_ATTEMPT = Label("result", frozenset({SUCCESS, INADMISSIBLE}))
_EVICTIONS = Label(
    "reason",
    frozenset(
        {
            REASON_ADMISSION_CHECK,
            REASON_DEACTIVATED,
            REASON_LOCAL_QUEUE_STOPPED,
            REASON_NODE_FAILURES,
            REASON_PODS_READY_TIMEOUT,
            REASON_PREEMPTED,
            REASON_QUEUE_STOPPED,
        }
    ),
)
CAUSE_MARK = f"{REASON_DEACTIVATED}DueTo"  # what follows in a reason is why it was deactivated
CHECK_REJECTED, JOB_CHANGED, JOB_SUSPENDED = "AdmissionCheckRejected", "JobChanged", "JobSuspended"
_CAUSES = Label(
    "underlying_cause",
    frozenset({"", CHECK_REJECTED, JOB_CHANGED, JOB_SUSPENDED, REASON_LIMIT_EXCEEDED, REASON_MAX_EXEC_TIME, REASON_START_REFUSED}),
)
_PREEMPTIONS = Label(
    "reason",
    frozenset({REASON_IN_QUEUE, REASON_RECLAIMED, REASON_FAIR_SHARING, REASON_RECLAIMED_BY_BORROWER, REASON_SPARES_TAKEN_BACK}),
)
_OF_QUOTA = (COHORT, CLUSTER_QUEUE, FLAVOR, RESOURCE)
_OF_LEVEL = (FLAVOR, LEVEL, RESOURCE)

# --- buckets, in seconds unless said otherwise ----------------------------------------------------------

# From a second to almost three hours, as Kueue has them: a wait in a queue may be either.
WAITS = (1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1280.0, 2560.0, 5120.0, 10240.0)
# From a second to a fortnight.
RUNS = tuple(4.0**i for i in range(11))
# A group of pods is evaluated a fifth of a second after its last pod, and may wait for room as long as a workload.
PLACEMENTS = (0.25, 0.5, *WAITS)
# One decision takes well under a millisecond on 10,240 nodes, a search for victims the longest.
DECISIONS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
# A write takes milliseconds, on a busy API server seconds.
WRITES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
# The ungater gathers pods for a second; 429s of thousands of pods are waited out for minutes.
UNGATINGS = (0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 320.0)
# A tenth of a second is what the reconciler promises.
LAGS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
# A review should not be felt; the API server gives up after ten seconds.
REVIEWS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
# Domains.
EXCESSES = (0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)

# --- Kueue's ----------------------------------------------------------------------------------------------

ADMISSION_ATTEMPTS = Instrument(
    "kueue_admission_attempts_total",
    Kind.COUNTER,
    "Cycles in which something was decided; success: at least one workload got its quota",
    (_ATTEMPT,),
)
ADMISSION_ATTEMPT_DURATION = Instrument(
    "kueue_admission_attempt_duration_seconds", Kind.HISTOGRAM, "How long such a cycle took, without its writes", (_ATTEMPT,), WRITES
)
PENDING_WORKLOADS = Instrument(
    "kueue_pending_workloads",
    Kind.GAUGE,
    "Workloads that wait; inadmissible: they were refused and nothing has changed since that could help",
    (CLUSTER_QUEUE, _WAITING),
)
RESERVING_WORKLOADS = Instrument("kueue_reserving_active_workloads", Kind.GAUGE, "Workloads that hold quota", (CLUSTER_QUEUE,))
ADMITTED_ACTIVE = Instrument(
    "kueue_admitted_active_workloads", Kind.GAUGE, "Workloads that are admitted and not finished", (CLUSTER_QUEUE,)
)
QUOTA_RESERVED_WORKLOADS = Instrument(
    "kueue_quota_reserved_workloads_total", Kind.COUNTER, "Workloads that got quota, each time anew", (CLUSTER_QUEUE,)
)
QUOTA_RESERVED_WAIT = Instrument(
    "kueue_quota_reserved_wait_time_seconds",
    Kind.HISTOGRAM,
    "From when a workload was created or queued again until it got quota",
    (CLUSTER_QUEUE,),
    WAITS,
)
ADMITTED_WORKLOADS = Instrument(
    "kueue_admitted_workloads_total", Kind.COUNTER, "Workloads that were admitted, each time anew", (CLUSTER_QUEUE,)
)
ADMISSION_WAIT = Instrument(
    "kueue_admission_wait_time_seconds",
    Kind.HISTOGRAM,
    "From when a workload was created or queued again until it was admitted",
    (CLUSTER_QUEUE,),
    WAITS,
)
CHECKS_WAIT = Instrument(
    "kueue_admission_checks_wait_time_seconds",
    Kind.HISTOGRAM,
    "From when a workload got quota until it was admitted, of workloads with admission checks",
    (CLUSTER_QUEUE,),
    WAITS,
)
READY_WAIT = Instrument(
    "kueue_ready_wait_time_seconds",
    Kind.HISTOGRAM,
    "From when a workload was created or queued again until its pods were ready; with waitForPodsReady only",
    (CLUSTER_QUEUE,),
    WAITS,
)
ADMITTED_UNTIL_READY = Instrument(
    "kueue_admitted_until_ready_wait_time_seconds",
    Kind.HISTOGRAM,
    "From when a workload was admitted until its pods were ready; with waitForPodsReady only",
    (CLUSTER_QUEUE,),
    WAITS,
)
EVICTED_WORKLOADS = Instrument(
    "kueue_evicted_workloads_total",
    Kind.COUNTER,
    "Workloads that were evicted, of those that were deactivated also why",
    (CLUSTER_QUEUE, _EVICTIONS, _CAUSES),
)
EVICTED_ONCE = Instrument(
    "kueue_evicted_workloads_once_total",
    Kind.COUNTER,
    "Workloads that were evicted for the first time",
    (CLUSTER_QUEUE, _EVICTIONS, _CAUSES),
)
BUILD_INFO = Instrument(
    "kueue_build_info",
    Kind.GAUGE,
    "1, with the version of topogate (`git_version`), the interpreter (`compiler`) and the platform; what a Go program has more is empty",
    tuple(Label(name) for name in ("git_version", "git_commit", "build_date", "go_version", "compiler", "platform")),
)
PREEMPTED_WORKLOADS = Instrument(
    "kueue_preempted_workloads_total",
    Kind.COUNTER,
    "Workloads that had to go for another's sake, by the queue of that one and by what right",
    (Label("preempting_cluster_queue"), _PREEMPTIONS),
)
CLUSTER_QUEUE_STATUS = Instrument(
    "kueue_cluster_queue_status",
    Kind.GAUGE,
    "1 for the status that a queue has, 0 for the others; pending: it can admit nothing, its condition Active says why",
    (CLUSTER_QUEUE, _QUEUE_STATUS),
)
RESOURCE_RESERVATION = Instrument("kueue_cluster_queue_resource_reservation", Kind.GAUGE, "Quota that is held", _OF_QUOTA)
RESOURCE_USAGE = Instrument("kueue_cluster_queue_resource_usage", Kind.GAUGE, "Quota that admitted workloads hold", _OF_QUOTA)
NOMINAL_QUOTA = Instrument("kueue_cluster_queue_nominal_quota", Kind.GAUGE, "Quota of the queue itself", _OF_QUOTA)
BORROWING_LIMIT = Instrument(
    "kueue_cluster_queue_borrowing_limit", Kind.GAUGE, "How much it may borrow; none where there is no limit", _OF_QUOTA
)
LENDING_LIMIT = Instrument("kueue_cluster_queue_lending_limit", Kind.GAUGE, "How much it lends; none where there is no limit", _OF_QUOTA)
WEIGHTED_SHARE = Instrument(
    "kueue_cluster_queue_weighted_share",
    Kind.GAUGE,
    "In thousandths, how much of what its cohort lends it borrows, by weight; +Inf: it borrows at weight zero",
    (CLUSTER_QUEUE, COHORT),
    together=max,
)
PENDING_CLASSES = Instrument(
    "kueue_pending_scheduling_hashes",
    Kind.GAUGE,
    "Groups of waiting workloads that ask a LocalQueue for the same and are decided on as one; inadmissible: all of a group are",
    (CLUSTER_QUEUE, _WAITING),
)
EXECUTION_TIME = Instrument(
    "kueue_execution_time_seconds",
    Kind.HISTOGRAM,
    "For how long a workload that has finished was admitted, all of its admissions together",
    (CLUSTER_QUEUE,),
    RUNS,
)
RECOVERY_WAIT = Instrument(
    "kueue_workload_recovery_wait_time_seconds",
    Kind.HISTOGRAM,
    "From when pods of a running workload were not ready any more until all were again; with waitForPodsReady only",
    (CLUSTER_QUEUE,),
    WAITS,
)
GATE_REMOVAL = Instrument(
    "kueue_pod_scheduling_gate_removal_seconds",
    Kind.HISTOGRAM,
    "From when a workload was admitted, or its pod was there if that was later, until the gate was off; `is_group`: a group of plain pods",
    (
        CLUSTER_QUEUE,
        Label("name", frozenset({ADMISSION_GATE, TOPOLOGY_GATE})),
        Label("is_group", frozenset({"true", "false"})),
        Label("replica_role", frozenset({LEADS})),
    ),
    UNGATINGS,
)
COHORT_WEIGHTED_SHARE = Instrument("kueue_cohort_weighted_share", Kind.GAUGE, "The same of a cohort in its parent", (COHORT,), together=max)

# --- by LocalQueue: with gate LocalQueueMetrics, since there may be many -------------------------------------

_OF_LOCAL_QUEUE = (Label("name"), Label("namespace"))


def _make_local_queue_instrument(one: Instrument) -> Instrument:
    """The same of a LocalQueue, as far as it has that."""
    what, labels = one.name.removeprefix("kueue_").removeprefix("cluster_queue_"), (*_OF_LOCAL_QUEUE, *one.labels)
    labels = tuple(label for label in labels if label not in (CLUSTER_QUEUE, COHORT))
    return replace(one, name=f"kueue_local_queue_{what}", labels=labels, says=f"As `{one.name}`, of a LocalQueue")


BY_LOCAL_QUEUE = {
    one: _make_local_queue_instrument(one)
    for one in (
        PENDING_WORKLOADS,
        RESERVING_WORKLOADS,
        ADMITTED_ACTIVE,
        QUOTA_RESERVED_WORKLOADS,
        QUOTA_RESERVED_WAIT,
        ADMITTED_WORKLOADS,
        ADMISSION_WAIT,
        CHECKS_WAIT,
        READY_WAIT,
        ADMITTED_UNTIL_READY,
        RECOVERY_WAIT,
        EXECUTION_TIME,
        EVICTED_WORKLOADS,
        RESOURCE_RESERVATION,
        RESOURCE_USAGE,
    )
}
LOCAL_QUEUE_STATUS = Instrument(
    "kueue_local_queue_status",
    Kind.GAUGE,
    "1 for what the condition Active of a LocalQueue says, 0 for the others",
    (*_OF_LOCAL_QUEUE, Label("active", frozenset({"True", "False", "Unknown"}))),
)

# --- decisions --------------------------------------------------------------------------------------------

LEADER = Instrument("topogate_leader", Kind.GAUGE, "1 while this process leads, 0 while it waits for the lease", together=max)
SCHEDULER_WAIT = Instrument(
    "topogate_scheduler_wait_seconds", Kind.GAUGE, "For how long what has changed waits to be decided on; milliseconds", together=max
)
DECISION_DURATION = Instrument(
    "topogate_decision_duration_seconds",
    Kind.HISTOGRAM,
    "How long one decision took",
    (Label("outcome", frozenset({FOUND, REFUSED})),),
    DECISIONS,
)
VERDICT_WRITE = Instrument(
    "topogate_admission_write_seconds", Kind.HISTOGRAM, "From the decision to admit until it stood in the API", (), WRITES
)
EXCESS_DOMAINS = Instrument(
    "topogate_placement_excess_domains",
    Kind.HISTOGRAM,
    "Domains that a pod set was given beyond the fewest that could have held it: its units over what the largest held, rounded up",
    (LEVEL,),
    EXCESSES,
)

# --- nodes ------------------------------------------------------------------------------------------------

FLAVOR_NODES = Instrument(
    "topogate_flavor_nodes",
    Kind.GAUGE,
    "Nodes of a topology-aware flavor that have their place in the topology",
    (FLAVOR, Label("state", frozenset({USABLE, CORDONED, NOT_READY}))),
)
LEVEL_DOMAINS = Instrument("topogate_level_domains", Kind.GAUGE, "Domains of a level", (FLAVOR, LEVEL))
FLAVOR_CAPACITY = Instrument("topogate_flavor_capacity", Kind.GAUGE, "What the usable nodes of a flavor have", (FLAVOR, RESOURCE))
FLAVOR_FREE = Instrument("topogate_flavor_free", Kind.GAUGE, "What of that is neither used nor given away", (FLAVOR, RESOURCE))
LARGEST_CAPACITY = Instrument(
    "topogate_level_largest_domain_capacity", Kind.GAUGE, "What the largest domain of a level has", _OF_LEVEL, together=max
)
LARGEST_FREE = Instrument(
    "topogate_level_largest_domain_free", Kind.GAUGE, "What the domain of a level that has most free has free", _OF_LEVEL, together=max
)
FRAGMENTATION = Instrument(
    "topogate_level_fragmentation_ratio",
    Kind.GAUGE,
    "Which part of what is free lies in domains of which something is used: 0 where all that is free is whole domains",
    _OF_LEVEL,
    together=max,
)
PAUSED = Instrument(
    "topogate_paused", Kind.GAUGE, "1 while an administrator has paused it (docs/pausing.md)", (Label("what", frozenset(PAUSABLE)),)
)
DRIFTED_WORKLOADS = Instrument(
    "topogate_drifted_workloads",
    Kind.GAUGE,
    "Workloads of which pods run elsewhere than they were placed, or with more devices, by the gravest kind, at the last audit "
    "(docs/nodes.md)",
    (Label("kind", frozenset(DRIFTS)),),
)
SPARE_NODES = Instrument(
    "topogate_spare_nodes",
    Kind.GAUGE,
    "Nodes that workloads ask to be kept free for them: kept and serving, of these lent, or missing (docs/nodes.md)",
    (CLUSTER_QUEUE, Label("state", frozenset({HELD, LENT, MISSING}))),
)
NODE_STORM = Instrument(
    "topogate_node_storm",
    Kind.GAUGE,
    "1 while so many nodes of a topology have turned not ready at once that none is replaced (docs/nodes.md)",
    (Label("topology"),),
)
LEDGER_DRIFT = Instrument(
    "topogate_ledger_drift_nodes",
    Kind.GAUGE,
    "Nodes and workloads for which a recount found another usage than the ledger has, or no reservation; a bug of topogate",
    together=max,
)
OBJECTS_SET_ASIDE = Instrument(
    "topogate_objects_set_aside",
    Kind.GAUGE,
    "Objects with content that cannot be handled; each has an event and a line in the log, and is tried again when it changes",
    (RESOURCE,),
    together=max,
)

# --- groups of pods ------------------------------------------------------------------------------------------

GROUP_PLACED, GROUP_WAITS = "placed", "waiting"
GROUPS_OF_PODS = Instrument(
    "topogate_podgroups",
    Kind.GAUGE,
    "Replicas of PodGroups that have pods; placed: their condition PodGroupScheduled is true",
    (Label("state", frozenset({GROUP_PLACED, GROUP_WAITS})),),
)
GROUP_PLACEMENT = Instrument(
    "topogate_podgroup_placement_seconds",
    Kind.HISTOGRAM,
    "From when the last of the pods that are placed together was observed until the places of all were written",
    (),
    PLACEMENTS,
)
GROUP_REFUSALS = Instrument(
    "topogate_podgroup_refusals_total",
    Kind.COUNTER,
    "Times that a replica of a PodGroup was evaluated and not placed, by the reason of its condition; not those that lack pods",
    (Label("reason"),),
)

# --- plugins of other packages ------------------------------------------------------------------------------

ANSWERED = "answered"
RAISED, TIMEOUT, MEMORY, ENDED, NONSENSE, UNUSABLE = "raised", "timeout", "memory", "ended", "nonsense", "refused"
PLUGIN_ANSWERS = Instrument(
    "topogate_podgroup_plugin_answers_total",
    Kind.COUNTER,
    "Questions to plugins of other packages by result; all but answered pass the plugin over (docs/development/adding-a-plugin.md)",
    (Label("plugin"), Label("result", frozenset({ANSWERED, RAISED, TIMEOUT, MEMORY, ENDED, NONSENSE, UNUSABLE}))),
)

# --- pods -------------------------------------------------------------------------------------------------

GATED_PODS = Instrument("topogate_gated_pods", Kind.GAUGE, "Pods of admitted workloads that still have the topology gate")
GATE_AGE = Instrument(
    "topogate_gate_age_seconds", Kind.GAUGE, "For how long the oldest of them has waited since its admission", together=max
)
UNGATE_LATENCY = Instrument(
    "topogate_ungate_latency_seconds",
    Kind.HISTOGRAM,
    "From when a pod was there and admitted (the API knows that to the second) until its gate was off",
    (),
    UNGATINGS,
)
EVENTS_DROPPED = Instrument(
    "topogate_events_dropped_total", Kind.COUNTER, "Events that were not written: too many, or not taken by the API server"
)

# --- the process --------------------------------------------------------------------------------------------

WATCH_RESTARTS = Instrument(
    "topogate_watch_restarts_total", Kind.TOTAL, "How often a list or watch had to be begun again", (RESOURCE, Label("cause"))
)
WATCH_AGE = Instrument(
    "topogate_watch_age_seconds", Kind.GAUGE, "For how long a watch has received nothing, not even a bookmark", (RESOURCE,), together=max
)
RECONCILES = Instrument("topogate_reconciles_total", Kind.TOTAL, "Runs of a controller by their outcome", (CONTROLLER, Label("result")))
QUEUE_DEPTH = Instrument("topogate_work_queue_depth", Kind.GAUGE, "Keys that are due in a controller's queue", (CONTROLLER,))
QUEUE_AGE = Instrument(
    "topogate_work_queue_age_seconds", Kind.GAUGE, "For how long the oldest of them has been due", (CONTROLLER,), together=max
)
LOOP_LAG = Instrument("topogate_event_loop_lag_seconds", Kind.HISTOGRAM, "How late the event loop was, asked twice a second", (), LAGS)
TASKS = Instrument("topogate_tasks", Kind.GAUGE, "Tasks of the event loop: some for each watch, controller and connection")
CERTIFICATE_EXPIRY = Instrument(
    "topogate_certificate_expiry_seconds", Kind.GAUGE, "How long the webhook's serving certificate is still good", together=min
)
REVIEW_PATH = Label("path")
REVIEWS_ANSWERED = Instrument(
    "topogate_reviews_total",
    Kind.COUNTER,
    "Admission reviews by their answer; failed: a bug of ours",
    (REVIEW_PATH, Label("result", frozenset({ALLOWED, DENIED, MALFORMED, FAILED}))),
)
REVIEW_DURATION = Instrument(
    "topogate_review_duration_seconds", Kind.HISTOGRAM, "How long a review took from its last byte on", (REVIEW_PATH,), REVIEWS
)

OF_BOTH = (LOOP_LAG, TASKS)
OF_WEBHOOK = (CERTIFICATE_EXPIRY, REVIEWS_ANSWERED, REVIEW_DURATION, *OF_BOTH)
OF_RECONCILER = (
    ADMISSION_ATTEMPTS,
    ADMISSION_ATTEMPT_DURATION,
    *BY_LOCAL_QUEUE,
    PENDING_CLASSES,
    EVICTED_ONCE,
    GATE_REMOVAL,
    BUILD_INFO,
    PREEMPTED_WORKLOADS,
    CLUSTER_QUEUE_STATUS,
    NOMINAL_QUOTA,
    BORROWING_LIMIT,
    LENDING_LIMIT,
    WEIGHTED_SHARE,
    COHORT_WEIGHTED_SHARE,
    *BY_LOCAL_QUEUE.values(),
    LOCAL_QUEUE_STATUS,
    LEADER,
    SCHEDULER_WAIT,
    DECISION_DURATION,
    VERDICT_WRITE,
    EXCESS_DOMAINS,
    FLAVOR_NODES,
    LEVEL_DOMAINS,
    FLAVOR_CAPACITY,
    FLAVOR_FREE,
    LARGEST_CAPACITY,
    LARGEST_FREE,
    FRAGMENTATION,
    PAUSED,
    DRIFTED_WORKLOADS,
    OBJECTS_SET_ASIDE,
    SPARE_NODES,
    NODE_STORM,
    LEDGER_DRIFT,
    GROUPS_OF_PODS,
    GROUP_PLACEMENT,
    GROUP_REFUSALS,
    PLUGIN_ANSWERS,
    GATED_PODS,
    GATE_AGE,
    UNGATE_LATENCY,
    EVENTS_DROPPED,
    WATCH_RESTARTS,
    WATCH_AGE,
    RECONCILES,
    QUEUE_DEPTH,
    QUEUE_AGE,
    *OF_BOTH,
)


def format_table() -> str:
    """All of them as docs/metrics.md has them."""
    lines = ["| Metric | Type | Labels | Process | What it says |", "|---|---|---|---|---|"]
    for one in dict.fromkeys((*OF_RECONCILER, *OF_WEBHOOK)):
        labels = "<br>".join(_show(label) for label in one.labels)
        kind = "counter" if one.kind is Kind.TOTAL else one.kind.value
        process = "both" if one in OF_BOTH else "webhook" if one in OF_WEBHOOK else "reconciler"
        lines.append(f"| `{one.name}` | {kind} | {labels} | {process} | {one.says} |")
    return "\n".join(lines) + "\n"


def _show(label: Label) -> str:
    return f"`{label.name}`" + (f": {', '.join(sorted(filter(None, label.values)))}" if label.values is not None else "")


if __name__ == "__main__":
    print(format_table(), end="")

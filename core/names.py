"""Every label, annotation, gate, condition and reason that topogate reads or writes: constants only.

The `kueue.x-k8s.io` names are the wire contract (KEP-2724 and what Kueue writes today);
what is ours alone lives under `topogate.dev/`.
"""

GROUP = "kueue.x-k8s.io"
VERSION = "v1beta2"
OWN_GROUP = "topogate.dev"
OWN_VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
OLD_VERSION = "v1beta1"  # never stored, and served only where the chart says so
OLD_API_VERSION = f"{GROUP}/{OLD_VERSION}"

# --- labels -----------------------------------------------------------------------------------
HOSTNAME_LABEL = "kubernetes.io/hostname"
QUEUE_NAME_LABEL = "kueue.x-k8s.io/queue-name"
PRIORITY_CLASS_LABEL = "kueue.x-k8s.io/priority-class"
MAX_EXEC_TIME_LABEL = "kueue.x-k8s.io/max-exec-time-seconds"
MULTIKUEUE_ORIGIN = "kueue.x-k8s.io/multikueue-origin"  # of a Workload that a manager of several clusters has put here
PREBUILT_WORKLOAD = "kueue.x-k8s.io/prebuilt-workload-name"  # label, or annotation where the name is no label value
JOB_UID_LABEL = "kueue.x-k8s.io/job-uid"
PODSET_LABEL = "kueue.x-k8s.io/podset"
LOCAL_QUEUE_LABEL = "kueue.x-k8s.io/local-queue-name"
CLUSTER_QUEUE_LABEL = "kueue.x-k8s.io/cluster-queue-name"
MANAGED_NAMESPACE_LABEL = "topogate.dev/managed"
JOB_COMPLETION_INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
JOBSET_JOB_INDEX_LABEL = "jobset.sigs.k8s.io/job-index"
JOBSET_ROLE_LABEL = "jobset.sigs.k8s.io/replicatedjob-name"
REPLICA_INDEX_LABEL = "training.kubeflow.org/replica-index"  # of the training and the MPI operator
SPARK_ROLE_LABEL, SPARK_DRIVER = "spark-role", "driver"  # that pod owns its executors
RAY_REPLICA_INDEX_LABEL = "ray.io/worker-group-replica-index"
RAY_HOST_INDEX_LABEL = "ray.io/replica-host-index"
JOB_CONTROLLER_UID_LABELS = ("batch.kubernetes.io/controller-uid", "controller-uid", "job-name")
JOB_NAME_LABELS = ("batch.kubernetes.io/job-name", "job-name")
JOB_UID_LABELS = ("batch.kubernetes.io/controller-uid", "controller-uid")

# --- pods that are queued themselves ------------------------------------------------------------------
MANAGED = "kueue.x-k8s.io/managed"  # label (="true") and finalizer of a queued pod
POD_GROUP_NAME = "kueue.x-k8s.io/pod-group-name"  # label, or annotation where the name is no label value
POD_GROUP_TOTAL_COUNT = "kueue.x-k8s.io/pod-group-total-count"
POD_GROUP_FAST_ADMISSION = "kueue.x-k8s.io/pod-group-fast-admission"
POD_GROUP_SERVING = "kueue.x-k8s.io/pod-group-serving"
POD_GROUP_INDEX_LABEL_NAME = "kueue.x-k8s.io/pod-group-pod-index-label"  # annotation: the label that has the index
POD_GROUP_INDEX_LABEL = "kueue.x-k8s.io/pod-group-pod-index"
RETRIABLE_IN_GROUP = "kueue.x-k8s.io/retriable-in-group"
ROLE_HASH = "kueue.x-k8s.io/role-hash"
SUSPENDING_PARENT = "kueue.x-k8s.io/pod-suspending-parent"
IS_GROUP_WORKLOAD = "kueue.x-k8s.io/is-group-workload"
JOB_OWNER_GVK = "kueue.x-k8s.io/job-owner-gvk"
JOB_OWNER_NAME = "kueue.x-k8s.io/job-owner-name"
COMPONENT_WORKLOAD_INDEX = "kueue.x-k8s.io/component-workload-index"
PROVISIONING_ANNOTATIONS = "provreq.kueue.x-k8s.io/"  # their prefix
STATEFULSET_INDEX_LABEL = "apps.kubernetes.io/pod-index"
LWS_NAME_LABEL = "leaderworkerset.sigs.k8s.io/name"
LWS_GROUP_INDEX_LABEL = "leaderworkerset.sigs.k8s.io/group-index"
LWS_WORKER_INDEX_LABEL = "leaderworkerset.sigs.k8s.io/worker-index"

INDEX_LABELS = (  # of a pod among its equals, as the controllers that number them write it
    JOB_COMPLETION_INDEX_LABEL,
    REPLICA_INDEX_LABEL,
    STATEFULSET_INDEX_LABEL,
    LWS_WORKER_INDEX_LABEL,
    POD_GROUP_INDEX_LABEL,
)

# --- pods of a PodGroup (KEP-5732) --------------------------------------------------------------------
MEMBER_OF_LABEL = "topogate.dev/podgroup"  # of a pod: the PodGroup of its namespace that it belongs to
REPLICA_LABEL = "topogate.dev/podgroup-replica"  # and which of its replicas, from 0
POD_GROUP_VERIFIED = "topogate.dev/PlacementVerified"  # on a PodGroup of kube-scheduler's own
PODGROUP_GATE = "topogate.dev/podgroup"
PODGROUP_TOPOLOGY = "topogate.dev/podgroup-topology"  # annotation of a job without a queue: the levels that its pods are to share
PODGROUP_PLACED_BY = "topogate.dev/podgroup-placed-by"  # annotation beside it: topogate, or kube-scheduler
POD_GROUP_SCHEDULED = "PodGroupScheduled"  # condition of a PodGroup

# --- annotations on a pod template ----------------------------------------------------------------
REQUIRED_TOPOLOGY = "kueue.x-k8s.io/podset-required-topology"
PREFERRED_TOPOLOGY = "kueue.x-k8s.io/podset-preferred-topology"
UNCONSTRAINED_TOPOLOGY = "kueue.x-k8s.io/podset-unconstrained-topology"
SLICE_REQUIRED_TOPOLOGY = "kueue.x-k8s.io/podset-slice-required-topology"
SLICE_SIZE = "kueue.x-k8s.io/podset-slice-size"
DEFAULTED_SLICE_SIZE = "topogate.dev/defaulted-slice-size"  # beside it where the webhook wrote it: the size that it wrote
SLICE_CONSTRAINTS = "kueue.x-k8s.io/podset-slice-required-topology-constraints"
PODSET_GROUP_NAME = "kueue.x-k8s.io/podset-group-name"
TOPOLOGY_SPREADING = "kueue.x-k8s.io/podset-topology-spreading"  # JSON: how Workloads are spread over domains (KEP-13746)
POD_INDEX_OFFSET = "kueue.x-k8s.io/pod-index-offset"
SPARE_NODES = "topogate.dev/spare-nodes"  # how many nodes of its domain are kept free for a pod set
LEND_SPARES = "topogate.dev/lend-spares"  # "true": these nodes are lent to workloads of lower priority meanwhile
ELASTIC_JOB = "kueue.x-k8s.io/elastic-job"  # on a job: "true" lets it be resized while it runs
COMPLETIONS_EQUAL_PARALLELISM = "kueue.x-k8s.io/job-completions-equal-parallelism"  # on a Job: both change together (KEP-420)
MIN_PARALLELISM = "kueue.x-k8s.io/job-min-parallelism"  # on a Job: the fewest pods it can do with (KEP-420)
TOPOLOGY_ANNOTATIONS = (REQUIRED_TOPOLOGY, PREFERRED_TOPOLOGY, UNCONSTRAINED_TOPOLOGY, SLICE_REQUIRED_TOPOLOGY, SLICE_CONSTRAINTS)

# --- annotations that topogate writes -----------------------------------------------------------
WORKLOAD_ANNOTATION = "kueue.x-k8s.io/workload"
SLICE_NAME = "kueue.x-k8s.io/workload-slice-name"  # of a Workload of an elastic job and of its pods: the name of the first one
SLICE_REPLACES = "kueue.x-k8s.io/workload-slice-replacement-for"  # key of the Workload that it replaces: it takes over its place and pods
FORGOTTEN_FAILURES = "topogate.dev/forgotten-node-failures"  # on a Workload: how many evictions for lost nodes count no more
MADE_BY = "topogate.dev/made-by"  # on the Workload of a pod that is alone: uid of the controller that makes another when that is gone
SPARES = "topogate.dev/spares"  # on a Workload, JSON: by pod set the nodes that are kept free for it
BORROWED_SPARES = "topogate.dev/borrowed-spares"  # the same of nodes that are another's spares, on which its pods stand for the time being
TRACEPARENT_ANNOTATION = "topogate.dev/traceparent"
WORKLOAD_REQUIRED_TOPOLOGY = "topogate.dev/workload-required-topology"
WORKLOAD_PREFERRED_TOPOLOGY = "topogate.dev/workload-preferred-topology"
FIELDS_OF_V1BETA2 = "topogate.dev/v1beta2-fields"  # on an object read as v1beta1: what v1beta1 cannot say
FIELDS_OF_V1BETA1 = "topogate.dev/v1beta1-fields"  # and the other way round
# On a job (of a Deployment: on its template), and on its Workload: in which time its pods must be ready, JSON.
WAIT_FOR_PODS_READY = "kueue.x-k8s.io/wait-for-pods-ready"
MAX_NOT_READY_COUNT = "kueue.x-k8s.io/pod-group-max-not-ready-count"  # on pods of a group: how many of it may be not ready
# On a job, and on its Workload: up to so many lost nodes at once it is not evicted.
LOST_NODES_THRESHOLD = "kueue.x-k8s.io/tas-unhealthy-nodes-eviction-threshold"
PLACEMENT_PROFILE = "topogate.dev/placement-profile"  # of a job, a ClusterQueue or a Topology
KEP_PROFILE, COMPACT_PROFILE, BEST_FIT_PROFILE, LEAST_FREE_PROFILE, BALANCED_PROFILE = PLACEMENT_PROFILES = (
    *("kep", "compact", "best-fit", "least-free", "balanced"),
)  # its values

# --- where a pod is, stamped on it when it is ungated: containers read it through the downward API ---
LEVEL_PREFIX = "topogate.dev/level-"  # label (an annotation where the value is no label's): the domain at each level, 0 is the coarsest
RANK_ANNOTATION = "topogate.dev/rank"
DOMAIN_INDEX_ANNOTATION = "topogate.dev/domain-index"  # which of the domains of the assignment, in the order of ranks
DOMAIN_SIZE_ANNOTATION = "topogate.dev/domain-size"  # pods of the pod set there
COORDINATE_PREFIXES = (LEVEL_PREFIX, RANK_ANNOTATION, DOMAIN_INDEX_ANNOTATION, DOMAIN_SIZE_ANNOTATION)

# --- annotations of a cluster's administrator -------------------------------------------------------
ALLOW_DAEMON_SETS = "topogate.dev/allow-daemonsets"  # on a managed Namespace, "true": its users may make DaemonSets, which no quota counts
PREEMPTION_CONFIG = "kueue.x-k8s.io/preemption-config-name"  # on a ClusterQueue: Kueue's PreemptionConfig, which has no effect here
ROTATE_CA = "topogate.dev/rotate-ca"  # on the Secret of the certificate, whatever its value: a new CA is wanted now

# --- gates and finalizers -------------------------------------------------------------------------
TOPOLOGY_GATE = "kueue.x-k8s.io/topology"
ADMISSION_GATE = "kueue.x-k8s.io/admission"  # of a pod that is queued itself
RESOURCE_IN_USE_FINALIZER = "kueue.x-k8s.io/resource-in-use"

# --- field managers -------------------------------------------------------------------------------
FIELD_MANAGER = "topogate"  # of what the reconciler writes to jobs and pods
MANAGER_ADMISSION = "kueue-admission"
MANAGER_JOB_CONTROLLER = "kueue-job-controller"
MANAGER_RECLAIMABLE_PODS = "kueue-reclaimable-pods"
MANAGER_WORKLOAD_CONTROLLER = "kueue-workload-controller"

# --- Workload conditions and their reasons ----------------------------------------------------------
QUOTA_RESERVED = "QuotaReserved"
ADMITTED = "Admitted"
EVICTED = "Evicted"
PREEMPTED = "Preempted"
REQUEUED = "Requeued"
FINISHED = "Finished"
PODS_READY = "PodsReady"
DEACTIVATION_TARGET = "DeactivationTarget"
RANK_ORDER_KEPT = "topogate.dev/RankOrderKept"  # on a Workload: whether ranks could be used
# Taints by which autoscalers and upgrade controllers announce that a node will go.
LEAVING_TAINTS = (
    "DeletionCandidateOfClusterAutoscaler",
    "ToBeDeletedByClusterAutoscaler",
    "cloud.google.com/impending-node-termination",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
    "node.cloudprovider.kubernetes.io/shutdown",
)
PLACEMENT_KEPT = "topogate.dev/PlacementKept"  # on a Workload: False while pods run elsewhere than they were placed
PODS_SCHEDULABLE = "topogate.dev/PodsSchedulable"  # on a Workload: False while pods do not fit where others of it run
SPARES_HELD = "topogate.dev/SparesHeld"  # on a Workload: whether all nodes that it asks to be kept free are
NODES_REACHABLE = "topogate.dev/NodesReachable"  # on a Topology: False while so many are away that none is replaced
NODES_PLACED = "topogate.dev/NodesPlaced"  # on a Topology: whether every node of its flavors has a place
EVICTIONS_PAUSED = "topogate.dev/EvictionsPaused"  # on a ClusterQueue, while they are

REASON_TOPOLOGY_PLACEMENT_FAILED = "TopologyPlacementFailed"
REASON_WAITING_FOR_QUOTA = "WaitingForQuota"
REASON_EXCEEDS_MAX_QUOTA = "ExceedsMaxQuota"
REASON_NO_MATCHING_FLAVOR = "NoMatchingFlavor"
REASON_MISCONFIGURED = "Misconfigured"
EVENT_SET_ASIDE = "SetAside"
REASON_WAITING_FOR_PREEMPTED = "WaitingForPreemptedWorkloads"
REASON_WAITING_FOR_PODS_READY = "WaitingForPodsReady"
REASON_SUSPENDED = "Suspended"
REASON_ADMISSIONS_PAUSED = "AdmissionsPaused"  # of ClusterQueues, too: the contract has no word for it
REASON_PENDING_EVALUATION = "PendingEvaluation"
REASON_NO_RESERVATION = "NoReservation"
REASON_ON_HOLD = "OnHold"
REASON_DEACTIVATED = "Deactivated"
REASON_SUSPENDED_BY_USER = f"{REASON_DEACTIVATED}DueToJobSuspended"  # of an eviction, as the next
REASON_START_REFUSED = "StartRefused"  # of a deactivation
REASON_NODE_FAILURES = "NodeFailures"  # of an eviction
REASON_QUEUE_STOPPED = "ClusterQueueStopped"  # of an eviction, as the next two
REASON_LOCAL_QUEUE_STOPPED = "LocalQueueStopped"
REASON_PREEMPTED = "Preempted"  # of an eviction; those of preemption name the preemptor
REASON_JOB_CHANGED = "DeactivatedDueToJobChanged"  # of an eviction
REASON_IN_QUEUE = "InClusterQueue"
REASON_RECLAIMED = "InCohortReclamation"
REASON_FAIR_SHARING = "InCohortFairSharing"
REASON_RECLAIMED_BY_BORROWER = "InCohortReclaimWhileBorrowing"
REASON_SPARES_TAKEN_BACK = "SparesTakenBack"  # of a preemption, which the contract has no word for
REASON_SUCCEEDED = "Succeeded"
REASON_FAILED = "Failed"
REASON_OWNER_NOT_FOUND = "OwnerNotFound"
REASON_SLICE_REPLACED = "WorkloadSliceReplaced"
REASON_OUT_OF_SYNC = "OutOfSync"
REASON_WAIT_FOR_START = "WaitForStart"  # of PodsReady, as the next three
REASON_WAIT_FOR_RECOVERY = "WaitForRecovery"
REASON_STARTED = "Started"
REASON_RECOVERED = "Recovered"
REASON_PODS_READY_TIMEOUT = "PodsReadyTimeout"
REASON_LIMIT_EXCEEDED = "RequeuingLimitExceeded"  # of DeactivationTarget
REASON_MAX_EXEC_TIME = "MaximumExecutionTimeExceeded"  # of DeactivationTarget, and an event
REASON_DEACTIVATED_BY_TIME = f"{REASON_DEACTIVATED}DueTo{REASON_MAX_EXEC_TIME}"  # of an eviction
REASON_BACKOFF_FINISHED = "BackoffFinished"
REASON_REACTIVATED = "Reactivated"

# --- admission checks -----------------------------------------------------------------------------
PROVISIONING_CONTROLLER = "kueue.x-k8s.io/provisioning-request"
AUTOSCALING_GROUP = "autoscaling.x-k8s.io"
CONSUMES_PROVISIONING = "autoscaling.x-k8s.io/consume-provisioning-request"  # annotation of pods, as the next
PROVISIONING_CLASS_NAME = "autoscaling.x-k8s.io/provisioning-class-name"
PROVISIONING_CONTENT = "topogate.dev/provisioning-content"  # on what we asked for: a hash of it
PROVISIONING_RESERVATION = "topogate.dev/provisioning-reservation"  # and since when the workload had the quota it was made for
MULTIKUEUE_CONTROLLER = "kueue.x-k8s.io/multikueue"
CHECK_PENDING, CHECK_READY, CHECK_RETRY, CHECK_REJECTED = "Pending", "Ready", "Retry", "Rejected"
TOPOLOGY_PENDING, TOPOLOGY_READY = "Pending", "Ready"  # of delayedTopologyRequest
REASON_UNSATISFIED_CHECKS = "UnsatisfiedAdmissionChecks"
REASON_PENDING_TOPOLOGY = "PendingDelayedTopologyRequests"
REASON_ADMISSION_CHECK = "AdmissionCheck"  # of an eviction
EVENT_SECOND_PASS_FAILED = "SecondPassFailed"
EVENT_PROVISIONING_CREATED = "ProvisioningRequestCreated"
ADMISSION_CHECK_UPDATED = "AdmissionCheckUpdated"  # an event, too

# --- Active conditions ------------------------------------------------------------------------------
ACTIVE = "Active"
REASON_READY = "Ready"
REASON_TERMINATING = "Terminating"
REASON_STOPPED = "Stopped"
REASON_FLAVOR_NOT_FOUND = "FlavorNotFound"
REASON_TOPOLOGY_NOT_FOUND = "TopologyNotFound"
REASON_CHECK_NOT_FOUND = "AdmissionCheckNotFound"
REASON_CHECK_INACTIVE = "AdmissionCheckInactive"
REASON_MULTIKUEUE_WITH_TOPOLOGY = "MultiKueueWithTopology"
REASON_COHORT_CYCLE = "CohortCycle"

# --- events -------------------------------------------------------------------------------------------
EVENT_CREATED_WORKLOAD = "CreatedWorkload"
EVENT_UPDATED_WORKLOAD = "UpdatedWorkload"
EVENT_DELETED_WORKLOAD = "DeletedWorkload"
EVENT_STARTED = "Started"
EVENT_STOPPED = "Stopped"
EVENT_EXCESS_POD_DELETED = "ExcessPodDeleted"
EVENT_WORKLOAD_REFUSED = "WorkloadRefused"
EVENT_POD_OUTSIDE_ASSIGNMENT = "PodOutsideAssignment"
EVENT_NODE_UNHEALTHY = "NodeUnhealthy"
EVENT_POD_TERMINATED = "PodTerminatedByKueue"
TERMINATED_BY = "TerminatedByKueue"  # a condition of a pod
REASON_UNSCHEDULABLE_ON_NODE = "UnschedulableOnAssignedNode"
EVENT_STAYS_GATED = "PodStaysGated"
EVENT_FINISHED_WORKLOAD = "FinishedWorkload"
EVENT_UNKNOWN_PROFILE = "UnknownPlacementProfile"
EVENT_WAITING_FOR_WORKLOAD = "WaitingForWorkload"
EVENT_WAITING_FOR_PODS = "WaitingForPods"
EVENT_STILL_IN_USE = "StillInUse"
EVENT_ADMISSION_PAUSED = "AdmissionPaused"
EVENT_EVICTION_PAUSED = "EvictionPaused"
EVENT_POD_GROUP_REFUSED = "PodGroupRefused"
EVENT_PODS_LEFT = "PodsLeft"
EVENT_PODS_MOVED = "PodsMoved"

DEFAULT_LOCAL_QUEUE = "default"
SYSTEM_NAMESPACE = "topogate-system"  # where topogate is, by default
VARIABLE_PREFIX = "TOPOGATE_"  # of environment variables that stand for flags
PAUSE_CONFIG_MAP = "topogate-pause"  # in the namespace of the reconciler
MAIN_POD_SET = "main"
AUTO_LEVEL = "auto"  # as a level: the lowest one where the pod set fits (rule k of docs/decisions/0004)

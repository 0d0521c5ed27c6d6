"""How often, how soon and how much at once the reconciler acts, in seconds where a name ends in `_S`.

Requests themselves are limited in `core.runtime.http`: by `rate_limiter` (requests a second, where an administrator
sets it), by `throttle` (requests at once, fewer after a 429), and by `client` (how long a request may take).
"""

# --- deciding -----------------------------------------------------------------------------------------------------
DECIDING_WINDOW_S = 0.02  # lets a burst of events be decided as one batch
# Where many wait each cycle asks all of them whether anything helps them: of the time that this takes so many times as much is left
# for all else, and more changes are decided on in one go.
DECIDING_REST, LONGEST_WINDOW_S = 9, 0.15
# A cycle that takes longer, or comes to more verdicts, is cut off: the loop writes and serves events.
DECIDING_S, MOST_VERDICTS, CUT_REST_S = 0.04, 500, 0.03
PIECE_S = 0.03  # of a decision that takes longer
# Under way; then deciding waits for writing. So few that admit or preempt are decided at once, and may be under way:
# decided long before they can be written, they would take room from workloads of higher priority that come meanwhile.
MOST_VERDICT_WRITES, MOST_URGENT = 1024, 32
# Without an event, earlier reasons are decided on again at this rate.
REASONS_QUIET_S, REASONS_REFRESH_S, REASONS_REFRESHED = 5.0, 1.0, 20
STUCK_LOOK_S = 10.0  # while pods are stuck: a decision that could not be written is made again

# --- what is written of decisions -----------------------------------------------------------------------------------
VERDICTS_AT_ONCE, REFUSALS_AT_ONCE = 8, 2  # writes of admissions and of those that are preempted, and of other refusals
VERDICT_RETRY_S = 1.0
VERDICT_PAUSE_S, VERDICT_LONGEST_PAUSE_S = 0.05, 30.0  # of a workload after a verdict on it could not be written
REASONS_FIRST_AT_ONCE, REASONS_FIRST_PER_S = 64, 10  # first refusals that are written at once
REASONS_PER_S = 50  # all others at most
# Of the time that such a write takes, nine times as much is left between two of them.
REASONS_AFTER_S, REASONS_REST, REASONS_LONGEST_REST_S = 1.0, 9, 2.0
REASONS_CATCH_UP_S = 0.1  # between two that are behind those of their kind in the queue, and report what was found of these

# --- gathering events before a key is reconciled
# -----------------------------------------------------------------------
UNGATING_BATCH_S = 1.0  # KEP-2724, Enforcing the assignment
UNITS_BATCH_S, PODS_A_SECOND = 0.3, 4_000  # pods of one unit come one by one; one of so many pods is reconciled once a second
PODS_READY_BATCH_S = 0.3  # pods of one workload become ready one by one
RECLAIMABLE_BATCH_S = 0.5  # pods of one job end one by one
NODES_BATCH_S = 0.5  # nodes of a rack fail one by one, and so do pods of a node
SPARES_BATCH_S = 0.5  # nodes of a rack change one by one
GROUPS_BATCH_S = 0.2  # pods of a group come one by one
ACTIVITY_SETTLE_S = 1.0  # several objects are changed together
DRIFT_SETTLE_S = 2.0
QUEUES_SETTLE_S, QUEUES_BUSY_S = 0.5, 5.0  # a change is counted half a second later, and those of a busy queue every five seconds
STORMS_EVERY_S = 0.25  # thousands of nodes may change at once, and each look goes over all of them

# --- looking again though nothing has happened ---------------------------------------------------------------------------
STOP_POLL_S = 1.0  # whether pods that are to end have ended
LEFT_POLL_S = 30.0  # a safety net: events of the pods lead to the next plan
OUTSIDE_POLL_S = 30.0  # no event of a pod that is in no unit leads to the next plan
OTHERS_HELD_S = 30.0  # no event reports that the last pod of another has ended
PODS_HELD_S = 10.0  # the node on which a pod ends may go down meanwhile
EXCESS_S = 60.0  # the LimitRange or RuntimeClass that a pod has its requests from may be observed later than the pod
NAMESPACE_ENDING_S = 5.0  # until all in a namespace that is being deleted are evicted
STORM_LOOK_S = 10.0  # at a workload with nodes that are not judged in a storm
STORMS_LOOK_S = 5.0  # at the storms themselves
NODE_GONE_S = 5.0  # a node may be deleted and created again: its pods run on, and must not have another place by then
LOST_AGAIN_S = 30.0  # between two reports of the same lost nodes of a workload that has the same place
SPARES_FILL_S, SPARES_LOOK_S = 5.0, 60.0  # while some are missing, and while none is: what is free changes without an event
GROUPS_LOOK_S, GROUPS_AGAIN_S = 5.0, 1.0  # room may be given back without any event of a pod or a node
HANDED_OVER_S = 3.0  # kube-scheduler is given so long since the last pod of a group came
INSTALLED_LOOK_S, INSTALLED_FAILING_S = 1.0, 10.0  # at the kinds that the cluster has
DISCOVERY_S, AWAY_S, LISTED_S = 30.0, 2.0, 10.0  # an API server is updated once in months, but may be away when it is asked
REQUESTS_LISTED_S = 0.5  # how soon to look whether ProvisioningRequests that have just been installed are listed
TROUBLES_LOOK_S, TROUBLES_REMIND_S = 2.0, 300.0  # an operator that comes later reads the end of the log
AUDIT_S = 60.0  # between two recounts of the ledger, and two audits of where pods run
PAGES_S = 60.0
CLOCK_LOOK_S = 10.0
CATCH_UP_S, CATCH_UP_LOOK_S = 120.0, 0.05  # a new leader waits so long at most until it has seen what the last one wrote

# --- after a refusal or a failure -------------------------------------------------------------------------------------------
RETRY_MOST_S = 30.0  # an outage that is over must not be waited out for long
REQUEST_REFUSED_S = 30.0  # what the API server refuses it may take later: a right or a quota that was missing
TOO_LARGE_S = 30.0  # between two looks at what the API server refuses until it changes
GROUP_REFUSED_S = 60.0  # what refuses a write is mostly a policy, which an administrator has to change
JOB_GROUP_REFUSED_S = 30.0  # what was refused may be taken later: a namespace has rules of its own
START_PATIENCE_S, START_FORGOTTEN_S = 300.0, 3600.0  # after the first refusal of a start, and after one that none has followed
SUSPENSION_LONGEST_S, SUSPENSION_REMEMBERED_S = 5.0, 300.0  # of a job that its user starts again and again
PLUGIN_PAUSE_S, PLUGIN_LONGEST_PAUSE_S = 10.0, 600.0  # until a plugin that has failed is asked again; doubled each time

# --- before an event reports that something is missing
# ------------------------------------------------------------------------
GROUP_PATIENCE_S = 10.0  # pods of a group
STRANGER_PATIENCE_S = 10.0  # what would ungate a pod

# --- how much at once, before others have their turn ------------------------------------------------------------------------------
MOST_UNGATED = 5_000  # pods of a workload; those that are seen ungated bring it back for the others
MOST_STARTED = 5_000  # pods of a unit, likewise
MOST_EXCESSIVE = 100  # pods with an event on each that stays gated for what it requests; their template is the same
MOST_PLANNED = 500  # strays that are deleted: those that are gone bring the workload back for the others
QUEUES_COUNTED = 5_000  # workloads
DRIFT_AT_ONCE = 500  # pods
RECOUNTED_AT_ONCE = 100  # nodes, pods and pod sets
READ_AT_ONCE, OWNED_AT_ONCE = 25, 1_000  # workloads, pods
REFERRING_AT_ONCE = 1_000  # jobs that refer to one object
STRANGERS_AT_ONCE = 1_000  # pods of one Workload: a user chooses how many name it
DEVICES_TURN_S = 0.02  # of a processor, during which nothing else is served
DEVICES_CPU_S = 0.25  # for one matcher and the devices of a slice, 128 at most; mostly it is some milliseconds
DEVICES_CPU_OF_ALL_S, DEVICES_BUDGET_S = 30.0, 600.0  # for one matcher and all slices, in so many seconds; 15 s for 640,000 devices

# --- events ------------------------------------------------------------------------------------------------------------------
EVENTS_AT_ONCE, EVENTS_WAITING = 2, 10_000  # writes; up to 10 MB of each type wait
EVENTS_RETRY_S, EVENTS_DRAIN_S = 1.0, 2.0  # after the API server gave no answer; for what waits when the process ends
EVENTS_FOR_MORE, EVENTS_MORE_AT_ONCE = 500, 3  # for each so many that wait one write more beside each of these, so many at most
EVENTS_QUIET_S = 120.0  # an event on an object is not written again within two minutes
# Of normal events, and of warnings: what 15,000 workloads that come at once report, and what etcd bears for the hour that events are kept.
EVENTS_PER_S, EVENTS_BURST = 50, 40_000

"""`docs/reference.md`: labels, annotations, conditions, flags and gates, written from the code: `python -m cli.reference --write`.

What each name means stands here, beside the constant; a test knows whether one is missing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import reconciler.settings
import webhook.settings
from cli import gate_table
from core import names as n
from core.api.files.configuration_wire import ConfigurationFile
from core.api.files.strict import Ignored, Says, Strict, find_blocks
from core.jobs.kinds.appwrapper import MAX_PATH_LENGTH
from core.jobs.kinds.trainjob import MAX_PATCHES
from core.jobs.pod_rules import (
    ADDED_BYTES,
    ADDED_NODE_ENTRIES,
    ADDED_RESOURCE_NAMES,
    ADDED_TOLERATIONS,
    ADDED_VALUES,
    MAX_CLAIMS,
    MAX_GRACE_S,
    MAX_HOST_PORTS,
    MAX_POD_TERMS,
    MAX_RESOURCE_NAMES,
    MAX_SELECTOR_ENTRIES,
    MAX_TEMPLATE_BYTES,
    MAX_TEMPLATE_VALUES,
    MAX_TOLERATIONS,
)
from core.plan.steps import pacing
from core.podgroups.devices.node_limits import MOST_KINDS
from core.podgroups.members import MOST_PODS, MOST_SETS, MOST_TERMS
from core.runtime import generated
from core.runtime.arguments import OneLineParser

FOLDER = Path(__file__).parents[1] / "docs"
_SOURCE = "cli.reference"


class Name(NamedTuple):
    """A label or an annotation: where it is set, its meaning, its values."""

    name: str
    where: str
    meaning: str


TEMPLATE, JOB, POD = "annotation of a pod template", "annotation of the job", "annotation of a pod of a group"

WRITTEN_BY_USERS = (
    Name(n.QUEUE_NAME_LABEL, "label of the job", "its LocalQueue; without it topogate leaves the job alone, but in managed namespaces"),
    Name(n.PRIORITY_CLASS_LABEL, "label of the job", "its WorkloadPriorityClass"),
    Name(n.MAX_EXEC_TIME_LABEL, "label of the job", 'for how many seconds it may be admitted in all, "1" and more; then it is deactivated'),
    Name(n.PREBUILT_WORKLOAD, "label or annotation of the job", "the Workload that it takes instead of getting one"),
    Name(n.REQUIRED_TOPOLOGY, TEMPLATE, "the node label of a level, or `auto`: all pods in one domain of it, or the job waits"),
    Name(n.PREFERRED_TOPOLOGY, TEMPLATE, "the same, or in the next level up, or in as few domains as it takes"),
    Name(n.UNCONSTRAINED_TOPOLOGY, TEMPLATE, '`"true"`: anywhere in a flavor that has a topology'),
    Name(n.SLICE_REQUIRED_TOPOLOGY, TEMPLATE, "the node label of a level: each slice of the pods in one domain of it"),
    Name(n.SLICE_SIZE, TEMPLATE, "the pods of a slice; it divides them evenly, but with gate TASPartialSlices the last one may have fewer"),
    Name(n.SLICE_CONSTRAINTS, TEMPLATE, 'up to three layers of slices, JSON: `[{"topology": LABEL, "size": N}, ...]`, coarse to fine'),
    Name(
        n.PODSET_GROUP_NAME,
        TEMPLATE,
        "templates of one job with the same name share a domain; with gate TASGroupedPodSetSlicing they may have slices",
    ),
    Name(
        n.TOPOLOGY_SPREADING,
        TEMPLATE,
        "JSON: how Workloads are spread over domains of a level or two, with gate TASTopologySpreading (users.md)",
    ),
    Name(n.SPARE_NODES, TEMPLATE, "how many nodes of its domain are kept free for its pods, to take them when a node fails (nodes.md)"),
    Name(n.LEND_SPARES, TEMPLATE, '`"true"`: these nodes are lent to workloads of lower priority until they are needed (nodes.md)'),
    Name(
        n.POD_INDEX_OFFSET,
        TEMPLATE,
        "the index at which its pods begin, a whole number; an Indexed Job begins at 0 (coordinates.md)",
    ),
    Name(n.WORKLOAD_REQUIRED_TOPOLOGY, JOB, "the node label of a level: all pods of all templates in one domain of it"),
    Name(n.WORKLOAD_PREFERRED_TOPOLOGY, JOB, "the same if it can be, else of a level above"),
    Name(
        n.PLACEMENT_PROFILE,
        "annotation of a job, a ClusterQueue or a Topology",
        f"one of {', '.join(f'`{name}`' for name in n.PLACEMENT_PROFILES)}; the nearest to the job applies (placement.md)",
    ),
    Name(
        n.COMPLETIONS_EQUAL_PARALLELISM,
        'annotation of an Indexed batch/v1 Job, `"true"`',
        "started with fewer pods it has as few completions, so that all ranks run; both are restored when it stops",
    ),
    Name(n.MIN_PARALLELISM, "annotation of a batch/v1 Job", "with how few pods it may be started where there is no room for all"),
    Name(n.ELASTIC_JOB, JOB, '`"true"`: it may grow and shrink while it runs (gates)'),
    Name(n.POD_GROUP_NAME, "label of a pod, or annotation", "the group it is queued with"),
    Name(n.POD_GROUP_TOTAL_COUNT, POD, "how many pods the group has"),
    Name(n.POD_GROUP_FAST_ADMISSION, POD, '`"true"`: the group is queued before all of its pods are there'),
    Name(n.POD_GROUP_INDEX_LABEL, "label of a pod of a group", "its rank"),
    Name(n.POD_GROUP_INDEX_LABEL_NAME, POD, "which other label has its rank"),
    Name(n.RETRIABLE_IN_GROUP, POD, '`"false"`: a pod of it that fails fails the group'),
    Name(
        n.PODGROUP_TOPOLOGY,
        "annotation of a Job, JobSet, MPIJob or LeaderWorkerSet without a queue",
        "the levels, the widest first, that its pods share as one PodGroup; `LEVEL:Preferred` where that can be (podgroups.md)",
    ),
    Name(
        n.PODGROUP_PLACED_BY,
        "annotation of a Job that has that one",
        "`topogate`, or `kube-scheduler`: by its own PodGroups (Kubernetes 1.36; podgroups.md)",
    ),
    Name(n.MEMBER_OF_LABEL, "label of a pod, and a scheduling gate", "the PodGroup of topogate.dev it is placed with (podgroups.md)"),
    Name(
        n.REPLICA_LABEL,
        "label of a pod of a PodGroup",
        "which of its replicas it belongs to, from 0; of a LeaderWorkerSet those of that, unless it says another",
    ),
    Name(
        n.MANAGED_NAMESPACE_LABEL,
        "label of a namespace",
        '`"true"`: everything in it is queued, in its LocalQueue `default` where none is named',
    ),
    Name(
        n.ALLOW_DAEMON_SETS,
        "annotation of a managed namespace",
        '`"true"`: its users may make DaemonSets, which no quota counts (security.md)',
    ),
    Name(
        n.LOST_NODES_THRESHOLD,
        JOB,
        '`"1"` to `"8"`: it is not evicted for up to so many lost nodes (gate TASReplaceMultipleFailedNodes; nodes.md)',
    ),
    Name(
        n.WAIT_FOR_PODS_READY,
        "annotation of the job (Deployment: of its template)",
        "in which time its pods must be ready, JSON (gate WorkloadLevelWaitForPodsReady; administration/pods-ready.md)",
    ),
    Name(
        n.MAX_NOT_READY_COUNT,
        POD,
        "how many of it may be not ready (gate WaitForPodsReadyMaxNotReady; administration/pods-ready.md)",
    ),
    Name(n.PREEMPTION_CONFIG, "annotation of a ClusterQueue", "Kueue's PreemptionConfig; a warning says that it has no effect"),
    Name(
        n.ROTATE_CA,
        "annotation of the Secret of the webhook's certificate",
        "whatever its value: a new CA is made (administration/certificates.md)",
    ),
)
WRITTEN_BY_TOPOGATE = (
    Name(n.WORKLOAD_ANNOTATION, "annotation of pods", "their Workload"),
    Name(n.PODSET_LABEL, "label of pods", "their pod set in it"),
    Name(n.LOCAL_QUEUE_LABEL, "label of pods", "their LocalQueue"),
    Name(n.CLUSTER_QUEUE_LABEL, "label of pods", "their ClusterQueue"),
    Name(n.JOB_UID_LABEL, "label of Workloads", "the uid of what it is made for"),
    Name(
        n.LEVEL_PREFIX + "0, 1, ...",
        "label of pods; an annotation where the value is no label's",
        "their domain at each level, 0 is the coarsest",
    ),
    Name(n.RANK_ANNOTATION, "annotation of pods", "their rank"),
    Name(n.DOMAIN_INDEX_ANNOTATION, "annotation of pods", "which of the domains of the assignment, in the order of ranks"),
    Name(n.DOMAIN_SIZE_ANNOTATION, "annotation of pods", "how many pods of the pod set are there"),
    Name(n.TRACEPARENT_ANNOTATION, "annotation of jobs, Workloads and pods", "the trace of the request that the job came with"),
    Name(
        n.FORGOTTEN_FAILURES,
        "annotation of Workloads",
        "how many of its evictions for lost nodes count no more: it ran well after them, or was activated again",
    ),
    Name(n.MADE_BY, "annotation of Workloads of single pods", "the uid of the controller that makes another pod when that is gone"),
    Name(n.SPARES, "annotation of Workloads", "the nodes that are kept free for it, JSON: by pod set their names"),
    Name(n.BORROWED_SPARES, "annotation of Workloads", "of its own nodes those that are another's spares, lent to it; JSON as above"),
    Name(
        n.DEFAULTED_SLICE_SIZE,
        "annotation of pod templates of a JobSet",
        f"the `{n.SLICE_SIZE}` that the webhook wrote; it follows `parallelism` until a user sets another",
    ),
    Name(n.FIELDS_OF_V1BETA2, "annotation of objects read as v1beta1", "what v1beta1 cannot say"),
    Name(n.FIELDS_OF_V1BETA1, "annotation of objects read as v1beta2", "what v1beta2 cannot say"),
    Name(n.MANAGED, "label and finalizer of queued pods", "topogate looks after it"),
    Name(n.POD_GROUP_SERVING, "annotation of pods of a StatefulSet or LeaderWorkerSet", "their group serves and does not end"),
    Name(n.ROLE_HASH, "annotation of pods of a group", "which of them are alike"),
    Name(n.SUSPENDING_PARENT, "annotation of pods", "the kind that they are queued through"),
    Name(n.IS_GROUP_WORKLOAD, "annotation of Workloads", "made for a group of pods"),
    Name(n.JOB_OWNER_GVK, "annotation of Workloads of a LeaderWorkerSet", "the kind of what they are made for"),
    Name(n.JOB_OWNER_NAME, "annotation of Workloads of a LeaderWorkerSet", "and its name"),
    Name(n.COMPONENT_WORKLOAD_INDEX, "annotation of Workloads of a LeaderWorkerSet", "which replica"),
    Name(n.SLICE_NAME, "annotation of Workloads of an elastic job, and of its pods", "the name of its first Workload"),
    Name(n.SLICE_REPLACES, "annotation of Workloads of an elastic job", "the Workload that it replaces: it takes over its place and pods"),
    Name(n.PROVISIONING_CONTENT, "annotation of ProvisioningRequests and PodTemplates", "a hash of what was asked for"),
    Name(n.PROVISIONING_RESERVATION, "annotation of ProvisioningRequests", "since when the workload had its quota"),
)
READ_FROM_OTHERS = (
    Name(n.MULTIKUEUE_ORIGIN, "label of Workloads", "a manager of several clusters has put it here"),
    Name(n.PROVISIONING_ANNOTATIONS + "...", "annotations of a job", "handed on to its ProvisioningRequest as parameters"),
)


LIMITS = (
    ("terms of pod affinity and anti-affinity, required and preferred, and topology spread constraints", str(MAX_POD_TERMS)),
    ("their expressions, values, labels and namespaces in all", str(MAX_SELECTOR_ENTRIES)),
    ("expressions and values of node affinity, and entries of `nodeSelector`, in all", str(MAX_SELECTOR_ENTRIES)),
    ("tolerations", str(MAX_TOLERATIONS)),
    ("host ports", str(MAX_HOST_PORTS)),
    ("`resourceClaims`, where quota counts their devices", str(MAX_CLAIMS)),
    ("different names of resources, of all containers", str(MAX_RESOURCE_NAMES)),
    ("seconds to end (`terminationGracePeriodSeconds`, and the grace period of a deletion)", str(MAX_GRACE_S)),
    ("values (arguments, variables, ...) in all pod templates of its object; maps and lists count as one each", str(MAX_TEMPLATE_VALUES)),
    ("bytes of all pod templates of its object, as JSON", str(MAX_TEMPLATE_BYTES)),
    ("patches of replicated jobs in `spec.runtimePatches` of a TrainJob", str(MAX_PATCHES)),
    ("characters of the path of a pod template in an AppWrapper (`spec.components[].podSets[].path`)", str(MAX_PATH_LENGTH)),
)
_VARIABLES = (
    "A flag is stronger than its environment variable, and that than the configuration file ([configuration.md](configuration.md)). "
    "A variable that is empty says nothing; one for a flag without a value is `true` or `false`; where the flag is repeatable it holds "
    "values with commas between them. What Kubernetes itself sets for a Service of a like name (`tcp://...`) is passed over. What is "
    "wrong ends the process with exit code 2, all of it at once: a line for each mistake, which says where it stands."
)


def render() -> str:
    """Returns docs/reference.md as Markdown: labels, annotations, limits, flags, keys of the configuration file and feature gates."""
    keys = list(list_keys(ConfigurationFile))
    parts = [
        "# Reference",
        f"Written by `python -m {_SOURCE} --write` from the code; do not edit. The pages of each subject explain the words.",
        "## Labels and annotations that users write",
        _format_table(("name", "where", "meaning"), ((f"`{x.name}`", x.where, x.meaning) for x in WRITTEN_BY_USERS)),
        "## Labels and annotations that topogate writes",
        _format_table(("name", "where", "meaning"), ((f"`{x.name}`", x.where, x.meaning) for x in WRITTEN_BY_TOPOGATE)),
        "## Labels and annotations that others write and topogate reads",
        _format_table(("name", "where", "meaning"), ((f"`{x.name}`", x.where, x.meaning) for x in READ_FROM_OTHERS)),
        "## Limits of what a pod asks for",
        "They have no honest use beyond. The webhook refuses a new or changed object in a queue if a pod template of it exceeds one; the "
        "policy "
        "`topogate-limits` does the same of pods behind a gate of topogate's, but for resource names, claims, values and bytes, and not "
        "of what a writer of the status of Workloads creates, such as an administrator. Pods that name their Workload "
        f"(`{n.WORKLOAD_ANNOTATION}`) are exempt: the template of their job was judged, and the start of the job adds to it. The changes "
        "by which topogate starts and stops a job are not judged either. A pod that is queued itself has more than its template: there is "
        f"room for {ADDED_TOLERATIONS} more tolerations (the API server adds two, of nodes that are not ready or unreachable), "
        f"{ADDED_NODE_ENTRIES} more entries for nodes, {ADDED_RESOURCE_NAMES} more names of resources, {ADDED_VALUES} more values and "
        f"{ADDED_BYTES} more bytes, which the API server, flavors and other webhooks add. ResourceClaims of queued jobs are "
        "refused unless quota counts their devices ([queues.md](queues.md#devices-that-pods-claim)); pods of a PodGroup without a queue "
        "may have them ([podgroups.md](podgroups.md)).",
        _format_table(("of one pod", "at most"), LIMITS),
        "## Limits of what a PodGroup asks for",
        "More `draConstraints` are refused when the PodGroup is created. A PodGroup that exceeds another limit gets no place: its "
        "condition has the reason `Invalid`, and the message names the field, the value and what is accepted.",
        _format_table(("of one PodGroup", "at most"), _list_group_limits()),
        "## Flags of the webhook",
        _VARIABLES,
        _format_table(("flag", "variable", "meaning"), _list_flags(webhook.settings.make_parser())),
        "## Flags of the reconciler",
        _format_table(("flag", "variable", "meaning"), _list_flags(reconciler.settings.make_parser())),
        "## Keys of the configuration file",
        "[configuration.md](configuration.md) says how the file is read. Without a default a key says nothing where it is not given.",
        _format_table(("key", "what", "default"), ((key, says.what, says.default) for key, says in keys if isinstance(says, Says))),
        "## Keys of the configuration file that are ignored",
        "They are known, and the log has one warning for each that is given. What is wrong in them is a mistake all the same.",
        _format_table(("key", "why"), ((key, ignored.why) for key, ignored in keys if isinstance(ignored, Ignored))),
        "## Feature gates",
        "`--feature-gates NAME=true,...` of the reconciler, `featureGates` of its file ([configuration.md](configuration.md)). "
        "Defaults are Kueue's, but `TASPartialSlices` and `TASGroupedPodSetSlicing` are on there. "
        "The other gates of Kueue switch nothing here, except `DisableWaitForPodsReady`: with it no pods are waited for.",
        _format_table(gate_table.HEAD, gate_table.list_rows()),
    ]
    return "\n\n".join(parts) + "\n"


def list_keys(block: type[Strict], path: str = "") -> Iterator[tuple[str, Says | Ignored]]:
    """Yields the keys of a block and of its inner blocks, each as its path in backticks. Beside it is its description, or the reason why it
    has no effect. A key with neither is left out, but not the blocks in it."""
    for name, field in block.model_fields.items():
        where = f"{path}{field.alias or name}"
        mark = next((mark for mark in field.metadata if isinstance(mark, Says | Ignored)), None)
        if mark is not None:
            yield f"`{where}`", mark
        else:
            for inner in find_blocks(field.annotation):
                yield from list_keys(inner, f"{where}.")


def _list_group_limits() -> list[tuple[str, str]]:
    kind = "different kinds of devices (class, CEL expressions, tolerations and capacity of a request)"
    window = f"within {pacing.DEVICES_BUDGET_S / 60:g} minutes (15 s for 5,000 slices of 128 devices)"
    return [
        ("`draConstraints`", "4"),
        ("pods of one replica that wait for a place", str(MOST_PODS)),
        ("of them pods that ask for different things", str(MOST_SETS)),
        ("terms of required pod affinity and anti-affinity of all that are different", str(MOST_TERMS)),
        (f"{kind} of one of its ResourceClaimTemplates, and of all of them together", str(MOST_KINDS)),
        (
            "CPU time in which the CEL expressions of one kind are evaluated for the devices of one ResourceSlice (usually milliseconds)",
            f"{pacing.DEVICES_CPU_S:g} s",
        ),
        (f"CPU time in which they are evaluated for all ResourceSlices together, {window}", f"{pacing.DEVICES_CPU_OF_ALL_S:g} s"),
    ]


def _format_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _list_flags(parser: OneLineParser) -> Iterator[tuple[str, str, str]]:
    """Yields each flag with its variable and its help."""
    formatter = parser._get_formatter()
    for action in parser.flags:
        value = "" if action.nargs == 0 else f" {action.metavar or '|'.join(map(str, action.choices or [])) or action.dest.upper()}"
        meaning = formatter._expand_help(action) if action.help else ""
        yield f"`{', '.join(action.option_strings)}{value}`", f"`{parser.get_variable(action)}`", meaning


if __name__ == "__main__":
    sys.exit(generated.run(_SOURCE, FOLDER, {"reference.md": render()}))

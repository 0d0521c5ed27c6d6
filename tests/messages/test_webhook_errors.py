"""The catalogue of sentences, webhook: what kubectl prints of a refused object, and which warnings it prints of an accepted one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from core.jobs.kinds.job import Job
from core.names import (
    PLACEMENT_PROFILE,
    POD_GROUP_NAME,
    POD_GROUP_TOTAL_COUNT,
    PODGROUP_PLACED_BY,
    PODSET_GROUP_NAME,
    QUEUE_NAME_LABEL,
    REQUIRED_TOPOLOGY,
    SLICE_CONSTRAINTS,
    SLICE_REQUIRED_TOPOLOGY,
    SLICE_SIZE,
    SPARE_NODES,
    UNCONSTRAINED_TOPOLOGY,
    WORKLOAD_REQUIRED_TOPOLOGY,
)
from e2e import manifests
from tests.builders import RACK
from tests.jobs import test_appwrapper as of_wrappers
from tests.jobs import test_execution_time as of_times
from tests.jobs import test_min_parallelism as of_minimum
from tests.jobs import test_pods as of_pods
from tests.jobs import test_prebuilt as of_prebuilt
from tests.webhook.asking import MUTATE_JOB, Webhook, hook
from tests.webhook.reviews import test_group_reviews as of_groups
from tests.webhook.reviews import test_object_reviews as of_objects
from tests.webhook.reviews import test_scale as of_scale
from webhook import known_names
from webhook.known_names import NamedLevel

Json = dict[str, Any]
Build = Callable[[], Json]


def ask(template: Json | None = None, own: Json | None = None) -> Json:
    """The answer about a Job with annotations on its pod template and on itself."""
    made = manifests.build_job("train", "team-a", pods=4, annotations=template or {})
    made["metadata"]["annotations"] = own or {}
    return Webhook().validate(made)


def judge_kind(rules: Any) -> Json:
    """The refusal and the warnings of one kind's own rules, as an answer."""
    return {
        "status": {"message": "\n".join(map(str, rules.errors))},
        "warnings": list(rules.warnings),
    }


def nest() -> Json:
    deep: Any = 1
    for _ in range(800):
        deep = {"a": deep}
    return Webhook().ask(hook("mutate", "Job"), manifests.build_job("train", "team-a", pods=1, spec={"x": deep}))


def change_queue(**fields: Any) -> Json:
    made = of_objects.queue(a={"cpu": 1})
    made["spec"] |= fields
    return Webhook().validate(made)


def repeat_group() -> Json:
    made = of_objects.queue(a={"cpu": 1})
    made["spec"]["resourceGroups"] *= 2
    return Webhook().validate(made)


def make_cohort(**spec: Any) -> Json:
    made = {**of_objects.queue(a={"cpu": 1}), "kind": "Cohort"}
    made["spec"] |= spec
    if "parentName" not in spec:
        made["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["borrowingLimit"] = 1
    return Webhook().validate(made)


def lie_about_pods() -> Json:
    honest = of_wrappers.HONEST["Job"]
    lying = {**honest, "podSets": [{**pod_set, "replicas": 7} for pod_set in honest["podSets"]]}
    return Webhook().validate(of_wrappers.build_wrapper(lying))


def ask_of_group(text: str) -> Json:
    return of_groups.validate_object(of_groups.build_object("Job", text))


def change_placer() -> Json:
    old = of_groups.mutated(of_groups.by_kube_scheduler())
    new = of_groups.mutated(of_groups.by_kube_scheduler())
    new["metadata"]["annotations"][PODGROUP_PLACED_BY] = "topogate"
    return of_groups.validate_object(new, old)


def drop_scheduling_group() -> Json:
    stored = of_groups.mutated(of_groups.by_kube_scheduler())
    del stored["spec"]["template"]["spec"]["schedulingGroup"]
    return of_groups.validate_object(stored)


def group_without_feature() -> Json:
    return of_groups.validate_object(of_groups.build_object("Job"), webhook=Webhook(groups=False))


def ask_for_queue(default_queue: bool | None) -> Json:
    return Webhook(default_queue=default_queue).ask(MUTATE_JOB, manifests.build_job("train", "team-a", pods=1, queue=None))


def ask_of_names(queue: str, named: str = RACK, levels: Sequence[str] = (RACK,)) -> Json:
    """The warnings of a name that resembles one of those that are known, or none."""
    level = NamedLevel(f"spec.template.metadata.annotations[{REQUIRED_TOPOLOGY}]", named)
    of_queue = [known_names.warn_of_queue("team-a", queue, ["main", "research"])] if queue != "main" else []
    return {"warnings": of_queue or list(known_names.warn_of_levels(queue, [level], levels))}


REFUSALS: dict[str, tuple[Build, str]] = {
    "no level": (
        lambda: ask({REQUIRED_TOPOLOGY: "a rack"}),
        'topogate refuses this object:\nspec.template.metadata.annotations[kueue.x-k8s.io/podset-required-topology]: "a rack": '
        "a node label name such as cloud.provider.com/topology-rack is expected",
    ),
    "no truth": (
        lambda: ask({UNCONSTRAINED_TOPOLOGY: "perhaps"}),
        "topogate refuses this object:\nspec.template.metadata.annotations[kueue.x-k8s.io/podset-unconstrained-topology]: "
        '"perhaps": "true" or "false" is expected',
    ),
    "slices that do not divide": (
        lambda: ask({REQUIRED_TOPOLOGY: RACK, SLICE_REQUIRED_TOPOLOGY: RACK, SLICE_SIZE: "3"}),
        'topogate refuses this object:\nspec.template.metadata.annotations[kueue.x-k8s.io/podset-slice-size]: "3": slices must '
        "evenly divide the 4 pods: one of 1, 2, 4 is expected; with feature gate TASPartialSlices the last slice may have fewer pods",
    ),
    "slices in a group": (
        lambda: ask({REQUIRED_TOPOLOGY: RACK, PODSET_GROUP_NAME: "g", SLICE_CONSTRAINTS: f'[{{"topology": "{RACK}", "size": 2}}]'}),
        "topogate refuses this object:\nspec.template.metadata.annotations[kueue.x-k8s.io/podset-group-name]: may not stand beside "
        "kueue.x-k8s.io/podset-slice-required-topology-constraints; with feature gate TASGroupedPodSetSlicing a group may have slices",
    ),
    "layers that are none": (
        lambda: ask({REQUIRED_TOPOLOGY: RACK, SLICE_CONSTRAINTS: "[7]"}),
        "topogate refuses this object:\n"
        "spec.template.metadata.annotations[kueue.x-k8s.io/podset-slice-required-topology-constraints]: [0] is 7, and a "
        'topology with a size is expected; a list such as [{"topology": "cloud.provider.com/topology-rack", "size": 16}] is '
        "expected",
    ),
    "spares that are no number": (
        lambda: ask({REQUIRED_TOPOLOGY: RACK, SPARE_NODES: "some"}),
        'topogate refuses this object:\nspec.template.metadata.annotations[topogate.dev/spare-nodes]: "some": a whole number of '
        "nodes from 0 to 64 is expected",
    ),
    "no profile": (
        lambda: ask(own={PLACEMENT_PROFILE: "Compact"}),
        'topogate refuses this object:\nmetadata.annotations[topogate.dev/placement-profile]: "Compact": one of kep, compact, '
        "best-fit, least-free, balanced is expected",
    ),
    "auto for a whole job": (
        lambda: ask(own={WORKLOAD_REQUIRED_TOPOLOGY: "auto"}),
        'topogate refuses this object:\nmetadata.annotations[topogate.dev/workload-required-topology]: "auto": the level of a '
        "whole job is named; a node label name such as cloud.provider.com/topology-rack is expected (auto is for "
        "kueue.x-k8s.io/podset-required-topology and -preferred-topology)",
    ),
    "no minimum": (
        lambda: judge_kind(Job().validate_create(of_minimum.build_job("two"))),
        "metadata.annotations[kueue.x-k8s.io/job-min-parallelism]: 'two': a whole number from 1 to 6 is expected, which is how "
        "many pods the job runs at once",
    ),
    "no execution time": (
        lambda: judge_kind(Job().validate_create(of_times.build_job("1h"))),
        "metadata.labels[kueue.x-k8s.io/max-exec-time-seconds]: '1h': a whole number of seconds is expected, 1 to 2147483647",
    ),
    "another execution time of a running job": (
        lambda: judge_kind(Job().validate_update(of_times.build_job("5", suspend=False), of_times.build_job("6", suspend=False))),
        "metadata.labels[kueue.x-k8s.io/max-exec-time-seconds]: '6': is settled while the job runs: it keeps '5'; suspend it first",
    ),
    "another Workload of a running job": (
        lambda: judge_kind(Job().validate_update(of_prebuilt.build_job("a", suspend=False), of_prebuilt.build_job("b", suspend=False))),
        "metadata.labels[kueue.x-k8s.io/prebuilt-workload-name]: 'b': is settled while the job runs: it keeps 'a'; suspend it first",
    ),
    "a total count as a label": (
        lambda: judge_kind(
            of_pods.POD.validate_create(of_pods.build_pod({**of_pods.QUEUED, POD_GROUP_NAME: "g", POD_GROUP_TOTAL_COUNT: "2"}))
        ),
        "metadata.annotations[kueue.x-k8s.io/pod-group-total-count]: is needed beside kueue.x-k8s.io/pod-group-name: the "
        "number of pods of the group; it was found as a label, but it is an annotation",
    ),
    "pods of an AppWrapper": (
        lie_about_pods,
        "topogate refuses this object:\nspec.components[0].podSets[0].replicas: 7: 8 is expected: so many pods this Job makes "
        "of that template",
    ),
    "nested too deeply": (nest, "the object is nested too deeply to be judged"),
    "no default queue known": (
        lambda: ask_for_queue(None),
        "the LocalQueue 'default' of the namespace could not be looked up (503: etcd is slow); try again",
    ),
    "group of no level": (
        lambda: ask_of_group("rack of ours"),
        'topogate refuses this object:\nmetadata.annotations[topogate.dev/podgroup-topology]: "rack of ours": a node label such '
        "as cloud.provider.com/topology-rack is expected, or the name that a NodeTopology gives one",
    ),
    "group of no mode": (
        lambda: ask_of_group("rack:preferred"),
        'topogate refuses this object:\nmetadata.annotations[topogate.dev/podgroup-topology]: "rack:preferred": rack:Required '
        "or rack:Preferred is expected; without either it is required",
    ),
    "group of a level twice": (
        lambda: ask_of_group("rack, rack:Preferred"),
        'topogate refuses this object:\nmetadata.annotations[topogate.dev/podgroup-topology]: "rack:Preferred": each level is '
        "named once, the widest first",
    ),
    "group of too many levels": (
        lambda: ask_of_group(",".join("abcdefghijklmnopq")),
        "topogate refuses this object:\nmetadata.annotations[topogate.dev/podgroup-topology]: 17: at most 16 levels are expected",
    ),
    "group of another placer": (
        change_placer,
        'topogate refuses this object:\nmetadata.annotations[topogate.dev/podgroup-placed-by]: "topogate": is settled when the '
        "Job is created: kube-scheduler places its pods; make another one",
    ),
    "group that the API server drops": (
        drop_scheduling_group,
        "topogate refuses this object:\nspec.template.spec.schedulingGroup: the API server drops it: kube-scheduler's own "
        "PodGroups are served since Kubernetes 1.36 where the feature gate GenericWorkload is on; leave out "
        "topogate.dev/podgroup-placed-by, and topogate places them",
    ),
    "slices of a Workload": (
        lambda: Webhook().validate(
            of_objects.build_workload(of_objects.build_pod_set(topologyRequest={"podSetSliceRequiredTopology": RACK, "podSetSliceSize": 3}))
        ),
        "topogate refuses this object:\nspec.podSets[0].topologyRequest.podSetSliceSize: 3: slices must evenly divide the 4 pods: "
        "one of 1, 2, 4 is expected; with feature gate TASPartialSlices the last slice may have fewer pods",
    ),
    "pod sets of one name": (
        lambda: Webhook().validate(of_objects.build_workload(of_objects.build_pod_set("a"), of_objects.build_pod_set("a"))),
        'topogate refuses this object:\nspec.podSets: "a": each pod set has a name of its own',
    ),
    "pod set of another type": (
        lambda: Webhook().validate(of_objects.build_workload("x")),
        'topogate refuses this object:\nspec.podSets[0]: "x": a map is expected',
    ),
    "a resource twice": (
        repeat_group,
        'topogate refuses this object for 2 reasons:\nspec.resourceGroups[1].coveredResources: "cpu": is covered by group 0 '
        'already\nspec.resourceGroups[1].flavors[0].name: "a": is in group 0 already',
    ),
    "no quota": (
        lambda: Webhook().validate(of_objects.queue(a={"cpu": "-1", "memory": "x"})),
        'topogate refuses this object for 2 reasons:\nspec.resourceGroups[0].flavors[0].resources[0].nominalQuota[cpu]: "-1": a '
        'quantity of at least 0 is expected\nspec.resourceGroups[0].flavors[0].resources[1].nominalQuota[memory]: "x": a '
        "quantity such as 500m, 4 or 1.5Gi is expected",
    ),
    "a cohort that is its own parent": (
        lambda: make_cohort(parentName="q"),
        'topogate refuses this object:\nspec.parentName: "q": another cohort is expected',
    ),
    "a cohort that borrows from none": (
        make_cohort,
        "topogate refuses this object:\nspec.resourceGroups[0].flavors[0].resources[0].borrowingLimit: 1: needs a parentName",
    ),
    "a part that grows": (
        lambda: of_scale.scale({"metadata": {"ownerReferences": [of_scale.OWNER]}, "spec": of_scale.STARTED})[0],
        "topogate refuses this object:\nspec.replicas: 3: this PyTorchJob was admitted as a part of AppWrapper wrapper, with "
        "the pods that it has: change that, which is queued again",
    ),
    "too many replicas": (
        lambda: of_scale.scale(
            {"metadata": {"labels": {QUEUE_NAME_LABEL: "main"}}, "spec": {}}, 2, 10_001, "leaderworkersets", "leaderworkerset.x-k8s.io"
        )[0],
        "topogate refuses this object:\nspec.replicas: 10001: at most 10000 are expected, each is a Workload",
    ),
}


@pytest.mark.parametrize(("build", "sentence"), REFUSALS.values(), ids=REFUSALS)
def test_webhook_refusal_has_its_sentence(build: Build, sentence: str):
    assert build()["status"]["message"] == sentence


WARNINGS: dict[str, tuple[Build, str]] = {
    "on the job instead of the template": (
        lambda: ask(own={REQUIRED_TOPOLOGY: RACK}),
        "metadata.annotations[kueue.x-k8s.io/podset-required-topology]: has no effect on the Job itself: set it on the pod "
        "template (spec.template.metadata.annotations)",
    ),
    "on the template instead of the job": (
        lambda: ask({REQUIRED_TOPOLOGY: RACK, PLACEMENT_PROFILE: "compact"}),
        "spec.template.metadata.annotations[topogate.dev/placement-profile]: this annotation does nothing here; set it on the job itself",
    ),
    "misspelt": (
        lambda: ask(own={"kueue.x-k8s.io/job-min-paralelism": "2"}),
        "metadata.annotations[kueue.x-k8s.io/job-min-paralelism]: this annotation is not known and does nothing; did you mean "
        "kueue.x-k8s.io/job-min-parallelism?",
    ),
    "of another kind": (
        lambda: {"warnings": of_minimum.list_warnings(of_minimum.build_job("2"), "JobSet")},
        "metadata.annotations[kueue.x-k8s.io/job-min-parallelism]: this annotation does nothing here; only a batch/v1 Job is "
        "started with fewer pods than it asks for",
    ),
    "empty group": (
        lambda: ask({PODSET_GROUP_NAME: "", REQUIRED_TOPOLOGY: RACK}),
        "spec.template.metadata.annotations[kueue.x-k8s.io/podset-group-name]: is empty and has no effect; the name of a group is expected",
    ),
    "unknown keys": (
        lambda: ask({REQUIRED_TOPOLOGY: RACK, SLICE_CONSTRAINTS: '[{"topology": "rack", "size": 4, "extra": 1}]'}),
        "spec.template.metadata.annotations[kueue.x-k8s.io/podset-slice-required-topology-constraints][0]: only topology and "
        "size are read, not extra",
    ),
    "no default queue": (
        lambda: ask_for_queue(False),
        "namespace team-a is managed by topogate but has no LocalQueue 'default': without the label kueue.x-k8s.io/queue-name "
        "this Job is neither queued nor placed",
    ),
    "misspelt queue": (
        lambda: ask_of_names("reserch"),
        "metadata.labels[kueue.x-k8s.io/queue-name]: namespace team-a has no LocalQueue reserch, and this object waits until it "
        "has; did you mean research?",
    ),
    "unknown queue": (
        lambda: ask_of_names("gold"),
        "metadata.labels[kueue.x-k8s.io/queue-name]: namespace team-a has no LocalQueue gold, and this object waits until it has",
    ),
    "misspelt level": (
        lambda: ask_of_names("main", "cloud/rac"),
        "spec.template.metadata.annotations[kueue.x-k8s.io/podset-required-topology]: LocalQueue main has no level cloud/rac; did "
        "you mean cloud/rack?",
    ),
    "unknown level": (
        lambda: ask_of_names("main", "example.com/pod", ["cloud/a", "cloud/b", "cloud/c", "cloud/d"]),
        "spec.template.metadata.annotations[kueue.x-k8s.io/podset-required-topology]: LocalQueue main has no level "
        "example.com/pod; its levels are cloud/a, cloud/b, cloud/c and 1 more",
    ),
    "level without a topology": (
        lambda: ask_of_names("main", levels=()),
        "spec.template.metadata.annotations[kueue.x-k8s.io/podset-required-topology]: no flavor of LocalQueue main has a topology, "
        "and this object waits until one has",
    ),
    "group without its feature": (
        group_without_feature,
        "metadata.annotations[topogate.dev/podgroup-topology]: has no effect: the feature gate TopologyAwareWorkloadScheduling "
        "of topogate is off",
    ),
    "setting without effect": (
        lambda: change_queue(admissionScope={"admissionMode": "NoAdmissionFairSharing"}),
        "spec.admissionScope is stored but has no effect in this version of topogate",
    ),
    "level with a long name": (
        lambda: Webhook().validate(manifests.build_topology("t", [RACK, f"example.com/{'x' * 52}"])),
        "spec.levels[1].nodeLabel: 'example.com/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx' is longer than the 63 "
        "characters that a pod set's request may have",
    ),
}


@pytest.mark.parametrize(("build", "sentence"), WARNINGS.values(), ids=WARNINGS)
def test_webhook_warning_has_its_sentence(build: Build, sentence: str):
    (warning,) = build()["warnings"]
    assert warning == sentence

"""Pods that request more than the pods of their pod set were admitted with: a container was added after the job was counted."""

from collections.abc import Callable, Collection
from dataclasses import replace

from core.model.admission import Admission
from core.model.claimed_devices import convert_devices, describe_devices, is_devices
from core.model.configuration import ResourceRules
from core.model.pod_resources import PODS, Resources
from core.model.quantity import format_quantity
from core.state.facts import WorkloadFacts

# Requests of the init containers that KubeRay (`wait-gcs-ready`) and the training operator (`init-pytorch`) add, in canonical units:
# pods with containers that request less have these instead, and stop having them before they work.
OF_CONTROLLERS: Resources = {"cpu": 200, "memory": 256 << 20}


def limit_to_admitted(
    facts: WorkloadFacts, admission: Admission, covered: Collection[str], rules: ResourceRules, read_template: Callable[[str], Resources]
) -> WorkloadFacts:
    """Returns facts of a workload with no higher requests (of one pod) of the `covered` resources than quota was reserved for; the same
    object where none is. Pod sets are matched by position; one that was admitted with 0 pods keeps its requests.

    A LimitRange or a RuntimeClass that was created or changed later adds to the requests of pods, not to the admission. Not limited are
    `pods`, what `rules` exclude, and a resource that they count as another one. A resource that the ClusterQueue covers only since the
    admission is limited to the requests of the template. `read_template` returns these by the name of the pod set: without what a
    LimitRange or a RuntimeClass adds.
    """
    counted_as_others = {each.input for each in rules.transformations}
    limited = [name for name in covered if name not in counted_as_others and name != PODS and not name.startswith(rules.excluded_prefixes)]
    found = list(facts.pod_sets)
    for i, (pod_set, given) in enumerate(zip(facts.pod_sets, admission.pod_sets, strict=False)):
        devices = convert_devices(pod_set.claimed, rules.device_classes)
        most = {name: given.usage.get(name, 0) // given.count - devices.get(name, 0) for name in limited} if given.count else {}
        if most.keys() & pod_set.requests.keys() - given.usage.keys():
            template = read_template(pod_set.name)
            most |= {name: template.get(name, 0) for name in most.keys() - given.usage.keys()}
        if any(amount > most.get(name, amount) for name, amount in pod_set.requests.items()):
            requests = {name: min(amount, most.get(name, amount)) for name, amount in pod_set.requests.items()}
            found[i] = replace(pod_set, requests=requests)
    return facts if tuple(found) == facts.pod_sets else replace(facts, pod_sets=tuple(found))


def _explain_devices(more: Resources, pod_set: str) -> str:
    return (
        f"the pod claims more than was admitted of a pod of {pod_set} ({describe_devices(more)}), and stays gated. A ResourceClaimTemplate "
        "that it names was deleted, or created anew with other requests, since the job was counted. Create the template as it was, and "
        "delete the pod if it has a claim of the other one; or suspend the job and resume it, so that it is counted anew"
    )


def explain_excess(asked: Resources, admitted: Resources, pod_set: str) -> str:
    """Returns a text for users about what a pod requests (`asked`) beyond what was `admitted` of one pod, and what to do. Empty where it is
    nothing.

    Both amounts are in canonical units (`core.model.quantity`). A resource that was not admitted counts as 0. `pod_set` is a name, for the
    text.
    """
    more = {name: amount - admitted.get(name, 0) for name, amount in sorted(asked.items()) if amount > admitted.get(name, 0)}
    if not more:
        return ""
    if devices := {name: amount for name, amount in more.items() if is_devices(name)}:
        return _explain_devices(devices, pod_set)
    shown = ", ".join(f"{format_quantity(name, amount)} {name}" for name, amount in more.items())
    return (
        f"the pod requests {shown} more than the pods that were admitted as {pod_set}, and stays gated. If an admission webhook "
        "added a container (a sidecar), create the job again in one of these ways: with the same container in the pod template, so that "
        "the webhook does not add it; with the requests of the whole pod in spec.resources of the pod template; or without the injection, "
        "as that webhook provides. Higher requests of the other containers do not help. Else delete the pod"
    )

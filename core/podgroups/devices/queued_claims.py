"""Devices that queued pods claim: how many of which DeviceClass, for quota and for nodes.

A claim is made for each pod from a ResourceClaimTemplate. What its requests ask for is counted by class before the pods are there. From
the admission on the count is the one that quota was reserved for, whatever becomes of the template.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from core.model.admission import PodSetAdmission
from core.model.claimed_devices import UNCOUNTED_DEVICES, convert_devices, name_devices
from core.model.configuration import ResourceRules
from core.model.pod_resources import PODS, Resources, add
from core.model.quantity import saturate
from core.model.transformation import compute_quota_requests
from core.podgroups.devices.claims import Claim, ClaimSpec, NotServed, PodClaim, PodId, Request, read_pod_claims
from core.podgroups.devices.inventory import Inventory
from core.podgroups.devices.node_devices import NodeDevices
from core.state.facts import NodeFacts, PodFacts, PodSetFacts, WorkloadFacts

Json = Mapping[str, Any]
_UNJUDGED = "resourceClaims"
_SHOWN = 3
_MOST_CLAIMS = 64  # of a pod: a Workload that was made by hand may have any number
_NO_DEVICES: Resources = {}


@dataclass(frozen=True, slots=True)
class QueuedClaims:
    """How claims of queued pods are counted. `rules` name the resource of each DeviceClass. `on_nodes`: the devices that nodes have; None:
    nodes are not compared by devices. `find_lack` returns why `inventory` is not complete, empty if it is."""

    inventory: Inventory
    rules: ResourceRules
    on_nodes: NodeDevices | None = None
    find_lack: Callable[[], str] = lambda: ""

    def adjust(self, facts: WorkloadFacts, workload: Json) -> WorkloadFacts:
        """Returns a copy of the facts with the devices that each pod set claims, as `claimed`; if nodes are compared by devices, in
        `requests`, too. Returns the facts themselves where no pod set has claims.

        Of a workload with an admission these are what quota was reserved for. Of any other they are what the templates ask for now, and
        `refused` has the first 3 reasons why claims cannot be counted. `workload` is the Workload (JSON) of the facts."""
        wires = (workload.get("spec") or {}).get("podSets") or ()
        claims = [read_pod_claims(wire.get("template") or {}) for wire in wires]
        if not any(claims):
            return facts
        namespace, problems = facts.key.partition("/")[0], dict[str, None]()
        if facts.admission is None and (lack := self.find_lack()):
            problems[f"claims of its pods cannot be counted: {lack}"] = None
        given = facts.admission.pod_sets if facts.admission is not None else ()
        pod_sets = tuple(
            self._adjust(pod_set, named, given[at] if at < len(given) else None, namespace, problems) if named else pod_set
            for at, (pod_set, named) in enumerate(zip(facts.pod_sets, claims, strict=True))
        )
        refused = facts.refused
        if facts.admission is None:
            refused = "; ".join(text for text in (facts.refused, *list(problems)[:_SHOWN]) if text)
        return replace(facts, pod_sets=pod_sets, refused=refused)

    def _adjust(
        self, pod_set: PodSetFacts, named: Collection[PodClaim], given: PodSetAdmission | None, namespace: str, problems: dict[str, None]
    ) -> PodSetFacts:
        wanted, is_judged, apart = dict[str, int](), False, set[str]()
        try:
            if len(named) > _MOST_CLAIMS:
                raise NotServed(f"spec.resourceClaims has {len(named)} entries; at most {_MOST_CLAIMS} are counted")
            specs = [self._find_spec(namespace, claim) for claim in named]
            wanted = _count(specs, self.rules.device_classes)
            self._check_classes(specs)
            asked = [request for spec in specs for request in spec.requests]
            apart = {name_devices(request.device_class) for request in asked if request.tolerations and not request.admin}
            is_judged = all(map(self._is_judged, asked))
        except NotServed as error:
            problems[f"pod set {pod_set.name}: {error}"] = None
        claimed = wanted if given is None else self._find_admitted(pod_set, given, wanted)
        if self.on_nodes is None:
            return replace(pod_set, claimed=claimed)
        unjudged = tuple(field for field in pod_set.traits.unjudged if field != _UNJUDGED or not is_judged)
        compared = {name: amount for name, amount in claimed.items() if name not in apart}
        requests = {**pod_set.requests, **compared}
        return replace(pod_set, claimed=claimed, requests=requests, traits=replace(pod_set.traits, unjudged=unjudged))

    def _is_judged(self, request: Request) -> bool:
        """Whether all nodes are compared by all that a request asks for."""
        is_class_judged = self.on_nodes is None or self.on_nodes.is_judged(request.device_class)
        return is_class_judged and not (request.admin or request.expressions or request.capacity or request.tolerations)

    def _find_spec(self, namespace: str, claim: PodClaim) -> ClaimSpec:
        """Raises NotServed where a claim is no template's, or there is no such template."""
        if not claim.template:
            accepted = "quota counts devices by pod: name a ResourceClaimTemplate in resourceClaimTemplateName"
            raise NotServed(f"ResourceClaim {claim.name} is for several pods, and {accepted}")
        spec = self.inventory.find_template(namespace, claim.template)
        if spec is None:
            raise NotServed(f"there is no ResourceClaimTemplate {claim.template} in namespace {namespace}; create it")
        if spec.problem:
            accepted = "each request names one DeviceClass and a number of devices (exactly)"
            raise NotServed(f"ResourceClaimTemplate {claim.template}: spec.spec.{spec.problem} is not served: {accepted}")
        return spec

    def _check_classes(self, specs: Iterable[ClaimSpec]) -> None:
        for device_class in sorted({request.device_class for spec in specs for request in spec.requests if not request.admin}):
            if self.inventory.find_class(device_class) is None:
                raise NotServed(f"there is no DeviceClass {device_class}; create it")
            if self.on_nodes is not None and (why := self.on_nodes.explain_none(device_class)):
                raise NotServed(f"devices of DeviceClass {device_class} cannot be counted: {why}")

    def _find_admitted(self, pod_set: PodSetFacts, given: PodSetAdmission, wanted: dict[str, int]) -> dict[str, int]:
        """What quota was reserved for of one pod. Where the admission has none of the resources, it is what the templates ask for if
        nothing else of the pods explains some resource of it: the devices had other names then. Else they were free of charge. Where the
        template is another one now, and several classes count as one resource, it is not known of which class it was: it is taken for the
        first."""
        classes, others = self.rules.device_classes, compute_quota_requests(pod_set.requests, self.rules)
        if not given.count:
            return wanted
        if given.usage.keys().isdisjoint(classes.values()):
            return wanted if given.usage.keys() - others.keys() - {PODS, *pod_set.none_of} else {}
        reserved = {name: given.usage.get(name, 0) // given.count - others.get(name, 0) for name in classes.values()}
        reserved = {name: amount for name, amount in reserved.items() if amount > 0}
        if convert_devices(wanted, classes) == reserved:
            return wanted
        first = {resource: device_class for device_class, resource in reversed([*classes.items()])}
        return {name_devices(first[resource]): amount for resource, amount in reserved.items()}

    def adjust_pod(self, pod: PodFacts, obj: Json, reserved: Resources = _NO_DEVICES) -> PodFacts:
        """Returns a copy of the facts of a pod (`obj`: the pod in JSON) with the devices that it claims; the facts themselves where it
        claims none.

        `claimed` is what quota would count for a pod of a workload: each entry of spec.resourceClaims by the claim that was made for it,
        else by the template. Other claims do not count there, like that of kube-scheduler for an extended resource. If nodes are compared
        by devices, `requests` of a pod on a node has the devices that are allocated for it, by each class that takes them. Where
        none is known yet it has `reserved`: what was reserved for a pod of its pod set."""
        named, own = read_pod_claims(obj), self.inventory.list_claims_of(me := PodId(pod.key, pod.uid))
        if not named and not own:
            return pod
        entries = [str(entry["name"]) for entry in obj["spec"].get("resourceClaims") or ()]
        claimed = self._count_claimed(pod, zip(entries, named, strict=True), [claim for claim in own if claim.owner == me])
        requests = pod.requests
        if self.on_nodes is not None and pod.node:
            allocated = [claim for claim in own if claim.is_allocated and claim.holder == me]
            held = self.on_nodes.count_held(allocated) if allocated else reserved
            requests = {**pod.requests, **held}
        return replace(pod, claimed=claimed, requests=requests)

    def _count_claimed(self, pod: PodFacts, named: Iterable[tuple[str, PodClaim]], made: Collection[Claim]) -> Resources:
        """A pod with claims that cannot be counted has one of UNCOUNTED_DEVICES, which no pod set has."""
        namespace = pod.key.partition("/")[0]
        try:
            specs, of_entries = list[ClaimSpec](), dict[str, list[ClaimSpec]]()
            for one in made:  # any user can make thousands for one pod
                of_entries.setdefault(one.entry, []).append(one.spec)
            for entry, claim in named:
                specs += (of_entries.get(entry) if claim.template else None) or [self._find_spec(namespace, claim)]
            return _count(specs, self.rules.device_classes)
        except NotServed:
            return {UNCOUNTED_DEVICES: 1}

    def adjust_node(self, node: NodeFacts) -> NodeFacts:
        """Returns a copy of the facts of a node that also offers its devices, by class; the facts themselves where it has none, or nodes
        are not compared by devices."""
        found = self.on_nodes.count_offered(node.name, node.labels) if self.on_nodes is not None else _NO_DEVICES
        if not found:
            return node
        return replace(node, state=replace(node.state, allocatable={**node.state.allocatable, **found}))


def _count(specs: Iterable[ClaimSpec], classes: Collection[str]) -> dict[str, int]:
    """Devices by class, each at most `LARGEST`; those with admin access are free of charge. Raises NotServed for a spec with a problem, and
    a class that quota does not count."""
    found: dict[str, int] = {}
    for spec in specs:
        if spec.problem:
            raise NotServed(f"{spec.problem} is not served")
        for request in spec.requests:
            if request.admin:
                continue
            if request.device_class not in classes:
                known = ", ".join(sorted(classes))
                raise NotServed(f"no quota counts devices of DeviceClass {request.device_class}; resources.deviceClassMappings has {known}")
            add(found, {name_devices(request.device_class): request.count})
    return {name: saturate(amount) for name, amount in found.items()}

"""What a pod is to the other pods around it: its labels, its host ports, and the pods it must be near to or apart from.

Read from a pod or a pod template as the API server would default it, so that both compare alike.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

Json = Mapping[str, Any]
Labels = Mapping[str, str]
NamespaceLabels = Callable[[str], Labels | None]
_NO_LABELS: Labels = MappingProxyType({})
HARD_SPREAD = "topologySpreadConstraints"
ANY_IP = "0.0.0.0"  # what Kubernetes writes for no hostIP
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
# Labels that controllers put on pods when they create them, so that no template has their values.
_SET_LATER = ("batch.kubernetes.io/job-completion-index", "jobset.sigs.k8s.io/", "leaderworkerset.sigs.k8s.io/", "training.kubeflow.org/")


class HostPort(NamedTuple):
    """A port of the node that a pod takes."""

    port: int
    protocol: str = "TCP"
    ip: str = ANY_IP

    def is_conflicting(self, other: "HostPort") -> bool:
        """Whether a pod with this port and one with the other cannot be on one node: port and protocol are equal, and so are the IPs or one
        is `ANY_IP`."""
        return self[:2] == other[:2] and (self.ip == other.ip or ANY_IP in (self.ip, other.ip))

    def __str__(self) -> str:
        return f"{self.port}/{self.protocol}" + ("" if self.ip == ANY_IP else f" on {self.ip}")


def has_conflict(ports: Sequence[HostPort], others: Sequence[HostPort]) -> bool:
    """Whether a pod with the host ports `ports` and one with `others` cannot be on one node: any of `ports` conflicts with any of
    `others` (`HostPort.is_conflicting`). False where either takes none."""
    if not ports or not others:
        return False
    ips: dict[tuple[int, str], set[str]] = {}
    for port in ports:
        ips.setdefault(port[:2], set()).add(port.ip)
    return any(other.ip in found or ANY_IP in found or other.ip == ANY_IP for other in others if (found := ips.get(other[:2])) is not None)


class Requirement(NamedTuple):
    """One condition of a label selector: In, NotIn, Exists or DoesNotExist."""

    key: str
    operator: str
    values: frozenset[str]

    def is_met(self, labels: Labels) -> bool:
        """Whether an object with these labels meets the condition. Without the label it meets NotIn and DoesNotExist."""
        value = labels.get(self.key)
        if self.operator == "In":
            return value is not None and value in self.values
        if self.operator == "NotIn":
            return value is None or value not in self.values
        return (value is not None) == (self.operator == "Exists")


Selector = tuple[Requirement, ...] | None  # None takes nothing, () everything


def is_selected(selector: Selector, labels: Labels) -> bool:
    """Whether a selector takes an object with these labels: all its conditions are met. None takes no object, an empty selector all."""
    return selector is not None and all(requirement.is_met(labels) for requirement in selector)


class PodTerm(NamedTuple):
    """A required (anti-)affinity term: pods of some namespaces and labels, and the node label that defines what near is."""

    key: str
    namespaces: frozenset[str]
    namespace_selector: Selector
    selector: Selector

    def is_match(self, namespace: str, labels: Labels, namespace_labels: NamespaceLabels) -> bool:
        """Whether the term selects a pod of a namespace with these labels. `namespace_labels` returns the labels of a namespace, for its
        selector of namespaces; None counts as none."""
        if not is_selected(self.selector, labels):
            return False
        if namespace in self.namespaces:
            return True
        return self.namespace_selector is not None and is_selected(self.namespace_selector, namespace_labels(namespace) or _NO_LABELS)


class Spread(NamedTuple):
    """A hard topology spread constraint that selects its own pods: `term` has the key, and the pods that it counts."""

    term: PodTerm
    max_skew: int


@dataclass(frozen=True, slots=True)
class PodTraits:
    """A pod, or each of the equal pods of a pod set, as its neighbours see it.

    `spread` has the hard topology spread constraints if all of them select its own pods, `spread_keys` the node labels that any of
    them needs; with `keeps_spread` no domain gets more of its pods than maxSkew. `unjudged` names fields of its template that
    only kube-scheduler evaluates.
    """

    namespace: str = ""
    labels: Labels = field(default_factory=lambda: _NO_LABELS)
    host_ports: tuple[HostPort, ...] = ()
    affinity: tuple[PodTerm, ...] = ()
    anti_affinity: tuple[PodTerm, ...] = ()
    unjudged: tuple[str, ...] = ()
    spread: tuple[Spread, ...] = ()
    spread_keys: tuple[str, ...] = ()
    keeps_spread: bool = False

    @property
    def is_particular(self) -> bool:
        """Whether its own host ports, affinity, anti-affinity or kept spread (`keeps_spread`) make its place depend on other pods.
        Preferred terms do not count."""
        return bool(self.host_ports or self.anti_affinity or self.affinity or self.keeps_spread)


NO_TRAITS = PodTraits()


def read_template_traits(template: Json, namespace: str, more_labels: Labels = _NO_LABELS) -> PodTraits:
    """Returns the traits of the pods that will be created from a template, with the labels that it has then: its own and `more_labels`,
    which win where both have a key. They have host ports, required affinity and anti-affinity, hard spread constraints and fields that are
    not judged. `keeps_spread` is not set."""
    spec = template.get("spec") or {}
    labels = {**((template.get("metadata") or {}).get("labels") or {}), **more_labels}
    near, apart = read_terms(spec, "podAffinity", namespace, labels), read_terms(spec, "podAntiAffinity", namespace, labels)
    hard = _list_hard_spreads(spec)
    spread = [Spread(_read_term(each, namespace, labels), int(each.get("maxSkew") or 1)) for each in hard if each.get("topologyKey")]
    own = all(is_selected(each.term.selector, labels) for each in spread) and len(spread) == len(hard)
    keys = tuple(dict.fromkeys(each.term.key for each in spread))
    unjudged = tuple(_list_unjudged(spec, labels, near + apart))
    return PodTraits(namespace, labels, list_host_ports(spec), near, apart, unjudged, tuple(spread) if own else (), keys)


def read_pod_traits(pod: Json) -> PodTraits | None:
    """Returns the namespace, labels, host ports and required anti-affinity of a pod that exists, by which it keeps others away; None
    where it has neither of the last two. Its affinity and spread constraints are not read."""
    spec, namespace = pod.get("spec") or {}, pod["metadata"].get("namespace") or ""
    # The API server has merged matchLabelKeys into the selector.
    ports, apart = list_host_ports(spec), read_terms(spec, "podAntiAffinity", namespace, None)
    return PodTraits(namespace, pod["metadata"].get("labels") or {}, ports, (), apart) if ports or apart else None


def list_host_ports(spec: Json) -> tuple[HostPort, ...]:
    """Returns the host ports that a pod of this spec takes for as long as it runs: those of its containers and sidecars, each once,
    sorted. With `hostNetwork` each port of a container counts. Other init containers are not looked at."""
    shared = bool(spec.get("hostNetwork"))
    sidecars = (c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always")
    found = set()
    for container in (*(spec.get("containers") or ()), *sidecars):
        for port in container.get("ports") or ():
            number = port.get("hostPort") or (port.get("containerPort") if shared else 0)
            if number:
                found.add(HostPort(int(number), port.get("protocol") or "TCP", port.get("hostIP") or ANY_IP))
    return tuple(sorted(found))


def read_terms(spec: Json, kind: str, namespace: str, labels: Labels | None) -> tuple[PodTerm, ...]:
    """Returns the required terms of `kind`, which is `podAffinity` or `podAntiAffinity`, in their order. A term without namespaces and
    without a selector of namespaces is for `namespace`.

    With `labels`, the pod's own, the selectors contain what `matchLabelKeys` and `mismatchLabelKeys` mean; with None, these fields are not
    read.
    """
    affinity = spec.get("affinity")
    terms = (affinity.get(kind) or {}).get(_REQUIRED) if affinity else None
    return tuple(_read_term(term, namespace, labels) for term in terms) if terms else ()


def _read_term(term: Json, namespace: str, labels: Labels | None) -> PodTerm:
    selector, among = read_selector(term.get("labelSelector")), read_selector(term.get("namespaceSelector"))
    if selector is not None and labels is not None:
        for operator, keys in (("In", term.get("matchLabelKeys")), ("NotIn", term.get("mismatchLabelKeys"))):
            selector += tuple(Requirement(key, operator, frozenset([labels[key]])) for key in keys or () if key in labels)
    named = frozenset(term.get("namespaces") or ())
    if not named and among is None:
        named = frozenset([namespace])
    return PodTerm(term["topologyKey"], named, among, selector)


def read_selector(selector: Json | None) -> Selector:
    """Returns the conditions of a LabelSelector, all of which must be met; empty, which selects all, where it has none. None, which selects
    nothing, where there is no selector."""
    if selector is None:
        return None
    equal = (Requirement(key, "In", frozenset([value])) for key, value in sorted((selector.get("matchLabels") or {}).items()))
    others = (Requirement(e["key"], e["operator"], frozenset(e.get("values") or ())) for e in selector.get("matchExpressions") or ())
    return (*equal, *others)


def _list_hard_spreads(spec: Json) -> list[Json]:
    constraints = spec.get("topologySpreadConstraints") or ()
    return [each for each in constraints if each.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"]


def _list_unjudged(spec: Json, labels: Labels, terms: tuple[PodTerm, ...]) -> Iterator[str]:
    if _list_hard_spreads(spec):
        yield HARD_SPREAD
    volumes = spec.get("volumes") or ()
    if any("persistentVolumeClaim" in volume for volume in volumes):
        yield "volumes.persistentVolumeClaim"
    if any("ephemeral" in volume for volume in volumes):
        yield "volumes.ephemeral"
    if spec.get("resourceClaims"):
        yield "resourceClaims"
    if spec.get("schedulerName", "default-scheduler") != "default-scheduler":
        yield f"schedulerName {spec['schedulerName']}"
    if spec.get("nodeName"):
        yield "nodeName"
    asked = {requirement.key for term in terms for requirement in term.selector or ()}
    for key in sorted(key for key in asked if key.startswith(_SET_LATER) and key not in labels):
        yield f"pod affinity by label {key}, which is set when the pod is made"

"""Devices as ResourceSlices publish them, and claims on them (resource.k8s.io/v1): what topogate understands of them, and what not.

A field that is set and not known here leaves the device out, or makes the claim one that cannot be served; it is named, never guessed.
"""

from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from core.model.quantity import InvalidQuantity
from core.placement.topology.node_eligibility import Taint, find_untolerated
from core.podgroups.devices.device_expressions import UnknownExpression, has_at_least, is_selected, parse_device_quantity, parse_semver

Json = Mapping[str, Any]
_OF_DEVICES = frozenset({"name", "attributes", "capacity", "taints"})
_OF_SLICES = frozenset({"driver", "pool", "nodeName", "nodeSelector", "allNodes", "devices", "sharedCounters"})
_OF_CLAIMS = frozenset({"requests", "config"})  # config is for drivers
_OF_REQUESTS = frozenset({"deviceClassName", "selectors", "allocationMode", "count", "tolerations", "capacity", "adminAccess"})
_KEEPS_AWAY = ("NoSchedule", "NoExecute")
_ENTRY = "resource.kubernetes.io/pod-claim-name"
_MOST_REQUESTS = 32  # of a claim, as in the API
_KEPT = 256  # matchers for which a slice remembers answers: more than all decisions ask for that are made at once
_Answers = tuple[str | None, ...]


class NotServed(ValueError):
    """A claim that topogate cannot look for devices for; the message names the field."""


class PoolId(NamedTuple):
    """Devices of one pool of a driver lie together."""

    driver: str
    name: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.name}"


class DeviceId(NamedTuple):
    """What an allocation names."""

    driver: str
    pool: str
    name: str

    @property
    def of_pool(self) -> PoolId:
        """Returns the pool that the device is in, by driver and name."""
        return PoolId(self.driver, self.pool)


class DeviceTolerations(tuple[tuple[tuple[str, str], ...], ...]):
    """Of device taints, so that equal ones compare."""

    __slots__ = ()

    def find_untolerated(self, taints: Sequence[Taint]) -> Taint | None:
        """Returns the first taint that no toleration covers; None if all are covered."""
        return find_untolerated(taints, [dict(one) for one in self])


NO_TOLERATIONS = DeviceTolerations()


@dataclass(frozen=True, slots=True)
class Matcher:
    """Which devices a request takes: those that all expressions take, its class's first, with at least the `capacity` (name and quantity),
    but for taints that it does not tolerate."""

    expressions: tuple[str, ...]
    tolerations: DeviceTolerations = NO_TOLERATIONS
    capacity: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Device:
    """One device; `fields` is what expressions see of it, `unknown` a field that topogate does not understand."""

    name: str
    fields: Json
    taints: tuple[Taint, ...] = ()
    unknown: str = ""

    def find_capacity(self, name: str) -> object:
        """Returns a capacity as `fields` has it (see `parse_device_quantity`; text where that is no quantity), by its name: without a
        domain it is the driver's. None where the device has none."""
        domain, _, identifier = name.rpartition("/")
        return self.fields["capacity"].get(domain or self.fields["driver"], {}).get(identifier)


@dataclass(frozen=True, slots=True)
class ResourceSlice:
    """Devices of a pool that some nodes reach: one node, those that a selector takes, or all. `answers` are remembered by matcher, a text
    for those that cannot be evaluated."""

    pool: PoolId
    generation: int
    of_slices: int
    devices: tuple[Device, ...]
    node: str = ""
    selector: Json | None = None
    answers: dict[Matcher, _Answers | str] = field(default_factory=dict, compare=False)

    def judge(self, matcher: Matcher) -> tuple[str | None, ...]:
        """Returns, in the order of the devices, "" if a request takes it, else why it is left out; None where the request wants another.
        Evaluates what has no answer yet, and keeps the answers.

        Raises NotServed where an expression cannot be evaluated for any of them.
        """
        for _ in self.evaluate_in_pieces(matcher):
            pass
        answer = self.answers[matcher]
        if isinstance(answer, str):
            raise NotServed(answer)
        return answer

    def evaluate_in_pieces(self, matcher: Matcher) -> Generator[None]:
        """Yields None after each device: evaluates the matcher on all if it has no answer yet, and keeps that in `answers`; any user may
        write the expression. Where an expression cannot be evaluated that becomes the answer, and so does NotServed that is thrown into it
        by a caller that gives up; it raises none."""
        if matcher in self.answers:
            return
        answers = []
        try:
            for device in self.devices:
                answers.append(self._judge(device, matcher))
                yield
        except NotServed as error:
            self.refuse(matcher, str(error))
        else:
            self._cache_answer(matcher, tuple(answers))

    def find_missing(self, matchers: Iterable[Matcher]) -> list[Matcher]:
        """Returns the matchers without an answer, in their order. The answers of the others become the newest if need be, so that
        evaluating the missing ones does not drop them."""
        matchers = list(matchers)
        missing = [matcher for matcher in matchers if matcher not in self.answers]
        if missing and len(self.answers) + len(missing) > _KEPT:
            self.answers.update({matcher: self.answers.pop(matcher) for matcher in matchers if matcher in self.answers})
        return missing

    def refuse(self, matcher: Matcher, why: str) -> None:
        """Keeps in `answers` that a matcher cannot be evaluated, and why: `judge` then raises NotServed. The oldest answer may be dropped
        for it."""
        self._cache_answer(matcher, why)

    def _cache_answer(self, matcher: Matcher, answer: _Answers | str) -> None:
        if len(self.answers) >= _KEPT:
            del self.answers[next(iter(self.answers))]
        self.answers[matcher] = answer

    def _judge(self, device: Device, matcher: Matcher) -> str | None:
        for expression in matcher.expressions:
            try:
                if not is_selected(expression, device.fields):
                    return None
            except UnknownExpression as error:
                raise NotServed(f"{expression!r} cannot be evaluated for device {device.name} of pool {self.pool}: {error}") from error
        if not all(has_at_least(device.find_capacity(name), least) for name, least in matcher.capacity):
            return None
        if device.unknown:
            return device.unknown
        taint = matcher.tolerations.find_untolerated(device.taints)
        return "" if taint is None else f"taint {taint[0]}:{taint[2]}"


def read_pool(obj: Json) -> PoolId:
    """Returns the pool of the devices of a ResourceSlice (JSON)."""
    return PoolId(str(obj["spec"]["driver"]), str(obj["spec"]["pool"]["name"]))


def read_slice(obj: Json) -> ResourceSlice:
    """Returns a ResourceSlice of resource.k8s.io/v1. A field of it or of a device that is not known here is the device's `unknown`; taints
    count only with effect NoSchedule or NoExecute."""
    spec, pool = obj["spec"], read_pool(obj)
    unknown = next((name for name in sorted(spec) if name not in _OF_SLICES and spec[name]), "")
    devices = tuple(_read_device(device, pool.driver, unknown) for device in spec.get("devices") or ())
    generation, count = int(spec["pool"].get("generation") or 0), int(spec["pool"].get("resourceSliceCount") or 1)
    return ResourceSlice(pool, generation, count, devices, str(spec.get("nodeName") or ""), _read_selector(spec.get("nodeSelector")))


def _read_selector(selector: Json | None) -> Json | None:
    """Returns a node selector with its known fields only: any other field would raise errors only when nodes are searched."""
    if selector is None:
        return None
    return {
        "nodeSelectorTerms": [
            {part: [_read_expression(one) for one in term.get(part) or ()] for part in ("matchExpressions", "matchFields")}
            for term in selector.get("nodeSelectorTerms") or ()
        ]
    }


def _read_expression(one: Json) -> Json:
    return {"key": str(one["key"]), "operator": str(one["operator"]), "values": [str(value) for value in one.get("values") or ()]}


def _read_device(device: Json, driver: str, unknown: str) -> Device:
    fields: dict[str, Any] = {"driver": driver, "allowMultipleAllocations": bool(device.get("allowMultipleAllocations"))}
    for part, read in (("attributes", _read_attribute), ("capacity", _read_capacity)):
        by_domain: dict[str, dict[str, Any]] = {}
        for name, value in (device.get(part) or {}).items():
            domain, _, identifier = name.rpartition("/")
            by_domain.setdefault(domain or driver, {})[identifier] = read(value)
        fields[part] = by_domain
    unknown = unknown or next((name for name in sorted(device) if name not in _OF_DEVICES and device[name]), "")
    taints = [(str(taint["key"]), str(taint.get("value") or ""), str(taint["effect"])) for taint in device.get("taints") or ()]
    return Device(str(device["name"]), fields, tuple(taint for taint in taints if taint[2] in _KEEPS_AWAY), unknown)


def _read_attribute(value: Json) -> Any:
    if "version" in value:
        return _read_leniently(parse_semver, value["version"])
    return next(iter(value.values()), None)


def _read_capacity(value: Json) -> Any:
    return _read_leniently(parse_device_quantity, str(value["value"]))


def _read_leniently(read: Any, text: str) -> Any:
    """Returns what `read` makes of a text; the text itself where the API server would not have accepted it: expressions
    on it fail, and report that."""
    try:
        return read(text)
    except (ValueError, InvalidQuantity):
        return text


@dataclass(frozen=True, slots=True)
class Request:
    """Some devices of a class that a claim asks for."""

    device_class: str
    expressions: tuple[str, ...]
    count: int
    tolerations: DeviceTolerations = NO_TOLERATIONS
    capacity: tuple[tuple[str, str], ...] = ()  # the least that each device has (`capacity.requests`)
    admin: str = ""  # the field, where it asks for admin access, which takes no device from others


@dataclass(frozen=True, slots=True)
class ClaimSpec:
    """What a claim asks for; `problem` names the field for which topogate cannot serve it."""

    requests: tuple[Request, ...] = ()
    problem: str = ""


def read_claim_spec(spec: Json) -> ClaimSpec:
    """Returns what the spec of a ResourceClaim asks for, which is that of a template's `spec.spec`. Without requests, or with a field or
    value that is not served, it has only the `problem`; no error is raised for it."""
    devices = spec.get("devices") or {}
    unknown = _describe_unknown(devices, _OF_CLAIMS)
    if unknown:
        return ClaimSpec(problem=f"devices.{unknown}")
    requests = []
    if len(devices.get("requests") or ()) > _MOST_REQUESTS:
        return ClaimSpec(problem=f"devices.requests with {len(devices['requests'])} entries, more than {_MOST_REQUESTS},")
    for request in devices.get("requests") or ():
        name, exactly = f"devices.requests[{request['name']}]", request.get("exactly")
        if exactly is None:
            return ClaimSpec(problem=f"{name}.{_describe_unknown(request, frozenset({'name'})) or 'exactly'}")
        unknown = _describe_unknown(exactly, _OF_REQUESTS)
        if unknown:
            return ClaimSpec(problem=f"{name}.exactly.{unknown}")
        admin = f"{name}.exactly.adminAccess" if exactly.get("adminAccess") else ""
        if (exactly.get("allocationMode") or "ExactCount") != "ExactCount" and not admin:
            return ClaimSpec(problem=f"{name}.exactly.allocationMode {exactly['allocationMode']}")
        unknown = _describe_unknown(exactly.get("capacity") or {}, frozenset({"requests"}))
        if unknown:
            return ClaimSpec(problem=f"{name}.exactly.capacity.{unknown}")
        capacity = tuple(sorted((str(key), str(text)) for key, text in ((exactly.get("capacity") or {}).get("requests") or {}).items()))
        for key, text in capacity:
            try:
                parse_device_quantity(text)
            except InvalidQuantity:
                return ClaimSpec(problem=f"{name}.exactly.capacity.requests[{key}] {text}")
        expressions = []
        for number, selector in enumerate(exactly.get("selectors") or ()):
            if "cel" not in selector:
                return ClaimSpec(problem=f"{name}.exactly.selectors[{number}].{_describe_unknown(selector, frozenset())}")
            expressions.append(str(selector["cel"]["expression"]))
        tolerations = DeviceTolerations(map(_read_toleration, exactly.get("tolerations") or ()))
        count = int(exactly.get("count") or 1)
        if count < 1:
            return ClaimSpec(problem=f"{name}.exactly.count {count}")
        requests.append(Request(str(exactly["deviceClassName"]), tuple(expressions), count, tolerations, capacity, admin))
    return ClaimSpec(tuple(requests)) if requests else ClaimSpec(problem="devices.requests, which is empty,")


def _read_toleration(toleration: Json) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((str(name), str(value)) for name, value in toleration.items()))


def read_template(obj: Json) -> ClaimSpec:
    """Returns what claims made from a ResourceClaimTemplate ask for; see `read_claim_spec`."""
    return read_claim_spec(obj["spec"].get("spec") or {})


def _describe_unknown(obj: Json, known: Iterable[str]) -> str:
    return next((name for name in sorted(obj) if name not in known and obj[name]), "")


class PodId(NamedTuple):
    """A pod by key (namespace/name), and by uid: another one may get its name."""

    key: str
    uid: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A ResourceClaim: what it asks for, and once it is allocated its devices and the nodes that reach them (None: all)."""

    key: str
    uid: str
    spec: ClaimSpec
    is_allocated: bool = False
    devices: tuple[DeviceId, ...] = ()
    selector: Json | None = None
    users: tuple[str, ...] = ()  # keys of pods that it was made for, or that it is reserved for

    owner: PodId | None = None  # its controller
    entry: str = ""  # of spec.resourceClaims of its owner: what it was made for
    holder: PodId | None = None  # its devices are in use on the node of that pod

    @property
    def counted_for(self) -> set[PodId]:
        """Returns its owner and its holder, which may be one pod, or none."""
        return {pod for pod in (self.owner, self.holder) if pod is not None}

    @property
    def pools(self) -> Counter[PoolId]:
        """Returns the number of its devices by pool; empty where it is not allocated."""
        return Counter(device.of_pool for device in self.devices)


def read_claim(obj: Json) -> Claim:
    """Returns a ResourceClaim of resource.k8s.io/v1. Devices that are allocated with admin access are left out: they
    stay available."""
    metadata, status = obj["metadata"], obj.get("status") or {}
    allocation = status.get("allocation")
    results = ((allocation or {}).get("devices") or {}).get("results") or ()
    return Claim(
        f"{metadata['namespace']}/{metadata['name']}",
        metadata.get("uid") or "",
        read_claim_spec(obj.get("spec") or {}),
        allocation is not None,
        tuple(DeviceId(str(one["driver"]), str(one["pool"]), str(one["device"])) for one in results if not one.get("adminAccess")),
        _read_selector((allocation or {}).get("nodeSelector")),
        tuple(sorted(set(_list_users(metadata, status)))),
        owner := _find_owner(metadata),
        str((metadata.get("annotations") or {}).get(_ENTRY) or ""),
        min(_list_holders(metadata, status), default=owner),
    )


def _find_owner(metadata: Json) -> PodId | None:
    """The pod that controls a claim; any user may write other owners."""
    found = (one for one in metadata.get("ownerReferences") or () if one.get("controller") and one.get("kind") == "Pod")
    return next((PodId(f"{metadata['namespace']}/{one['name']}", str(one.get("uid") or "")) for one in found), None)


def _list_holders(metadata: Json, status: Json) -> Iterator[PodId]:
    for one in status.get("reservedFor") or ():
        if one.get("resource") == "pods":
            yield PodId(f"{metadata['namespace']}/{one['name']}", str(one.get("uid") or ""))


def _list_users(metadata: Json, status: Json) -> Iterator[str]:
    pods = [owner["name"] for owner in metadata.get("ownerReferences") or () if owner.get("kind") == "Pod"]
    pods += [user["name"] for user in status.get("reservedFor") or () if user.get("resource") == "pods"]
    yield from (f"{metadata['namespace']}/{name}" for name in pods)


class PodClaim(NamedTuple):
    """A claim that a pod names: made for it from a template, or one that is there for many. `name` is empty until it is made."""

    template: str
    name: str


def read_pod_claims(pod: Json) -> tuple[PodClaim, ...]:
    """Returns the claims of a pod, in the order in which it names them. Each has its template (empty where the pod names a ResourceClaim
    itself) and its name (empty until the claim is made)."""
    statuses = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    made = {str(status["name"]): str(status.get("resourceClaimName") or "") for status in statuses}
    return tuple(
        PodClaim(str(claim.get("resourceClaimTemplateName") or ""), str(claim.get("resourceClaimName") or made.get(str(claim["name"]), "")))
        for claim in (pod.get("spec") or {}).get("resourceClaims") or ()
    )


def read_class(obj: Json) -> tuple[str, ...]:
    """Returns the expressions (CEL) of a DeviceClass in their order, all of which a device must meet; empty where it takes all devices.
    Raises NotServed where one of its selectors is no CEL expression."""
    selectors = (obj.get("spec") or {}).get("selectors") or ()
    if any("cel" not in selector for selector in selectors):
        raise NotServed(f"a selector of DeviceClass {obj['metadata']['name']} that is no CEL expression is not served")
    return tuple(str(selector["cel"]["expression"]) for selector in selectors)

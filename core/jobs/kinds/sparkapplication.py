"""sparkoperator.k8s.io/v1beta2 SparkApplication."""

import re
from collections.abc import Iterator
from fractions import Fraction
from math import ceil
from typing import Any

from core.jobs.contract import ErrorType, FieldError, Finish, Json
from core.jobs.schema_check import BOOLEAN, CONTAINERS, INTEGER, POD_TEMPLATE, TEXT, TEXTS, Fields
from core.jobs.template_parts import MAPS, PARTS, copy_object, get_parts, with_parts
from core.jobs.templated import Role, TemplatedKind, parse_integer

_POD = Fields(
    {
        **PARTS.fields,
        "instances": INTEGER,
        "cores": INTEGER,
        "coreRequest": TEXT,
        "coreLimit": TEXT,
        "memory": TEXT,
        "memoryOverhead": TEXT,
        "image": TEXT,
        "gpu": Fields({"name": TEXT, "quantity": INTEGER}),
        "template": POD_TEMPLATE,
        "sidecars": CONTAINERS,
        "initContainers": CONTAINERS,
    }
)
# Properties by which Spark makes other pods than the fields define, or more of them (Spark, Configuration and Running
# on Kubernetes).
_OF_FIELDS = re.compile(
    r"spark\.(?:(?:streaming\.)?dynamicAllocation\.enabled|executor\.instances|master|submit\.deployMode|memory\.offHeap\.(?:enabled|size)"
    r"|kubernetes\.(?:memoryOverheadFactor|namespace|scheduler\..*|allocation\.pods\.allocator)"
    r"|(?:(?:kubernetes|yarn)\.)?(?:driver|executor)\.(?:cores|request\.cores|memory|(?:minM|m)emoryOverhead(?:Factor)?|pyspark\.memory|resource\..*"
    r"|podTemplate.*|pod\.featureSteps|scheduler\.name|(?:label|annotation)\.[^/]*(?:kueue\.x-k8s\.io|topogate\.dev)/.*))"
)
_OFF = ("dynamicAllocation.enabled", "offHeap.enabled")  # these are as good as absent where they are false
_NUMBER = re.compile(r"[0-9]{1,4}(\.[0-9]{1,9})?")
_RUNS = ("SUBMITTED", "RUNNING", "SUCCEEDING", "FAILING", "SUSPENDING", "PENDING_RERUN", "INVALIDATING")
_MEMORY = re.compile(r"([0-9]+)([bkmgtp]?)i?b?", re.IGNORECASE)  # as the JVM writes it
_UNITS = {"": 20, "b": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
_LEAST_OVERHEAD = 384 << 20
_FACTORS = {"Python": "0.4", "R": "0.4"}  # by the application's type; Spark's own defaults
_FACTOR = "0.1"


class SparkApplication(TemplatedKind):
    """Pod sets `driver` and `executor`, with pods that are described by fields of their own instead of a template.

    The operator copies its fields to the pods, and takes what these cannot express, the gate, from the pod template
    beside them (Spark operator 2.4 or newer). Executors have no ranks: a replaced one gets another number.
    """

    kind, group, version, plural = "SparkApplication", "sparkoperator.k8s.io", "v1beta2", "sparkapplications"
    spec_shape = Fields(
        {
            "suspend": BOOLEAN,
            "type": TEXT,
            "image": TEXT,
            "memoryOverheadFactor": TEXT,
            "sparkConf": TEXTS,
            "dynamicAllocation": Fields({"enabled": BOOLEAN}),
            "driver": _POD,
            "executor": _POD,
        }
    )

    def list_roles(self, job: Json) -> list[Role]:
        """Returns the roles `driver`, of one pod, and `executor`, of `instances` pods (1 by default). Their templates are made of the pod
        template and the fields of the application, which win over it."""
        spec = job.get("spec") or {}
        executors = parse_integer((spec.get("executor") or {}).get("instances"), 1)
        return [_build_role(spec, "driver", 1), _build_role(spec, "executor", executors)]

    def put_template(self, job: dict[str, Any], role: Role, template: Json) -> None:
        """Writes labels, annotations, node selector and tolerations into fields of the driver or executor, in place, and gates into its pod
        template. What the pod template has already is not written again; a pod template that would be empty is removed."""
        pod = job["spec"].setdefault(role.pod_set, {})
        parts, beside = get_parts(template), get_parts(pod.get("template") or {})
        for name in MAPS:
            own, inherited = pod.get(name) or {}, beside.get(name) or {}
            _set(pod, name, {key: value for key, value in parts.get(name, {}).items() if key in own or inherited.get(key) != value})
        own, inherited = pod.get("tolerations") or [], beside.get("tolerations") or []
        _set(pod, "tolerations", [entry for entry in parts.get("tolerations", []) if entry in own or entry not in inherited])
        gates = parts.get("schedulingGates")
        if gates or pod.get("template"):
            own = pod.setdefault("template", {})
            spec = own.setdefault("spec", {})
            _set(spec, "schedulingGates", gates)
            if gates:
                spec.setdefault("containers", [])  # Spark ends with an error at a template without the field
            elif not spec.get("containers"):
                spec.pop("containers", None)
            if own == {"spec": {}}:
                del pod["template"]

    def validate_kind(self, job: Json) -> Iterator[FieldError]:
        """Yields errors of dynamic allocation and of properties (`sparkConf`) by which pods would not be counted. A `memoryOverheadFactor`
        that is no number and amounts of memory that cannot be read are errors, too. Properties that only turn something off are accepted.
        """
        spec = job.get("spec") or {}
        if (spec.get("dynamicAllocation") or {}).get("enabled"):
            accepted = "false is expected: executors that are added later would be outside of what was admitted"
            yield FieldError(ErrorType.INVALID, "spec.dynamicAllocation.enabled", True, accepted)
        for key, value in (spec.get("sparkConf") or {}).items():
            name = key.partition("=")[0].strip()  # Spark takes what follows for the value
            if _OF_FIELDS.fullmatch(name) and not (key == name and name.endswith(_OFF) and value.lower() == "false"):
                accepted = "may not be set: topogate counts pods and what they request by the fields of spec.driver and spec.executor"
                yield FieldError(ErrorType.FORBIDDEN, f"spec.sparkConf[{key}]", value, accepted)
        factor = spec.get("memoryOverheadFactor")
        if factor and not _NUMBER.fullmatch(factor):
            yield FieldError(ErrorType.INVALID, "spec.memoryOverheadFactor", factor, "a number such as 0.4 is expected")
        for name in ("driver", "executor"):
            for field in ("memory", "memoryOverhead"):
                text = (spec.get(name) or {}).get(field)
                if text and not _MEMORY.fullmatch(text):
                    yield FieldError(ErrorType.INVALID, f"spec.{name}.{field}", text, "an amount of memory such as 512m or 2g is expected")

    def count_active_pods(self, job: Json, dropped: int = 0) -> int:
        """Returns 1 while the state of the application is one in which it runs, else 0; see `JobKind.count_active_pods`."""
        state = ((job.get("status") or {}).get("applicationState") or {}).get("state")
        return 1 if state in _RUNS else 0

    def are_pods_ready(self, job: Json) -> bool | None:
        """Returns True in state SUCCEEDING, when executors may be gone already, else None: its status does not show it."""
        # Spark deletes executors that have done their work, so that pods alone would look like lost ones.
        state = ((job.get("status") or {}).get("applicationState") or {}).get("state")
        return True if state == "SUCCEEDING" else None

    def find_finish(self, job: Json) -> Finish | None:
        """Returns how the application ended, with its error message or a default text; None while its state is neither COMPLETED, which
        is a success, nor FAILED."""
        state = (job.get("status") or {}).get("applicationState") or {}
        if state.get("state") not in ("COMPLETED", "FAILED"):
            return None
        succeeded = state["state"] == "COMPLETED"
        return Finish(succeeded, state.get("errorMessage") or f"SparkApplication {'finished successfully' if succeeded else 'failed'}")


def _build_role(spec: Json, name: str, count: int) -> Role:
    """A template as the pods will be: that beside the fields, the fields on it, and the requests that Spark makes of them."""
    pod = spec.get(name) or {}
    template = copy_object(pod.get("template") or {})
    containers = (template.get("spec") or {}).get("containers") or []
    requests = {"cpu": pod.get("coreRequest") or str(parse_integer(pod.get("cores"), 1)), "memory": str(_compute_memory(spec, pod))}
    limits = {"cpu": pod["coreLimit"]} if pod.get("coreLimit") else {}
    gpu = pod.get("gpu") or {}
    if gpu.get("name"):
        requests[gpu["name"]] = limits[gpu["name"]] = str(parse_integer(gpu.get("quantity"), 0))
    main = {"name": f"spark-kubernetes-{name}", "image": pod.get("image") or spec.get("image") or ""}
    first = {**(containers[0] if containers else {}), **main, "resources": {"requests": requests} | ({"limits": limits} if limits else {})}
    own = template.get("spec") or {}
    template["spec"] = {**own, "containers": [first, *containers[1:], *(pod.get("sidecars") or ())]}
    if pod.get("initContainers"):
        template["spec"]["initContainers"] = [*(own.get("initContainers") or ()), *pod["initContainers"]]
    fields = {part: pod.get(part) for part in (*MAPS, "tolerations")}
    return Role(name, count, ("spec", name), f"spec.{name}", with_parts(template, fields), metadata_shown="")


def _compute_memory(spec: Json, pod: Json) -> int:
    """Bytes of a pod: the heap and what Spark adds to it for all else."""
    heap = _parse_bytes(pod.get("memory") or "1g")
    if pod.get("memoryOverhead"):
        return heap + _parse_bytes(pod["memoryOverhead"])
    text = spec.get("memoryOverheadFactor") or _FACTORS.get(spec.get("type") or "", _FACTOR)
    factor = Fraction(text if _NUMBER.fullmatch(text) else _FACTOR)
    return heap + max(ceil(heap * factor), _LEAST_OVERHEAD)


def _parse_bytes(text: str) -> int:
    found = _MEMORY.fullmatch(text)
    return int(found[1][:18]) << _UNITS[found[2].lower()] if found else 0


def _set(obj: dict[str, Any], name: str, value: Any) -> None:
    if value:
        obj[name] = value
    else:
        obj.pop(name, None)

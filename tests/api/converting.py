"""Hypothesis strategies: objects of our kinds as each version's schema takes them, and notes that anybody might have written."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

from core.names import API_VERSION, FIELDS_OF_V1BETA1, FIELDS_OF_V1BETA2, OLD_API_VERSION

Json = dict[str, Any]
Strategy = st.SearchStrategy[Any]
NAMES = ("main", "leader", "workers")
LEVELS = ("cloud/block", "cloud/rack", "kubernetes.io/hostname")
CLASSES = (("kueue.x-k8s.io", "WorkloadPriorityClass"), ("scheduling.k8s.io", "PriorityClass"))
SOURCES = ("kueue.x-k8s.io/workloadpriorityclass", "scheduling.k8s.io/priorityclass")
WORDS = ["", "u", "i", "a", "main", "topology", "size", "levels", "slices", *SOURCES]

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 70) | st.floats(allow_nan=False) | st.sampled_from(["", "u", "i", "a", "main", *SOURCES]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["main", "topology", "size", "levels", "slices", "a"]), inner)
    ),
    max_leaves=12,
)
open_objects: Strategy = st.dictionaries(st.sampled_from(["migration", "name", "a"]), json_values, max_size=2)
texts = st.text("ab-", min_size=0, max_size=4)
some_annotations: Strategy = st.dictionaries(st.sampled_from(["a", "topogate.dev/traceparent"]), texts, min_size=1, max_size=2)


@st.composite
def notes(draw: st.DrawFn) -> str:
    """What may stand in an annotation: nonsense, or JSON with the right words in the wrong places."""
    words = ["constraints", "slices", "priorityClassName", "priorityClassSource", "admissionChecks", "whenCanBorrow", "whenCanPreempt"]
    said = draw(st.dictionaries(st.sampled_from(words), json_values))
    return draw(st.sampled_from(["", "{", "[]", "null", "[" * 5000, json.dumps(said)]))


@st.composite
def constraints(draw: st.DrawFn) -> list[Json]:
    size, layers = 1, []
    for level in draw(st.lists(st.sampled_from(LEVELS), unique=True, max_size=3)):
        size *= draw(st.integers(1, 4))
        layers.append({"topology": level, "size": size})
    return layers[::-1]


@st.composite
def individual(draw: st.DrawFn, count: int) -> Json:
    roots = draw(st.lists(texts, min_size=count, max_size=count))
    affixes = draw(st.fixed_dictionaries({}, optional={"prefix": texts, "suffix": texts}))
    return {"individual": {"roots": roots, **affixes}}


@st.composite
def slices(draw: st.DrawFn) -> Json:
    """An assignment in v1beta2 as any encoder might cut it."""
    levels = list(LEVELS[: draw(st.integers(1, 3))])
    cut = []
    for count in draw(st.lists(st.integers(1, 4), max_size=4)):
        columns = [draw(texts.map(lambda text: {"universal": text}) | individual(count)) for _ in levels]
        one, many = st.integers(1, 3), st.lists(st.integers(1, 3), min_size=count, max_size=count)
        counts = draw(one.map(lambda pods: {"universal": pods}) | many.map(lambda pods: {"individual": pods}))
        cut.append({"domainCount": count, "valuesPerLevel": columns, "podCounts": counts})
    return {"levels": levels, "slices": cut}


@st.composite
def domains(draw: st.DrawFn) -> Json:
    levels = list(LEVELS[: draw(st.integers(1, 3))])
    values = st.lists(texts, min_size=len(levels), max_size=len(levels))
    return {"levels": levels, "domains": draw(st.lists(st.fixed_dictionaries({"values": values, "count": st.integers(1, 3)}), max_size=6))}


def some(**fields: Strategy) -> st.SearchStrategy[Json]:
    """Any of the fields, in any combination."""
    return st.fixed_dictionaries({}, optional=fields)


@st.composite
def requests(draw: st.DrawFn, *, new: bool) -> Json:
    request = draw(some(required=st.sampled_from(LEVELS), podIndexLabel=texts))
    form = draw(st.sampled_from(["slices", "constraints", "neither"]))
    if form == "slices":
        request |= draw(some(podSetSliceRequiredTopology=st.sampled_from(LEVELS), podSetSliceSize=st.integers(1, 4)))
    elif form == "constraints" and new:
        request["podsetSliceRequiredTopologyConstraints"] = draw(constraints())
    return request


@st.composite
def workloads(draw: st.DrawFn, *, new: bool) -> Json:
    """A Workload of v1beta2 (`new`) or v1beta1."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True))
    pod_sets = [{"name": name, "count": 4, **draw(some(topologyRequest=requests(new=new)))} for name in names]
    spec: Json = {"podSets": pod_sets, **draw(some(queueName=st.just("q"), active=st.booleans()))}
    if draw(st.booleans()):
        spec["priority"] = 5
        group, kind = draw(st.sampled_from(CLASSES))
        old = {"priorityClassName": "high", **draw(some(priorityClassSource=st.sampled_from([*SOURCES, ""])))}
        spec |= {"priorityClassRef": {"group": group, "kind": kind, "name": "high"}} if new else old
    given = [{"name": name, "count": 4, **draw(some(topologyAssignment=slices() if new else domains()))} for name in names]
    seconds = "accumulatedPastExecutionTimeSeconds" if new else "accumulatedPastExexcutionTimeSeconds"
    admission = st.just({"clusterQueue": "c", "podSetAssignments": given})
    status = some(admission=admission, **{seconds: st.integers(0, 9)})
    return draw(named("Workload", new, spec=st.just(spec), status=status))


@st.composite
def cluster_queues(draw: st.DrawFn, *, new: bool) -> Json:
    words = ["MayStopSearch", "TryNextFlavor"]
    borrow, preempt = words + ([] if new else ["Borrow"]), words + ([] if new else ["Preempt"])
    fungibility = some(whenCanBorrow=st.sampled_from(borrow), whenCanPreempt=st.sampled_from(preempt))
    checks = st.lists(st.sampled_from("abc"), unique=True, max_size=3)
    rules: Strategy = st.fixed_dictionaries({"name": st.sampled_from("abc")}, optional={"onFlavors": st.lists(st.just("f"), max_size=1)})
    strategy = st.lists(rules, min_size=1, max_size=2, unique_by=lambda one: one["name"]).map(lambda found: {"admissionChecks": found})
    spec = draw(
        some(
            **{"cohortName" if new else "cohort": texts},
            flavorFungibility=fungibility,
            stopPolicy=st.just("Hold"),
            concurrentAdmissionPolicy=open_objects,
        )
    )
    which = draw(st.sampled_from(["strategy", "neither"] + ([] if new else ["list"])))
    if which == "strategy":
        spec["admissionChecksStrategy"] = draw(strategy)
    elif which == "list":
        spec["admissionChecks"] = draw(checks)
    return draw(
        named("ClusterQueue", new, spec=st.just(spec), status=some(pendingWorkloads=st.integers(0, 3), pendingWorkloadsStatus=open_objects))
    )


def local_queues(*, new: bool) -> st.SearchStrategy[Json]:
    usage = st.lists(st.just({"name": "f", "resources": [{"name": "cpu", "total": "1"}]}), max_size=1)
    status = some(**{"flavorsUsage" if new else "flavorUsage": usage}, flavorsReservation=usage, flavors=st.lists(open_objects, max_size=2))
    return named("LocalQueue", new, spec=some(clusterQueue=st.just("c")), status=status)


def cohorts(*, new: bool) -> st.SearchStrategy[Json]:
    return named("Cohort", new, spec=some(parentName=st.just("p")), status=some(fairSharing=st.just({"weightedShare": 3})))


def named(kind: str, new: bool, **parts: Strategy) -> st.SearchStrategy[Json]:
    metadata: Strategy = st.fixed_dictionaries({"name": st.just("x")}, optional={"annotations": some_annotations})
    fixed: dict[str, Strategy] = {
        "apiVersion": st.just(API_VERSION if new else OLD_API_VERSION),
        "kind": st.just(kind),
        "metadata": metadata,
    }
    return st.fixed_dictionaries(fixed, optional=parts)


def objects(*, new: bool) -> st.SearchStrategy[Json]:
    """Any object that is converted."""
    return workloads(new=new) | cluster_queues(new=new) | local_queues(new=new) | cohorts(new=new)


def with_note(obj: Json, name: str, written: Any) -> Json:
    metadata = obj["metadata"]
    return {**obj, "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), name: written}}}


def strip_notes(obj: Json) -> Json:
    metadata = dict(obj["metadata"])
    rest = {key: value for key, value in metadata.pop("annotations", {}).items() if key not in (FIELDS_OF_V1BETA1, FIELDS_OF_V1BETA2)}
    return {**obj, "metadata": metadata | ({"annotations": rest} if rest else {})}

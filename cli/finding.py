"""From what somebody calls a workload to the Workload: its own name, or that of the job or pod it was made for."""

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches

from cli.failures import BadInput, Failure
from core.jobs.prebuilt import prebuilt_name
from core.names import FINISHED, QUEUE_NAME_LABEL
from core.runtime.informer import Informer
from core.runtime.resource import Obj
from core.state.facts import condition_is_true
from reconciler.observed import Observed

_WORKLOAD = ("workload", "workloads", "wl")
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Asked:
    """A kind as people write it, and a name."""

    kind: str
    name: str


def read_asked(words: Iterable[str]) -> Asked:
    """`workload NAME`, `job NAME`, `KIND/NAME`, or a workload's name alone. Raises BadInput."""
    given = list(words)
    if len(given) == 1:
        given = given[0].split("/", 1) if "/" in given[0] else ["workload", given[0]]
    if len(given) != 2 or not all(given):
        raise BadInput(f"{' '.join(words)!r} is not accepted; KIND NAME or KIND/NAME is expected, such as workload NAME or job NAME")
    return Asked(given[0].lower(), given[1])


def find_workload(observed: Observed, asked: Asked, namespace: str) -> Obj:
    """The Workload that is meant; of several of one job that by which its pods run. Raises Failure, and BadInput for an unknown kind."""
    if asked.kind in _WORKLOAD:
        return _get(observed.workloads, asked, namespace)
    owner = _get(_informer_of(observed, asked.kind), asked, namespace)
    owned = observed.workloads.store.by_index("owner", owner["metadata"]["uid"])
    made_before = prebuilt_name(owner)
    named = [observed.workloads.store.get(f"{namespace}/{made_before}")] if made_before else []
    if owner.get("kind") == "Pod" or asked.kind in ("pod", "pods", "po"):
        named += [observed.workloads.store.get(key) for key in observed.present_of_pod(owner)]
    found = [*owned, *(workload for workload in named if workload is not None)]
    if not found:
        raise Failure(_without(owner, asked, namespace))
    return min(found, key=lambda w: (condition_is_true(w, FINISHED), not condition_is_true(w, "Admitted"), w["metadata"]["name"]))


def _informer_of(observed: Observed, kind: str) -> Informer:
    owning = {informer.resource: informer for informer in observed.owning}
    called = {name: informer for resource, informer in owning.items() for name in (resource.kind.lower(), resource.plural, str(resource))}
    if kind not in called:
        near = get_close_matches(kind, called, n=1)
        known = ", ".join(sorted({"workload", *(resource.kind.lower() for resource in owning)}))
        raise BadInput(f"kind {kind!r} is not accepted; {f'did you mean {near[0]}? ' if near else ''}known are {known}")
    return called[kind]


def _get(informer: Informer, asked: Asked, namespace: str) -> Obj:
    found = informer.store.get(f"{namespace}/{asked.name}")
    if found is not None:
        return found
    there = [obj["metadata"]["name"] for obj in informer.store.list() if obj["metadata"]["namespace"] == namespace]
    near = get_close_matches(asked.name, there, n=_SHOWN) or there[:_SHOWN]
    hint = f"there are {', '.join(near)}{' and others' if len(there) > len(near) else ''}" if near else "there is none in that namespace"
    elsewhere = sorted(o["metadata"]["namespace"] for o in informer.store.list() if o["metadata"]["name"] == asked.name)
    hint = f"there is one in namespace {', '.join(elsewhere[:_SHOWN])} (-n)" if elsewhere else hint
    raise Failure(f"{informer.resource.kind} {asked.name} is not in namespace {namespace}; {hint}")


def _without(owner: Obj, asked: Asked, namespace: str) -> str:
    what = f"{asked.kind} {namespace}/{asked.name}"
    if QUEUE_NAME_LABEL not in (owner["metadata"].get("labels") or {}):
        return f"{what} has no Workload: it has no label {QUEUE_NAME_LABEL}, so topogate leaves it alone"
    return (
        f"{what} has no Workload yet: the reconciler makes one within seconds; is it running? Events of the {asked.kind} say what keeps it"
    )

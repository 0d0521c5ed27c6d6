"""Where pods of a pod set can be because of their volumes: the node affinity of PersistentVolumes that are bound to
their claims.

A PersistentVolumeClaim that is bound names a PersistentVolume. kube-scheduler binds pods to nodes that match its
`spec.nodeAffinity.required`. That is joined to the required node affinity of the pod set. A claim that is not bound yet
(`WaitForFirstConsumer`) is listed as not considered.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from core.placement.topology.node_eligibility import MOST_EXPRESSIONS
from core.placement.topology.topology_spread import count_expressions, require_terms
from core.state.facts import PodSetFacts, WorkloadFacts, find_controller

Json = Mapping[str, Any]
Terms = tuple[Json, ...]  # node selector terms; a node has to meet one of them
VOLUME_CLAIM, OF_STATEFUL_SET = "volumes.persistentVolumeClaim", "volumeClaimTemplates"
MOST_OF_STATEFUL_SET = 1_000  # claims of all pods of one StatefulSet
MOST_JOINED = 64  # different node affinities of the volumes of one pod
_SHOWN = 3
_SINGLE_POD = "ReadWriteOncePod"  # kube-scheduler looks which pod uses it


class VolumeMissing(ValueError):
    """A pod with this claim stays pending; the message names the claim and why."""


@dataclass(frozen=True, slots=True)
class Volumes:
    """`find_claim` returns the PersistentVolumeClaim of `namespace/name`, `find_volume` the PersistentVolume of a name; None: unknown.

    `misses`: a claim that is unknown does not exist.
    """

    find_claim: Callable[[str], Json | None]
    find_volume: Callable[[str], Json | None]
    misses: bool = True

    def adjust(self, facts: WorkloadFacts, workload: Json, stateful_set: Json | None = None) -> WorkloadFacts:
        """Returns a copy of the facts with pod sets that are restricted to the nodes of their volumes; the facts themselves where nothing
        changes. The first 3 problems of claims that cannot be used are added to `refused`. Claims that cannot be judged are listed in
        `traits.unjudged`. `stateful_set` (JSON) owns the Workload, if any does: its pods have claims of `volumeClaimTemplates`. Unknown
        claims of these, and those of an AppWrapper, are no problem."""
        if (find_controller(workload) or {}).get("kind") == "AppWrapper" and self.misses:  # may make the claim itself once it is admitted
            return replace(self, misses=False).adjust(facts, workload, stateful_set)
        wires = (workload.get("spec") or {}).get("podSets") or ()
        namespace, problems = facts.key.partition("/")[0], dict[str, None]()
        pod_sets = tuple(
            self._adjust(pod_set, wire, namespace, stateful_set, problems) for pod_set, wire in zip(facts.pod_sets, wires, strict=True)
        )
        if pod_sets == facts.pod_sets and not problems:
            return facts
        refused = "; ".join(text for text in (facts.refused, *list(problems)[:_SHOWN]) if text)
        return replace(facts, pod_sets=pod_sets, refused=refused)

    def _adjust(
        self, pod_set: PodSetFacts, wire: Json, namespace: str, stateful_set: Json | None, problems: dict[str, None]
    ) -> PodSetFacts:
        names = list_volume_claims(wire)
        if not names and stateful_set is None:
            return pod_set
        asked, unjudged = dict[Terms, str](), list[str]()
        for name in names:
            try:
                terms, is_judged = self._read(f"{namespace}/{name}")
            except VolumeMissing as missing:
                problems[str(missing)] = None
                continue
            if not is_judged:
                unjudged.append(name)
            if terms:
                asked.setdefault(terms, name)
        fields = [field for field in pod_set.traits.unjudged if field != VOLUME_CLAIM]
        of_templates = list_claims_of_templates(stateful_set, int(wire.get("count", 1))) if stateful_set is not None else ()
        for names_of_pods in of_templates:
            found = {self._read_of_template(f"{namespace}/{name}") for name in names_of_pods}
            # Pods of a pod set are alike: what is not asked of all cannot be asked of some.
            shared = found.pop() if len(found) == 1 else None
            if shared is None:
                fields += [OF_STATEFUL_SET] if OF_STATEFUL_SET not in fields else []
            elif shared:
                asked.setdefault(shared, OF_STATEFUL_SET)
        affinity, left_out = _join(pod_set.affinity, asked)
        unjudged += [name for name in left_out if name not in unjudged]
        if unjudged:
            more = f" and {len(unjudged) - _SHOWN} more" if len(unjudged) > _SHOWN else ""
            fields.append(f"{VOLUME_CLAIM} ({', '.join(unjudged[:_SHOWN])}{more})")
        return replace(pod_set, affinity=affinity, traits=replace(pod_set.traits, unjudged=tuple(fields)))

    def _read_of_template(self, key: str) -> Terms | None:
        """None where the claim is not there yet, or cannot be judged: the StatefulSet makes it with the pod."""
        try:
            terms, is_judged = self._read(key)
        except VolumeMissing:
            return None
        return terms if is_judged else None

    def _read(self, key: str) -> tuple[Terms, bool]:
        """The node affinity of the volume of a claim, () for none; and whether that is all that kube-scheduler uses.

        Raises VolumeMissing.
        """
        claim = self.find_claim(key)
        if claim is None:
            if self.misses:
                raise VolumeMissing(f"PersistentVolumeClaim {key} does not exist; create it")
            return (), False
        if claim["metadata"].get("deletionTimestamp"):
            raise VolumeMissing(f"PersistentVolumeClaim {key} is being deleted; create it anew")
        spec, phase = claim.get("spec") or {}, (claim.get("status") or {}).get("phase")
        if phase == "Lost":
            raise VolumeMissing(f"PersistentVolumeClaim {key} has lost its PersistentVolume {spec.get('volumeName')}; create both anew")
        volume = self.find_volume(spec.get("volumeName") or "") if phase == "Bound" else None
        if volume is None:
            return (), False
        required = ((volume.get("spec") or {}).get("nodeAffinity") or {}).get("required") or {}
        return _Frozen(required.get("nodeSelectorTerms") or ()), _SINGLE_POD not in (spec.get("accessModes") or ())


class _Frozen(tuple[Json, ...]):
    """Node selector terms that are equal to others of the same content, by which they can be looked up."""

    def __hash__(self) -> int:
        return hash(repr(list(self)))


def _join(affinity: Json | None, asked: Mapping[Terms, str]) -> tuple[Json | None, list[str]]:
    """An affinity with one term of each of `asked`, and the names of those that are left out, since it would be too large."""
    left_out = []
    for number, (terms, name) in enumerate(asked.items()):
        if number < MOST_JOINED and count_expressions(affinity, terms) <= MOST_EXPRESSIONS:
            affinity = require_terms(affinity, terms)
        else:
            left_out.append(name)
    return affinity, left_out


def list_volume_claims(pod_set: Json) -> tuple[str, ...]:
    """Returns the names of the PersistentVolumeClaims that the pod template of a pod set (JSON) names, each once, in their order."""
    volumes = ((pod_set.get("template") or {}).get("spec") or {}).get("volumes")
    if not volumes:
        return ()
    named = (str((volume.get("persistentVolumeClaim") or {}).get("claimName") or "") for volume in volumes)
    return tuple(dict.fromkeys(filter(None, named)))


def list_claims_of_templates(stateful_set: Json, count: int) -> list[list[str]]:
    """Returns the names of the claims of the first `count` pods of a StatefulSet, from `ordinals.start` on: a list per
    `volumeClaimTemplates`, there or not. Where there are more than `MOST_OF_STATEFUL_SET` in all it returns one empty list."""
    prefixes, spec = list(list_prefixes(stateful_set)), stateful_set.get("spec") or {}
    if count * len(prefixes) > MOST_OF_STATEFUL_SET:
        return [[]]
    start = int((spec.get("ordinals") or {}).get("start") or 0)
    return [[f"{prefix}-{ordinal}" for ordinal in range(start, start + count)] for prefix in prefixes]


def list_prefixes(stateful_set: Json) -> Iterator[str]:
    """Yields how the names of a StatefulSet's claims begin, before a dash and the pod's ordinal, one per `volumeClaimTemplates`."""
    for template in (stateful_set.get("spec") or {}).get("volumeClaimTemplates") or ():
        yield f"{(template.get('metadata') or {}).get('name') or ''}-{stateful_set['metadata']['name']}"

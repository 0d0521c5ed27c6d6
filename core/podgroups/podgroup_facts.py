"""PodGroups in one form: topogate's (topogate.dev/v1alpha1) and Kubernetes' own (scheduling.k8s.io/v1alpha2).

Kubernetes' own has one required level in `schedulingConstraints.topology[].key`; topogate's has the other fields of
KEP-5732's text as well.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from core.names import OWN_GROUP, OWN_VERSION
from core.podgroups.group import TopologyConstraint

Json = Mapping[str, Any]
OURS = f"{OWN_GROUP}/{OWN_VERSION}"
KUBERNETES = "scheduling.k8s.io/v1alpha2"


class UnknownAlias(ValueError):
    """A level that is no label key and no alias of any NodeTopology; the message lists the known ones."""


@dataclass(frozen=True, slots=True)
class PodGroupFacts:
    """A group as its author wrote it. `levels` may be aliases; `claim_templates` are of devices that must lie together.

    `min_count` is None for the basic policy.
    """

    namespace: str
    name: str
    uid: str
    levels: tuple[TopologyConstraint, ...] = ()
    min_count: int | None = None
    desired_count: int | None = None
    replicas: int = 1
    claim_templates: tuple[str, ...] = ()

    @property
    def is_constrained(self) -> bool:
        """Returns whether it asks for a topology level, or for devices that lie together. A group that asks for neither is left to
        kube-scheduler."""
        return bool(self.levels or self.claim_templates)


def read_pod_group(obj: Json) -> PodGroupFacts:
    """Returns a PodGroup (JSON) of either API as facts, levels as they are written. Kubernetes' own gives only required levels and a
    `min_count`; ours also the other fields. Raises ValueError for any other API version."""
    version, metadata, spec = obj.get("apiVersion"), obj["metadata"], obj.get("spec") or {}
    policy, constraints = spec.get("schedulingPolicy") or {}, spec.get("schedulingConstraints") or {}
    gang = policy.get("gang")
    min_count = int(gang["minCount"]) if gang is not None else None
    named = metadata.get("namespace") or "", metadata["name"], metadata.get("uid") or ""
    if version == KUBERNETES:
        levels = tuple(TopologyConstraint(one["key"]) for one in constraints.get("topology") or ())
        return PodGroupFacts(*named, levels, min_count)
    if version != OURS:
        raise ValueError(f"PodGroup of {version} cannot be read; {OURS} and {KUBERNETES} can")
    wanted = constraints.get("topologyConstraints") or ()
    desired = (policy.get("basic") or {}).get("desiredCount")
    return PodGroupFacts(
        *named,
        tuple(TopologyConstraint(one["level"], one.get("mode") == "Preferred") for one in wanted),
        min_count,
        None if desired is None else int(desired),
        int(spec.get("replicas") or 1),
        tuple(one["resourceClaimTemplateName"] for one in constraints.get("draConstraints") or ()),
    )


def find_template(obj: Json) -> tuple[str, str] | None:
    """Returns the names of the Workload of Kubernetes' own, and of its template, from which a PodGroup was made; None where it names
    none."""
    named = ((obj.get("spec") or {}).get("podGroupTemplateRef") or {}).get("workload") or {}
    return (str(named["workloadName"]), str(named.get("podGroupTemplateName") or "")) if named.get("workloadName") else None


def read_template_levels(workload: Json, name: str) -> tuple[TopologyConstraint, ...]:
    """Returns the levels, all required, that a template of a Workload of Kubernetes' own asks for, by the template's name; empty where it
    asks for none or there is no such template."""
    templates = (workload.get("spec") or {}).get("podGroupTemplates") or ()
    constraints = next((one.get("schedulingConstraints") for one in templates if one.get("name") == name), None) or {}
    return tuple(TopologyConstraint(one["key"]) for one in constraints.get("topology") or ())


def read_aliases(topologies: Sequence[Json]) -> dict[str, str]:
    """Returns the node label for each name of a level in the specs of NodeTopologies (objects in JSON). Where several give a name, that of
    the first NodeTopology by its own name counts."""
    aliases: dict[str, str] = {}
    for topology in sorted(topologies, key=lambda each: str(each["metadata"]["name"])):
        for level in (topology.get("spec") or {}).get("levels") or ():
            aliases.setdefault(level["name"], level["nodeLabel"])
    return aliases


def resolve(levels: Sequence[TopologyConstraint], aliases: Mapping[str, str]) -> tuple[TopologyConstraint, ...]:
    """Returns a copy of levels, in their order, with aliases replaced by node labels. A name that is no alias stays if it has a slash or a
    dot: it counts as a label. Raises UnknownAlias for any other name."""
    unknown = [one.level for one in levels if one.level not in aliases and "/" not in one.level and "." not in one.level]
    if unknown:
        near = [close for level in unknown for close in get_close_matches(level, sorted(aliases), n=1)]
        guess = f"did you mean {', '.join(dict.fromkeys(near))}? " if near else ""
        known = f"{guess}known are {', '.join(sorted(aliases))}" if aliases else "none has any"
        raise UnknownAlias(
            f"{', '.join(unknown)}: no NodeTopology has such a level; {known}; a node label such as example.com/rack will do, too"
        )
    return tuple(TopologyConstraint(aliases.get(one.level, one.level), one.preferred) for one in levels)

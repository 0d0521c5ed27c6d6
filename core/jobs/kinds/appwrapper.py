"""workload.codeflare.dev/v1beta2 AppWrapper."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from core.jobs.contract import ErrorType, FieldError, Finish, Json
from core.jobs.kinds.pod_parents import LeaderWorkerSet
from core.jobs.kinds.sparkapplication import SparkApplication
from core.jobs.schema_check import BOOLEAN, INTEGER, POD_TEMPLATE, TEXT, Fields, ListOf, find_misshapen, fits
from core.jobs.template_parts import PARTS, compute_added_parts, with_parts
from core.jobs.templated import MAX_POD_SETS, MOST_ROLES, Path, Role, TemplatedKind, find_own_gates, get, parse_integer
from core.names import LWS_GROUP_INDEX_LABEL

_COMPONENT = Fields(
    {
        "template": Fields({"kind": TEXT, "apiVersion": TEXT}),
        "podSets": ListOf(Fields({"path": TEXT, "replicas": INTEGER})),
        "podSetInfos": ListOf(PARTS),
    }
)
_STEP = re.compile(r"([^.\[\]]+)((?:\[[0-9]{1,4}\])*)")
MAX_PATH_LENGTH = 512  # of a pod template: those of known kinds have less than 100 characters
_MAX_NAME = 55  # leaves room for a number in the name of a pod set
_LONE: dict[tuple[str, str], Path] = {  # kinds that hold one template, and where
    ("", "Pod"): (),
    ("apps", "Deployment"): ("spec", "template"),
    ("apps", "ReplicaSet"): ("spec", "template"),
    ("apps", "StatefulSet"): ("spec", "template"),
}
_GROUPS = LeaderWorkerSet()


_BY_DEFAULT = ("submitterPodTemplate",)  # where a RayJob has none KubeRay makes one, which no path names


class AppWrapper(TemplatedKind):
    """Pod sets of its components, numbered through: those that a component declares, else those of the kind it is of. Where
    both are known they must agree; a component of another kind is believed.

    What a start adds stands beside the component, in `podSetInfos`; the AppWrapper controller puts it on when it makes it.
    """

    kind, group, version, plural = "AppWrapper", "workload.codeflare.dev", "v1beta2", "appwrappers"
    spec_shape = Fields({"suspend": BOOLEAN, "components": ListOf(_COMPONENT)})
    gates_at_creation = False

    def __init__(self, kinds: Sequence[TemplatedKind]) -> None:
        known: tuple[TemplatedKind | LeaderWorkerSet, ...] = (*kinds, _GROUPS)
        self._kinds = {(kind.group, kind.kind): kind for kind in known}

    def list_roles(self, job: Json) -> list[Role]:
        """Returns one role per pod set of its components, in their order, named after the AppWrapper with a number from 0. A component's
        declared pod sets win over those of its kind; one of an unknown kind without declared ones has none. At most `MOST_ROLES` of each
        component are returned, and no component is begun after so many in all."""
        # A dot is no part of a DNS label. Before the API server generates a name there is none.
        name = ((job.get("metadata") or {}).get("name") or "appwrapper")[:_MAX_NAME].replace(".", "-")
        roles: list[Role] = []
        for i, component in enumerate((job.get("spec") or {}).get("components") or ()):
            if len(roles) >= MOST_ROLES:
                break  # it is refused for these, and each further one is a copy of what may be all of the object
            for j, role in enumerate(self._list_component_roles(component)[:MOST_ROLES]):
                infos = get(component, ("podSetInfos", j)) or {}
                path: Path = ("spec", "components", i, "podSetInfos", j)
                shown = f"spec.components[{i}].template{'.' if role.shown else ''}{role.shown}"
                template = with_parts(role.template, infos)
                roles.append(replace(role, pod_set=f"{name}-{len(roles)}", path=path, shown=shown, template=template, named=None))
        return roles

    def _list_component_roles(self, component: Json) -> list[Role]:
        """Of one component, by its own paths."""
        known = self._count_component_roles(component) or []
        if component.get("podSets"):
            by_path = {role.path: role for role in reversed(known)}
            declared = component["podSets"][:MOST_ROLES]
            return [_build_declared_role(component.get("template") or {}, each, by_path) for each in declared]
        return known

    def _count_component_roles(self, component: Json) -> list[Role] | None:
        """What a component makes by the kind that it is of; None of an unknown one."""
        wrapped = component.get("template") or {}
        key = (wrapped.get("apiVersion") or "").rpartition("/")[0], wrapped.get("kind") or ""
        if key in _LONE:
            replicas = get(wrapped, ("spec", "replicas")) if _LONE[key] else 1
            return [_build_role(wrapped, _LONE[key], replicas if isinstance(replicas, int) else 1)]
        kind = self._find_kind(component)
        if kind is None or find_misshapen(kind.spec_shape, wrapped):
            return None
        if isinstance(kind, SparkApplication):  # its templates are beside the fields that describe its pods
            return [replace(role, path=(*role.path, "template")) for role in kind.list_roles(wrapped)]
        if not isinstance(kind, LeaderWorkerSet):
            return kind.list_roles(wrapped)
        groups = parse_integer(get(wrapped, ("spec", "replicas")), 1)
        return [
            replace(role, count=groups * role.count, sub_group_index_label=LWS_GROUP_INDEX_LABEL, sub_group_count=groups)
            for role in kind.list_roles(wrapped)
        ]

    def _find_kind(self, component: Json) -> TemplatedKind | LeaderWorkerSet | None:
        wrapped = component.get("template") or {}
        return self._kinds.get(((wrapped.get("apiVersion") or "").rpartition("/")[0], wrapped.get("kind") or ""))

    def validate_kind(self, job: Json) -> Iterator[FieldError]:
        """Yields the errors in the templates and pod sets of each component. Declared pod counts are used only where topogate cannot
        count the pods itself."""
        for i, component in enumerate((job.get("spec") or {}).get("components") or ()):
            yield from self._validate_component(f"spec.components[{i}]", component)

    def _validate_component(self, shown: str, component: Json) -> Iterator[FieldError]:
        kind = self._find_kind(component)
        if kind is not None:
            wrapped = component.get("template") or {}
            errors = find_misshapen(kind.spec_shape, wrapped) or (kind.validate_kind(wrapped) if isinstance(kind, TemplatedKind) else ())
            yield from (replace(error, field=f"{shown}.template.{error.field}") for error in errors)
        own = ((f"{shown}.template{'.' if role.shown else ''}{role.shown}", role) for role in self._list_component_roles(component))
        yield from find_own_gates([replace(role, shown=path) for path, role in own])
        counted, declared = self._count_component_roles(component), component.get("podSets")
        lengths = [len(each.get("path") or "") for each in (declared or ())[:MOST_ROLES]]
        if max(lengths, default=0) > MAX_PATH_LENGTH:
            accepted = f"a path of at most {MAX_PATH_LENGTH} characters is accepted"
            for j, length in enumerate(lengths):
                if length > MAX_PATH_LENGTH:
                    yield FieldError(ErrorType.TOO_LONG, f"{shown}.podSets[{j}].path", f"{length} characters", accepted)
        elif counted is not None and declared:
            wrapped = component.get("template") or {}
            name = wrapped.get("kind") or ""
            there = [role for role in counted if role.path[-1:] != _BY_DEFAULT or get(wrapped, role.path) is not None]
            yield from _check_declared(f"{shown}.podSets", name, there, declared)

    def put_template(self, job: dict[str, Any], role: Role, template: Json) -> None:
        """Writes what `template` has beyond the component's own template (labels, annotations, node selector, tolerations, gates) into
        `podSetInfos` of its component. It replaces what was there for the role. Without any for the component the field is removed."""
        _, _, i, _, j = role.path
        assert isinstance(i, int)
        assert isinstance(j, int)
        component = job["spec"]["components"][i]
        roles = self._list_component_roles(component)
        infos = [*(component.get("podSetInfos") or ()), *({} for _ in roles)][: len(roles)]
        infos[j] = compute_added_parts(roles[j].template, template)
        if any(infos):
            component["podSetInfos"] = infos
        else:
            component.pop("podSetInfos", None)

    def count_active_pods(self, job: Json, dropped: int = 0) -> int:
        """Returns 1 while the condition ResourcesDeployed is True, else 0; see `JobKind.count_active_pods`."""
        conditions = (job.get("status") or {}).get("conditions") or ()
        return int(any(c.get("type") == "ResourcesDeployed" and c.get("status") == "True" for c in conditions))

    def are_pods_ready(self, job: Json) -> bool | None:
        """Returns whether the condition PodsReady is True; None where there is none."""
        conditions = (job.get("status") or {}).get("conditions") or ()
        return next((c.get("status") == "True" for c in conditions if c.get("type") == "PodsReady"), None)

    def find_finish(self, job: Json) -> Finish | None:
        """Returns how the AppWrapper ended by its phase; None while that is neither Succeeded nor Failed."""
        phase = (job.get("status") or {}).get("phase")
        if phase not in ("Succeeded", "Failed"):
            return None
        succeeded = phase == "Succeeded"
        return Finish(succeeded, f"AppWrapper {'finished successfully' if succeeded else 'failed'}")


def _check_declared(shown: str, name: str, counted: Sequence[Role], declared: Sequence[Json]) -> Iterator[FieldError]:
    """Each template of a kind that topogate counts is declared once, by its path: another template requests something else."""
    left = {_show(("template", *role.path)): role.count for role in counted}
    accepted = f"each pod template of this {name} is expected once: {', '.join(list(left)[:MAX_POD_SETS])}"
    for j, pod_set in enumerate(declared):
        path, replicas = pod_set.get("path") or "", parse_integer(pod_set.get("replicas"), 1)
        made = left.pop(path, None)
        if made is None:
            yield FieldError(ErrorType.INVALID, f"{shown}[{j}].path", path, accepted)
            return
        if replicas != made:
            expected = f"{made} is expected: so many pods this {name} makes of that template"
            yield FieldError(ErrorType.INVALID, f"{shown}[{j}].replicas", replicas, expected)
    if left:
        yield FieldError(ErrorType.REQUIRED, shown, None, accepted)


def _build_declared_role(wrapped: Json, declared: Json, known: Mapping[Path, Role]) -> Role:
    """A declared pod set; its index labels are those of the kind, where that has a template at the same place."""
    text = declared.get("path") or ""
    if len(text) > MAX_PATH_LENGTH:  # it is refused for that
        return _build_role({}, (), 1)
    path = _parse(text)
    found = known.get(path) or _build_role(wrapped, path, 1)
    return replace(found, count=parse_integer(declared.get("replicas"), 1))


def _build_role(wrapped: Json, path: Path, count: int) -> Role:
    found = get(wrapped, path)
    template = found if fits(found, POD_TEMPLATE) else {}
    return Role("", count, path, _show(path), template)


def _parse(text: str) -> Path:
    """`template.spec.replicatedJobs[0].template` from the component down, as a path from its template down."""
    path: list[str | int] = []
    for match in _STEP.finditer(text):
        path.append(match[1])
        path += [int(number) for number in re.findall(r"[0-9]+", match[2])]
    return tuple(path[1:])


def _show(path: Path) -> str:
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")

"""workload.codeflare.dev/v1beta2 AppWrapper."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from core.jobs.contract import Finish, Json
from core.jobs.parts import PARTS, parts_added, with_parts
from core.jobs.shape import BOOLEAN, INTEGER, POD_TEMPLATE, TEXT, Fields, ListOf, find_misshapen, fits
from core.jobs.templated import Path, Role, TemplatedKind, get, integer

_COMPONENT = Fields(
    {
        "template": Fields({"kind": TEXT, "apiVersion": TEXT}),
        "podSets": ListOf(Fields({"path": TEXT, "replicas": INTEGER})),
        "podSetInfos": ListOf(PARTS),
    }
)
_STEP = re.compile(r"([^.\[\]]+)((?:\[[0-9]{1,4}\])*)")
_MAX_NAME = 55  # leaves room for a number in the name of a pod set
_LONE: dict[tuple[str, str], Path] = {  # kinds that hold one template, and where
    ("", "Pod"): (),
    ("apps", "Deployment"): ("spec", "template"),
    ("apps", "StatefulSet"): ("spec", "template"),
}


class AppWrapper(TemplatedKind):
    """Pod sets of its components, numbered through: those that a component declares, else those of the kind it is of.

    What a start adds stands beside the component, in `podSetInfos`; the AppWrapper controller puts it on when it makes it.
    """

    kind, group, version, plural = "AppWrapper", "workload.codeflare.dev", "v1beta2", "appwrappers"
    spec_shape = Fields({"suspend": BOOLEAN, "components": ListOf(_COMPONENT)})
    gates_at_creation = False

    def __init__(self, kinds: Sequence[TemplatedKind]) -> None:
        self._kinds = {(kind.group, kind.kind): kind for kind in kinds}

    def roles(self, job: Json) -> list[Role]:
        name = ((job.get("metadata") or {}).get("name") or "")[:_MAX_NAME]
        roles: list[Role] = []
        for i, component in enumerate((job.get("spec") or {}).get("components") or ()):
            for j, role in enumerate(self._roles_of(component)):
                infos = get(component, ("podSetInfos", j)) or {}
                path: Path = ("spec", "components", i, "podSetInfos", j)
                shown = f"spec.components[{i}].template{'.' if role.shown else ''}{role.shown}"
                template = with_parts(role.template, infos)
                roles.append(replace(role, pod_set=f"{name}-{len(roles)}", path=path, shown=shown, template=template))
        return roles

    def _roles_of(self, component: Json) -> list[Role]:
        """Of one component, by its own paths."""
        wrapped = component.get("template") or {}
        group = (wrapped.get("apiVersion") or "").rpartition("/")[0]
        kind = self._kinds.get((group, wrapped.get("kind") or ""))
        known = kind.roles(wrapped) if kind is not None and not find_misshapen(kind.spec_shape, wrapped) else []
        if component.get("podSets"):
            return [_declared(wrapped, declared, known) for declared in component["podSets"]]
        lone = _LONE.get((group, wrapped.get("kind") or ""))
        if lone is not None:
            replicas = get(wrapped, ("spec", "replicas")) if lone else 1
            return [_role(wrapped, lone, replicas if isinstance(replicas, int) else 1)]
        return known

    def put_template(self, job: dict[str, Any], role: Role, template: Json) -> None:
        _, _, i, _, j = role.path
        assert isinstance(i, int)
        assert isinstance(j, int)
        component = job["spec"]["components"][i]
        roles = self._roles_of(component)
        infos = [*(component.get("podSetInfos") or ()), *({} for _ in roles)][: len(roles)]
        infos[j] = parts_added(roles[j].template, template)
        if any(infos):
            component["podSetInfos"] = infos
        else:
            component.pop("podSetInfos", None)

    def active_pods(self, job: Json) -> int:
        conditions = (job.get("status") or {}).get("conditions") or ()
        return int(any(c.get("type") == "ResourcesDeployed" and c.get("status") == "True" for c in conditions))

    def finished(self, job: Json) -> Finish | None:
        phase = (job.get("status") or {}).get("phase")
        if phase not in ("Succeeded", "Failed"):
            return None
        succeeded = phase == "Succeeded"
        return Finish(succeeded, f"AppWrapper {'finished successfully' if succeeded else 'failed'}")


def _declared(wrapped: Json, declared: Json, known: Sequence[Role]) -> Role:
    """A declared pod set; its index labels are those of the kind, where that has a template at the same place."""
    path = _parse(declared.get("path") or "")
    found = next((role for role in known if role.path == path), None) or _role(wrapped, path, 1)
    return replace(found, count=integer(declared.get("replicas"), 1))


def _role(wrapped: Json, path: Path, count: int) -> Role:
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

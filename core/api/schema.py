"""Generate the CRDs from the models: pydantic's JSON schema made structural, wrapped, written as YAML.

    python -m core.api.schema --write    writes charts/topogate/files/crds
    python -m core.api.schema --check    fails, with the difference, where those files are not what the models say

The API server takes only *structural* schemas: no `$ref`, no union. So references are put inline, `X | None` becomes X
(absence says None), and any other union is refused here, at build time, with the path to it.
"""

from __future__ import annotations

import argparse
import copy
import difflib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from core.api import v1beta1
from core.api.conversion_review import CONVERT_PATH
from core.api.convert import CONVERTED
from core.api.kinds.check_kinds import AdmissionCheck, WorkloadPriorityClass
from core.api.kinds.crd import Crd, PrinterColumn
from core.api.kinds.flavor_kind import ResourceFlavor
from core.api.kinds.marks import SERVER_DEFAULT
from core.api.kinds.meta import KubernetesObject, Wire
from core.api.kinds.podgroup_kinds import NodeTopology, PodGroup
from core.api.kinds.provisioning_kind import ProvisioningRequestConfig
from core.api.kinds.queue_kinds import ClusterQueue, Cohort, LocalQueue
from core.api.kinds.topology_kind import Topology
from core.api.kinds.workload_kind import Workload
from core.names import OLD_VERSION, OWN_VERSION, VERSION

CRD_DIR = Path(__file__).parents[2] / "charts" / "topogate" / "files" / "crds"
HEADER = "# Generated from core/api by `python -m core.api.schema --write`; do not edit.\n"


@dataclass(frozen=True)
class Version:
    """One version of one kind; exactly one of a kind's versions is stored.

    `old` is the kind as v1beta1 has it: the model's schema, changed as `core.api.v1beta1` says. It is not served, as in Kueue 0.20, unless
    the installer of the CRDs says so; objects that were stored in it are converted all the same.
    """

    name: str
    model: type[KubernetesObject]
    storage: bool
    old: bool = False


KINDS: Mapping[str, Sequence[Version]] = {
    model.__name__: (Version(VERSION, model, storage=True), Version(OLD_VERSION, model, storage=False, old=True))
    for model in (
        AdmissionCheck,
        ClusterQueue,
        Cohort,
        LocalQueue,
        ProvisioningRequestConfig,
        ResourceFlavor,
        Topology,
        Workload,
        WorkloadPriorityClass,
    )
} | {model.__name__: (Version(OWN_VERSION, model, storage=True),) for model in (NodeTopology, PodGroup)}
# The installer of the CRDs sets the address of the webhook, and adds its CA. As it stands nothing but v1beta1 needs it.
CONVERSION: Mapping[str, Any] = {
    "strategy": "Webhook",
    "webhook": {
        "clientConfig": {"service": {"namespace": "topogate-system", "name": "topogate-webhook", "path": CONVERT_PATH, "port": 443}},
        "conversionReviewVersions": ["v1"],
    },
}


class NotStructural(ValueError):
    """The model says something that a CRD cannot; the message has the path."""


def build_crd(kind: str, versions: Sequence[Version]) -> dict[str, Any]:
    """Returns the CustomResourceDefinition of a kind with these versions; group, names and scope are those of the first. Kinds in
    `CONVERTED` get the webhook of conversion. Raises NotStructural for a model with a union, and TypeError where a model lacks `crd`."""
    crd = _find_crd(versions[0].model)
    names: dict[str, Any] = {"kind": kind, "listKind": f"{kind}List", "plural": crd.plural, "singular": kind.lower()}
    if crd.short_names:
        names["shortNames"] = list(crd.short_names)
    spec: dict[str, Any] = {"group": crd.group, "names": names, "scope": crd.scope}
    spec["conversion"] = copy.deepcopy(dict(CONVERSION)) if kind in CONVERTED else {"strategy": "None"}
    spec["versions"] = [_build_version(version) for version in versions]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{crd.plural}.{crd.group}"},
        "spec": spec,
    }


def _build_version(version: Version) -> dict[str, Any]:
    crd = _find_crd(version.model)
    built: dict[str, Any] = {
        "name": version.name,
        "served": not version.old,
        "storage": version.storage,
        "schema": {"openAPIV3Schema": build_schema(version.model)},
    }
    if crd.has_status:
        built["subresources"] = {"status": {}}
    if crd.columns:
        built["additionalPrinterColumns"] = [_build_column(column) for column in crd.columns]
    if version.old:
        v1beta1.describe(version.model.__name__, built, build_fields)
    return built


def _find_crd(model: type[KubernetesObject]) -> Crd:
    crd = getattr(model, "crd", None)
    if not isinstance(crd, Crd):
        raise TypeError(f"{model.__name__} does not say how it is offered: its `crd` is missing")
    return crd


def _build_column(column: PrinterColumn) -> dict[str, Any]:
    built: dict[str, Any] = {
        "name": column.name,
        "type": column.type,
        "jsonPath": column.json_path,
        "description": column.description,
    }
    if column.priority:
        built["priority"] = column.priority
    return built


def build_schema(model: type[KubernetesObject]) -> dict[str, Any]:
    """Returns the structural schema of an object, in which metadata is any object: it is the API server's own business. Raises
    NotStructural where a field is a union of types other than None."""
    schema = build_fields(model)
    schema["properties"]["apiVersion"] = {"type": "string"}
    schema["properties"]["kind"] = {"type": "string"}
    schema["properties"]["metadata"] = {"type": "object"}
    return schema


def build_fields(model: type[Wire]) -> dict[str, Any]:
    """Returns the structural schema of a model that is a part of an object; see `to_structural`. Raises NotStructural where a field is a
    union of types other than None."""
    generated = model.model_json_schema(by_alias=True, mode="validation")
    return to_structural(generated, generated.get("$defs", {}), model.__name__)


def to_structural(schema: Mapping[str, Any], definitions: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Returns a new schema with each `$ref` (looked up in `definitions`) inlined, `X | None` as plain X (not nullable), and `const` as
    `enum`. It has no title, $defs, or default but the server's (SERVER_DEFAULT). Other keys stay unchecked. What stands beside a `$ref`
    wins over what it names. Raises NotStructural, which names `path`, for any other union."""
    schema = _resolve(schema, definitions, path)
    built: dict[str, Any] = {}
    for key, value in schema.items():
        match key:
            case "title" | "default" | "$defs":
                continue
            case "const":
                built["enum"] = [value]
            case _ if key == SERVER_DEFAULT:
                built["default"] = value
            case "properties":
                built[key] = {name: to_structural(child, definitions, f"{path}.{name}") for name, child in value.items()}
            case "items":
                built[key] = to_structural(value, definitions, f"{path}[]")
            case "additionalProperties" if isinstance(value, Mapping):
                built[key] = to_structural(value, definitions, f"{path}.*")
            case "description":
                built[key] = " ".join(value.split())
            case _:
                built[key] = value
    return built


def _resolve(schema: Mapping[str, Any], definitions: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Follow `$ref` and `X | None` until neither is left; what stands beside them wins over what they lead to."""
    resolved = dict(schema)
    while True:
        if "$ref" in resolved:
            target = definitions[resolved.pop("$ref").removeprefix("#/$defs/")]
        elif "allOf" in resolved and len(resolved["allOf"]) == 1:
            (target,) = resolved.pop("allOf")
        elif "anyOf" in resolved and not resolved.get("x-kubernetes-int-or-string"):
            alternatives = [one for one in resolved.pop("anyOf") if one != {"type": "null"}]
            if len(alternatives) != 1:
                raise NotStructural(f"{path} is a union of {len(alternatives)} types, which a CRD cannot express")
            (target,) = alternatives
        elif "oneOf" in resolved or "allOf" in resolved:
            raise NotStructural(f"{path} is a combination of types, which a CRD cannot express")
        else:
            return resolved
        resolved = {**target, **resolved}


def render(crd: Mapping[str, Any]) -> str:
    """Returns a CustomResourceDefinition as YAML, with a header."""
    return HEADER + yaml.safe_dump(crd, sort_keys=False, width=140, allow_unicode=True)


def render_all() -> dict[str, str]:
    """Returns the content of each file, by its name (`group_plural.yaml`): one for each CustomResourceDefinition of `KINDS`. Raises
    NotStructural."""
    built = [build_crd(kind, versions) for kind, versions in KINDS.items()]
    return {f"{crd['spec']['group']}_{crd['spec']['names']['plural']}.yaml": render(crd) for crd in built}


def find_drift(folder: Path = CRD_DIR) -> str:
    """Returns unified diffs from the YAML files in `folder` to what they should be, sorted by name; empty if all lines are equal. A file
    that is missing, or should not be there, is in it as a whole. Raises NotStructural."""
    wanted = render_all()
    present = {path.name: path.read_text() for path in folder.glob("*.yaml")}
    lines: list[str] = []
    for name in sorted({*wanted, *present}):
        lines += difflib.unified_diff(
            present.get(name, "").splitlines(),
            wanted.get(name, "").splitlines(),
            f"{name} (as it is)",
            f"{name} (as generated)",
            lineterm="",
        )
    return "\n".join(lines)


def write_all(folder: Path = CRD_DIR) -> None:
    """Writes all CustomResourceDefinitions to `folder`, which is made if it is missing, and removes its other YAML files. Raises
    NotStructural."""
    folder.mkdir(parents=True, exist_ok=True)
    wanted = render_all()
    for path in folder.glob("*.yaml"):
        if path.name not in wanted:
            path.unlink()
    for name, content in wanted.items():
        (folder / name).write_text(content)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line: --write writes the files to `CRD_DIR`, --check compares them. Returns the exit status: 1 where --check finds a
    difference, which is printed on stderr, else 0. Wrong arguments end the process with status 2."""
    parser = argparse.ArgumentParser(prog="python -m core.api.schema", description="The CRDs, generated from the models.")
    todo = parser.add_mutually_exclusive_group(required=True)
    todo.add_argument("--write", action="store_true", help="write the files")
    todo.add_argument("--check", action="store_true", help="fail if the files are not what the models say")
    if parser.parse_args(arguments).write:
        write_all()
        return 0
    drift = find_drift()
    if drift:
        print(f"{drift}\n\nThe CRDs are not what core/api says; run: python -m core.api.schema --write", file=sys.stderr)
    return int(bool(drift))


if __name__ == "__main__":
    sys.exit(main())

"""Objects from YAML and JSON files: the mistakes in all of them are reported together, each with its file, document and field."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from cli.failures import BadInput
from cli.planning.amounts import find_wrong_amounts, find_wrong_amounts_of_pod
from core.api.convert import Unconvertible, convert
from core.api.files.mistakes import Mistake, build_path, find_nearest, format_value
from core.api.files.strict import EXPECTED
from core.api.schema import KINDS as MODELS
from core.jobs.contract import FieldError
from core.jobs.objects import OBJECTS
from core.jobs.schema_check import BOOLEAN, INTEGER, METADATA, POD_TEMPLATE, Fields, build_spec_shape, find_mismatches, find_misshapen
from core.names import API_VERSION, GROUP, OLD_API_VERSION, OWN_GROUP
from core.plan.steps import api_resources as r
from core.podgroups.devices.claims import read_claim, read_class, read_slice, read_template
from core.podgroups.members import read_member
from core.resource import Obj, Resource
from core.state.daemonsets import DaemonSetFacts
from core.state.facts import NodeFacts, PodFacts

MAX_BYTES = 256 << 20  # what 50,000 nodes need as kubectl prints them
_TEXTS = ("name", "namespace", "generateName", "uid", "resourceVersion")  # of metadata
_LIST = "List"
_NO_SPECS: Mapping[Resource, Fields] = {}
_ANY = Fields({"metadata": METADATA})
_JOB_TEMPLATE = Fields({"metadata": METADATA, "spec": Fields({"template": POD_TEMPLATE})})
_SHAPES = {
    r.PRIORITY_CLASSES: Fields({"metadata": METADATA, "value": INTEGER, "globalDefault": BOOLEAN}),
    r.CRON_JOBS: Fields({"metadata": METADATA, "spec": Fields({"suspend": BOOLEAN, "jobTemplate": _JOB_TEMPLATE})}),
    r.DEPLOYMENTS: Fields({"metadata": METADATA, "spec": Fields({"replicas": INTEGER, "template": POD_TEMPLATE})}),
    r.DAEMON_SETS: Fields({"metadata": METADATA, "spec": Fields({"template": POD_TEMPLATE}, ("template",))}, ("spec",)),
}


def _read_pod(pod: Obj) -> None:
    PodFacts.read(pod)
    read_member(pod)


_READERS: Mapping[Resource, Callable[[Obj], object]] = {
    r.DAEMON_SETS: DaemonSetFacts.read,
    r.NODES: NodeFacts.read,
    r.PODS: _read_pod,
    r.RESOURCE_SLICES: read_slice,
    r.RESOURCE_CLAIMS: read_claim,
    r.RESOURCE_CLAIM_TEMPLATES: read_template,
    r.DEVICE_CLASSES: read_class,
}
_RULES = {rules.kind: rules for rules in OBJECTS}


class _Loader(yaml.CSafeLoader):
    """Times stay the text that Kubernetes takes them for."""

    yaml_implicit_resolvers = {  # noqa: RUF012  # as the base class has it
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }


@dataclass(frozen=True, slots=True)
class Document:
    """An object, and where it stands."""

    obj: Obj
    where: str

    @property
    def api(self) -> tuple[str, str]:
        """Returns apiVersion and kind of the object."""
        return self.obj["apiVersion"], self.obj["kind"]


def read_documents(paths: Iterable[Path], wrong: list[str]) -> list[Document]:
    """Returns all objects of all files (`-`: stdin), with the items of each List in its place, in their order. Mistakes are added to
    `wrong`, each with its place: files that cannot be read, are empty or have an error of syntax, and documents that are no object of
    Kubernetes. These are left out. A name, namespace, uid or resourceVersion that is null is removed."""
    found: list[Document] = []
    for path in paths:
        try:
            for number, value in enumerate(_load(path), 1):
                if value is not None:  # nothing between two lines of dashes
                    _add_document(value, f"{path}: document {number}", found, wrong)
        except BadInput as error:
            wrong += error.lines
    return found


def _load(path: Path) -> list[Any]:
    try:
        with (Path("/dev/stdin") if str(path) == "-" else path).open("rb") as file:
            text = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or error}") from error
    if len(text) > MAX_BYTES:
        raise BadInput(f"{path}: it has more than {MAX_BYTES} bytes, which is as much as is read")
    try:
        if text[:1] == b"{":  # what kubectl writes as JSON is YAML, too, but is read ten times as fast
            return [json.loads(text)]
    except (ValueError, RecursionError):
        pass  # YAML may begin so; its parser reports what is wrong, and where
    try:
        found = list(yaml.load_all(text, Loader=_Loader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        raise BadInput(f"{path}: YAML syntax error: {error.problem or error.context}{where}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadInput(f"{path}: YAML syntax error: {' '.join(str(error).split())[:200]}") from error
    if all(value is None for value in found):
        raise BadInput(f"{path}: the file is empty")
    return found


def _add_document(value: object, where: str, found: list[Document], wrong: list[str]) -> None:
    mistakes = list(_list_shape_mistakes(value))
    if mistakes:
        wrong += [f"{where}: {mistake}" for mistake in mistakes]
        return
    assert isinstance(value, dict)
    metadata = value.get("metadata") or {}
    if any(name in metadata and metadata[name] is None for name in _TEXTS):  # null means nothing, as for the API server
        kept = {name: part for name, part in metadata.items() if part is not None or name not in _TEXTS}
        value = {**value, "metadata": kept}
    if value["kind"].endswith(_LIST) and isinstance(value.get("items"), list):
        kind = value["kind"].removesuffix(_LIST)
        for number, item in enumerate(value["items"], 1):
            # In lists of one kind the server leaves out which.
            typed = {"apiVersion": value["apiVersion"], "kind": kind, **item} if kind and isinstance(item, dict) else item
            _add_document(typed, f"{where}, item {number}", found, wrong)
        return
    found.append(Document(value, f"{where}: {value['kind']} {_name_of(value)}"))


def _name_of(obj: Mapping[str, Any]) -> str:
    metadata = obj.get("metadata") or {}
    return str(metadata.get("name") or metadata.get("generateName") or "without a name")


def _list_shape_mistakes(value: object) -> Iterator[Mistake]:
    """Yields what is missing or has a wrong type of the fields that every object of Kubernetes has."""
    if not isinstance(value, dict):
        yield Mistake("", f"{format_value(value)} is no object of Kubernetes; apiVersion, kind and metadata are expected")
        return
    for name in ("apiVersion", "kind"):
        if not isinstance(value.get(name), str) or not value[name]:
            yield Mistake(
                name, "it is missing; it has to be given" if value.get(name) is None else f"{format_value(value[name])} is no text"
            )
    metadata = value.get("metadata")
    if metadata is None:
        return
    if not isinstance(metadata, dict):
        yield Mistake("metadata", f"{format_value(metadata)} is not accepted; an object is expected")
        return
    for name in _TEXTS:
        if metadata.get(name) is not None and not isinstance(metadata[name], str):
            yield Mistake(f"metadata.{name}", f"{format_value(metadata[name])} is not accepted; text is expected, put it into quotes")
    for part in ("labels", "annotations"):
        yield from _list_non_texts(metadata.get(part), f"metadata.{part}")


def _list_non_texts(value: object, path: str) -> Iterator[Mistake]:
    if value is not None and not isinstance(value, dict):
        yield Mistake(path, f"{format_value(value)} is not accepted; an object is expected")
    for key, text in value.items() if isinstance(value, dict) else ():
        if not isinstance(key, str) or not isinstance(text, str):
            yield Mistake(
                build_path(path, key if isinstance(key, str) else format_value(key)),
                f"{format_value(text)} is not accepted; text is expected, put it into quotes",
            )


# --- what describes a cluster -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClusterFiles:
    """Objects by resource, and the documents of files that are not used."""

    objects: Mapping[Resource, Sequence[Obj]]
    others: tuple[Document, ...]


def sort_out(
    documents: Iterable[Document], known: Iterable[Resource], namespace: str, wrong: list[str], specs: Mapping[Resource, Fields] = _NO_SPECS
) -> ClusterFiles:
    """Returns the objects of known resources as an API server would hold them: complete, of our stored version, in a namespace, each once.
    Those with mistakes are left out; the mistakes are added to `wrong`. Documents of other resources are in `others`. `specs` have the
    shape of each job kind's spec."""
    by_api = {(resource.api_version, resource.kind): resource for resource in known}
    objects: dict[Resource, list[Obj]] = {}
    others, seen = list[Document](), dict[tuple[Resource, str, str], str]()
    for document in documents:
        api = (API_VERSION, document.api[1]) if document.api[0] == OLD_API_VERSION else document.api
        resource = by_api.get(api)
        if resource is None:
            others.append(document)
            continue
        try:
            obj = complete(document.obj, resource, namespace)
        except Unconvertible as error:
            wrong.append(f"{document.where}: {error}")
            continue
        metadata = obj["metadata"]
        mistakes = list(find_mistakes(resource, obj, specs.get(resource)))
        key = resource, metadata.get("namespace", ""), str(metadata.get("name"))
        if key in seen:
            mistakes.append(Mistake("metadata.name", f"it is given twice, in {seen[key]}, too; leave one out"))
        seen[key] = document.where
        wrong += [f"{document.where}: {mistake}" for mistake in mistakes]
        if not mistakes:
            objects.setdefault(resource, []).append(obj)
    return ClusterFiles(objects, tuple(others))


def complete(obj: Obj, resource: Resource, namespace: str) -> Obj:
    """Returns a copy of an object, of our stored version, with what an API server adds to each, where it is missing: namespace, uid
    (`KIND/NAME`) and resourceVersion, and KubeRay's default of a RayJob's `submissionMode`, by which it has a pod more. A node with a
    status but no conditions becomes ready. Raises Unconvertible for an object of v1beta1
    that cannot be converted."""
    if obj["apiVersion"] == OLD_API_VERSION:
        obj = convert(obj, API_VERSION)
    metadata = {**(obj.get("metadata") or {})}
    if resource.namespaced:
        metadata.setdefault("namespace", namespace)
    name = f"{metadata['namespace']}/{metadata.get('name')}" if resource.namespaced else metadata.get("name")
    metadata = {"uid": f"{resource.kind}/{name}", "resourceVersion": "1", **metadata}
    if resource == r.NODES and isinstance(obj.get("status"), dict) and "conditions" not in obj["status"]:
        # A node that was written by hand is meant to work; a kubelet always sets conditions.
        obj = {**obj, "status": {**obj["status"], "conditions": [{"type": "Ready", "status": "True"}]}}
    if resource.kind == "RayJob" and isinstance(obj.get("spec"), dict):
        obj = {**obj, "spec": {"submissionMode": "K8sJobMode", **obj["spec"]}}
    return {**obj, "metadata": metadata}


def find_mistakes(resource: Resource, obj: Obj, spec: Fields | None = None) -> Iterator[Mistake]:
    """Yields what is wrong with an object of a known resource; `spec` is the shape of its kind's spec (None: not known). Of an object
    without a name only that is reported. Our kinds are judged by their models and the rules of the webhook. Others are judged by their
    shape and, where that is right, by their amounts; where these are right, too, by whether topogate can read them."""
    if not obj["metadata"].get("name"):
        yield Mistake("metadata.name", "it is missing; it has to be given")
        return
    if resource.group in (GROUP, OWN_GROUP) and resource.kind in MODELS:
        yield from _list_own_kind_mistakes(resource.kind, obj)
        return
    misshapen = find_misshapen(spec, obj) if spec is not None else find_mismatches(obj, _SHAPES.get(resource, _ANY))
    for error in misshapen:
        yield Mistake(
            error.field, f"{format_value(error.value)} is not accepted; {error.accepted}" if error.value is not None else error.accepted
        )
    if misshapen:
        return
    if resource == r.NODES:
        yield from _list_node_mistakes(obj)
    elif resource in _READERS:
        wrong = list(_find_amounts(resource, obj))
        yield from wrong or _find_unreadable(_READERS[resource], obj)


def _list_node_mistakes(node: Obj) -> Iterator[Mistake]:
    status = node.get("status")
    allocatable = status.get("allocatable") if isinstance(status, dict) else None
    if not isinstance(allocatable, dict) or not allocatable:
        yield Mistake("status.allocatable", "it is missing; what the node offers has to be given, such as cpu, memory, pods")
        return
    wrong = list(find_wrong_amounts("status.allocatable", allocatable))
    yield from wrong or _find_unreadable(NodeFacts.read, node)


def _find_amounts(resource: Resource, obj: Obj) -> Iterator[Mistake]:
    if resource == r.PODS:
        yield from find_wrong_amounts_of_pod("spec", obj.get("spec"))
    elif resource == r.DAEMON_SETS:
        yield from find_wrong_amounts_of_pod("spec.template.spec", obj["spec"]["template"].get("spec"))


def _find_unreadable(read: Callable[[Obj], object], obj: Obj) -> Iterator[Mistake]:
    try:
        read(obj)
    except ValueError as error:
        yield Mistake("", f"it cannot be read: {error}")
    except Exception:  # whatever comes of fields of another type
        yield Mistake("", "it cannot be read: a field of it has another type than in Kubernetes")


def _list_own_kind_mistakes(kind: str, obj: Obj) -> Iterator[Mistake]:
    """By the model from which the CustomResourceDefinition is made, then by the rules of the webhook."""
    model = MODELS[kind][0].model
    unknown = list(_list_unknown_keys(model, obj, ""))
    yield from unknown
    named: set[str] = set()
    try:
        model.model_validate(obj)
    except ValidationError as error:
        for one in error.errors(include_url=False):
            path = build_path("", *one["loc"])
            named.add(path)
            yield Mistake(path, f"{'an empty list' if one['input'] == [] else format_value(one['input'])} is not accepted; {_explain(one)}")
    rules = _RULES.get(kind)
    errors: Sequence[FieldError] = ()
    if rules is not None:
        # A rule that a feature gate lifts is judged where the object is placed.
        errors = find_misshapen(build_spec_shape(kind), obj) or [error for error in rules.validate(obj, None).errors if not error.gate]
    for wrong in errors:
        if wrong.field in named:
            continue
        value = "" if wrong.value is None else f"{format_value(wrong.value)} is not accepted; "
        yield Mistake(wrong.field, f"{value}{wrong.accepted}")


def _explain(error: ErrorDetails) -> str:
    """What a model accepts, in terms of the API."""
    kind, context = error["type"], error.get("ctx") or {}
    if kind in ("too_short", "too_long"):
        bound = context["min_length"] if kind == "too_short" else context["max_length"]
        items = "1 item is" if bound == 1 else f"{bound} items are"
        return f"{'at least' if kind == 'too_short' else 'at most'} {items} expected"
    if kind == "literal_error":
        return f"use {str(context['expected']).replace(chr(39), '')}"
    if kind in EXPECTED:
        return f"{EXPECTED[kind]} is expected"
    message = error["msg"].removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


def _list_unknown_keys(model: type[BaseModel], value: object, path: str) -> Iterator[Mistake]:
    """Keys that no field is called by: the API server would drop them with a warning, and the author means something by them."""
    fields = {field.alias or name: field for name, field in model.model_fields.items()}
    for key, inner in value.items() if isinstance(value, dict) else ():
        where = build_path(path, str(key))
        if key in fields:
            nested = _find_model(fields[key].annotation)
            if nested is not None and where not in ("metadata", "status"):  # the models have only those parts of both that topogate reads
                for index, item in enumerate(inner) if isinstance(inner, list) else ((None, inner),):
                    yield from _list_unknown_keys(nested, item, where if index is None else build_path(where, index))
        elif where not in ("metadata", "status"):
            near = find_nearest(str(key), fields)
            yield Mistake(
                where, f"unknown key; did you mean {near}?" if near else f"unknown key; {', '.join(sorted(fields))} are known here"
            )


def _find_model(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for inner in get_args(annotation) if (model := _find_model(inner)) is not None), None)

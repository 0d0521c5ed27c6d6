"""Parts of objects that the API server treats in ways of their own: what only it writes, the status, the managers of fields."""

from typing import Any

from sim.apiserver.kinds import Kind

Json = dict[str, Any]


def read_spec(obj: Json) -> Json:
    """The parts of an object of which a change makes a new generation."""
    return {name: value for name, value in obj.items() if name not in ("metadata", "status", "kind", "apiVersion")}


def strip_managers(obj: Json) -> Json:
    """The object without `metadata.managedFields`."""
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    return {**obj, "metadata": metadata}


def find_empty(metadata: Json) -> Json:
    """The parts of the metadata of a custom resource that an apply leaves empty: these are stored, though no answer shows them."""
    names = ("labels", "annotations", "finalizers", "ownerReferences")
    return {name: metadata[name] for name in names if name in metadata and not metadata[name]}


def may_go(obj: Json) -> bool:
    """Whether nothing keeps an object that is being deleted: no finalizer, no grace period."""
    metadata = obj["metadata"]
    is_going = metadata.get("deletionTimestamp") and not metadata.get("deletionGracePeriodSeconds")
    return bool(is_going and not metadata.get("finalizers"))


_OF_SERVER = ("uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds", "generateName", "namespace")


def keep_server_metadata(old: Json, metadata: Json) -> Json:
    """What only the server writes, as it was; empty parts left out, as it writes them."""
    kept = {name: old["metadata"][name] for name in _OF_SERVER if name in old["metadata"]}
    given = {name: value for name, value in metadata.items() if name not in _OF_SERVER and value not in ({}, [], None)}
    return {**given, **kept, "resourceVersion": old["metadata"]["resourceVersion"]}


def take_part(kind: Kind, subresource: str, old: Json, body: Json) -> Json:
    """The object of which a write changes one part only: of the status that, of the object all but that."""
    if subresource == "status":
        part = {name: value for name, value in old.items() if name != "status"}
        return {**part, **({"status": body["status"]} if "status" in body else {})}
    if not kind.has_status:
        return body
    part = {name: value for name, value in body.items() if name != "status"}
    return {**part, **({"status": old["status"]} if "status" in old else {})}


def limit_to_part(kind: Kind, subresource: str, body: Json) -> Json:
    """What an apply to a subresource is about, and an apply to the object."""
    if subresource == "status":
        return {"metadata": {}, **({"status": body["status"]} if "status" in body else {})}
    return {name: value for name, value in body.items() if not (name == "status" and kind.has_status)}

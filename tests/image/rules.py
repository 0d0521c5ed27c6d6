"""What the OCI image specification asks of an archive, and we of ours: read from the file, with nothing of what wrote it."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import posixpath
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

OCI = "application/vnd.oci.image."
Obj = dict[str, Any]


def find_violations(path: Path) -> list[str]:
    """Every rule that the archive breaks; empty is good."""
    with tarfile.open(path) as archive:
        files = {member.name: archive.extractfile(member).read() for member in archive if member.isfile()}  # type: ignore[union-attr]
    return list(_check_archive(files))


def _check_archive(files: dict[str, bytes]) -> Iterator[str]:
    if json.loads(files["oci-layout"]) != {"imageLayoutVersion": "1.0.0"}:
        yield "oci-layout is of another version"
    index = json.loads(files["index.json"])
    if (index["schemaVersion"], index["mediaType"]) != (2, f"{OCI}index.v1+json"):
        yield "index.json is no index"
    blobs = {name for name in files if name.startswith("blobs/")}
    for name in blobs:
        if name != f"blobs/sha256/{hashlib.sha256(files[name]).hexdigest()}":
            yield f"{name} is not named by its content"
    seen: set[str] = set()
    for found in index["manifests"]:
        yield from _check_image(found, files, seen)
    if unseen := blobs - seen:
        yield f"{unseen} belong to nothing"


def _check_image(found: Obj, files: dict[str, bytes], seen: set[str]) -> Iterator[str]:
    yield from _check_descriptor(found, "manifest.v1+json", files, seen)
    manifest = json.loads(files[_get_blob_path(found)])
    if (manifest["schemaVersion"], manifest["mediaType"]) != (2, found["mediaType"]):
        yield "the manifest says that it is something else"
    yield from _check_descriptor(manifest["config"], "config.v1+json", files, seen)
    config = json.loads(files[_get_blob_path(manifest["config"])])
    if {name: config[name] for name in ("architecture", "os")} != found["platform"]:
        yield "the index and the configuration name different platforms"
    unpacked = []
    for layer in manifest["layers"]:
        yield from _check_descriptor(layer, "layer.v1.tar+gzip", files, seen)
        packed = files[_get_blob_path(layer)]
        if packed[4:8] != bytes(4) or packed[3]:
            yield "a layer's gzip header has a time or a name"
        unpacked.append(gzip.decompress(packed))
    if config["rootfs"] != {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(data).hexdigest()}" for data in unpacked]}:
        yield "diff_ids are not those of the layers, in their order"
    if len([one for one in config["history"] if not one.get("empty_layer")]) != len(unpacked):
        yield "history is not that of the layers"
    for data in unpacked:
        yield from _check_layer(data)


def _check_descriptor(said: Obj, media_type: str, files: dict[str, bytes], seen: set[str]) -> Iterator[str]:
    if said["mediaType"] != OCI + media_type:
        yield f"{said['digest']} is {said['mediaType']}, not {OCI}{media_type}"
    if len(files[_get_blob_path(said)]) != said["size"]:
        yield f"{said['digest']} is not of its size"
    seen.add(_get_blob_path(said))


def _get_blob_path(said: Obj) -> str:
    return f"blobs/{said['digest'].replace(':', '/')}"


def _check_layer(data: bytes) -> Iterator[str]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        members = archive.getmembers()
    names = [member.name for member in members]
    if names != sorted(set(names)):
        yield "a layer's entries are not in order, or come twice"
    for member in members:
        parent = posixpath.dirname(member.name)
        if parent and parent not in names:
            yield f"{member.name} comes without its folder"
        if member.name.startswith("/") or ".." in member.name.split("/"):
            yield f"{member.name} leads out of the root"
        if (member.uid, member.gid, member.uname, member.gname, member.mtime) != (0, 0, "", "", 0):
            yield f"{member.name} has an owner or a time"
        if not (member.isfile() or member.isdir() or member.issym()) or member.mode & 0o6000:
            yield f"{member.name} is special"

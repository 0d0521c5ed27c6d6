"""An image as an OCI archive: blobs by their digests, in a tar file that registries' tools and container engines read.

The same layers and settings give the same bytes, and so the same digest (by the same zlib: another one packs otherwise).
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tools.image.tree import Tree

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
_GZIP_LEVEL = 6  # 9 takes three times as long, for one per cent
Obj = dict[str, Any]


@dataclass(frozen=True)
class Layer:
    """A tree, packed. `diff_id` is the digest of what is unpacked."""

    blob: bytes
    diff_id: str
    made_by: str


@dataclass(frozen=True)
class Settings:
    """What a container of the image starts as, unless told otherwise."""

    architecture: str
    user: str
    entrypoint: tuple[str, ...]
    command: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True)
class Archive:
    """What `write` writes. `digest` is by which the image is pulled."""

    blobs: tuple[bytes, ...]
    index: bytes
    digest: str

    def write(self, path: Path) -> None:
        """As a tar file."""
        files = {"oci-layout": _json({"imageLayoutVersion": "1.0.0"}), "index.json": self.index}
        files |= {f"blobs/{digest(blob).replace(':', '/')}": blob for blob in self.blobs}
        tree = Tree()
        for name, content in files.items():
            tree.put_file(name, content)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(tree.tar())


def digest(blob: bytes) -> str:
    """As OCI writes it."""
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def layer(tree: Tree, made_by: str) -> Layer:
    data = tree.tar()
    out = io.BytesIO()
    with gzip.GzipFile(filename="", fileobj=out, mode="wb", compresslevel=_GZIP_LEVEL, mtime=0) as packed:
        packed.write(data)
    return Layer(out.getvalue(), digest(data), made_by)


def archive(layers: Sequence[Layer], settings: Settings, created: datetime, name: str, annotations: Mapping[str, str]) -> Archive:
    """One image; the lowest layer comes first. `annotations` are its labels, too. `name` is by which an archive's reader may call it."""
    config = _json(_config(layers, settings, created, annotations))
    manifest = _json(
        {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": _descriptor(CONFIG, config),
            "layers": [_descriptor(LAYER, layer.blob) for layer in layers],
            "annotations": dict(annotations),
        }
    )
    here = _descriptor(MANIFEST, manifest) | {
        "platform": {"architecture": settings.architecture, "os": "linux"},
        "annotations": {"org.opencontainers.image.ref.name": name},
    }
    index = _json({"schemaVersion": 2, "mediaType": INDEX, "manifests": [here]})
    return Archive((*(layer.blob for layer in layers), config, manifest), index, digest(manifest))


def _config(layers: Sequence[Layer], settings: Settings, created: datetime, labels: Mapping[str, str]) -> Obj:
    at = rfc3339(created)
    return {
        "created": at,
        "architecture": settings.architecture,
        "os": "linux",
        "config": {
            "User": settings.user,
            "Env": [f"{name}={value}" for name, value in settings.environment.items()],
            "Entrypoint": list(settings.entrypoint),
            "Cmd": list(settings.command),
            "WorkingDir": "/",
            "Labels": dict(labels),
        },
        "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
        "history": [{"created": at, "created_by": layer.made_by} for layer in layers],
    }


def rfc3339(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _descriptor(media_type: str, blob: bytes) -> Obj:
    return {"mediaType": media_type, "digest": digest(blob), "size": len(blob)}


def _json(value: Obj) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _as_packed(member: tarfile.TarInfo, _: str) -> tarfile.TarInfo:
    return member


def unpack(path: Path, root: Path) -> Obj:
    """Lays the image's layers into an empty folder, as an engine does; its settings (`config` of the image's configuration)."""
    with tarfile.open(path) as files:

        def blob(said: Obj) -> bytes:
            file = files.extractfile(f"blobs/{said['digest'].replace(':', '/')}")
            assert file is not None
            content = file.read()
            if (len(content), digest(content)) != (said["size"], said["digest"]):
                raise ValueError(f"{path}: {said['digest']} is not what it says")
            return content

        index = files.extractfile("index.json")
        assert index is not None
        (found,) = json.load(index)["manifests"]
        manifest = json.loads(blob(found))
        for one in manifest["layers"]:
            with tarfile.open(fileobj=io.BytesIO(gzip.decompress(blob(one)))) as packed:
                packed.extraction_filter = _as_packed  # not an argument of extractall, which Python 3.11.3 does not know yet
                packed.extractall(root)
        config: Obj = json.loads(blob(manifest["config"]))["config"]
        return config

"""What is in the image, as CycloneDX: Debian's packages and Python's, each with its version, its package URL, its licence as far as it says
one that a program can read, and the hash of the file that it came in."""

from __future__ import annotations

import json
import re
import uuid
from datetime import datetime
from typing import Any
from urllib.parse import quote

from tools.image.build import Image
from tools.image.debian import Deb
from tools.image.oci import rfc3339
from tools.image.wheels import Wheel

DISTRIBUTION = ("debian", "12")
_LONGEST_LICENCE = 80  # who writes the whole text into the field for a name
Obj = dict[str, Any]


def build(image: Image, name: str, version: str, digest: str, created: datetime) -> str:
    """The text of the file; the same for the same image."""
    system, release = DISTRIBUTION
    whole = {
        "type": "container",
        "bom-ref": f"pkg:oci/{name}@{quote(digest, safe='')}",
        "name": name,
        "version": version,
        "purl": f"pkg:oci/{name}@{quote(digest, safe='')}",
    }
    said = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, digest)}",
        "version": 1,
        "metadata": {"timestamp": rfc3339(created), "component": whole},
        "components": [
            {"type": "operating-system", "bom-ref": f"{system}-{release}", "name": system, "version": release},
            *(_of_debian(deb, image.base[f"usr/share/doc/{_documented(deb, image)}/copyright"].content or b"") for deb in image.debs),
            *map(_of_python, image.wheels),
        ],
    }
    return json.dumps(said, indent=1) + "\n"


def _documented(deb: Deb, image: Image) -> str:
    """Whose copyright file is its own: some packages of one source link to another's folder."""
    path = f"usr/share/doc/{deb.pin.name}"
    target = image.base[path].target if path in image.base else None
    return target or deb.pin.name


def _of_debian(deb: Deb, copyright_file: bytes) -> Obj:
    pin = deb.pin
    system, release = DISTRIBUTION
    purl = f"pkg:deb/{system}/{quote(pin.name)}@{quote(pin.version, safe='')}?arch={pin.architecture}&distro={system}-{release}"
    return _component(pin.name, pin.version, purl, pin.sha256, [{"license": {"name": name}} for name in _licences(copyright_file.decode())])


def _licences(text: str) -> list[str]:
    """Of a copyright file in the form that machines can read; of others none."""
    if not text.startswith("Format:"):
        return []
    return sorted({found.strip() for found in re.findall(r"^License: *(\S.*)$", text, re.MULTILINE)})


def _of_python(wheel: Wheel) -> Obj:
    purl = f"pkg:pypi/{wheel.name}@{quote(wheel.version, safe='')}"
    return _component(wheel.name, wheel.version, purl, wheel.sha256, _said(wheel))


def _said(wheel: Wheel) -> list[Obj]:
    """An SPDX expression, else the name, else what it is filed under."""
    metadata = wheel.metadata
    if expression := metadata["License-Expression"]:
        return [{"expression": str(expression)}]
    named = str(metadata["License"] or "").strip()
    if named and "\n" not in named and len(named) <= _LONGEST_LICENCE:
        return [{"license": {"name": named}}]
    filed = [str(line) for line in metadata.get_all("Classifier", [])]
    return [{"license": {"name": line.rpartition(" :: ")[2]}} for line in filed if line.startswith("License :: ")]


def _component(name: str, version: str, purl: str, sha256: str, licenses: list[Obj]) -> Obj:
    said: Obj = {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl}
    return said | {"hashes": [{"alg": "SHA-256", "content": sha256}]} | ({"licenses": licenses} if licenses else {})

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
from tools.image.tree import Entry
from tools.image.wheels import Wheel

_LONGEST_LICENCE = 80  # who writes the whole text into the field for a name
Obj = dict[str, Any]


def build(image: Image, name: str, version: str, digest: str, created: datetime) -> str:
    """The text of the file; the same for the same image."""
    system = _system(image)
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
            {"type": "operating-system", "bom-ref": "-".join(system), "name": system[0], "version": system[1]},
            *(_of_debian(deb, system, image.base[f"usr/share/doc/{_documented(deb, image)}/copyright"]) for deb in image.debs),
            *map(_of_python, image.wheels),
        ],
    }
    return json.dumps(said, indent=1) + "\n"


def _system(image: Image) -> tuple[str, str]:
    """Name and version, as it says itself: the mirrors of another machine could have been those of another one."""
    said = (image.base["usr/lib/os-release"].content or b"").decode()
    found = dict(line.split("=", 1) for line in said.splitlines() if "=" in line)
    return found["ID"], found["VERSION_ID"].strip('"')


def _documented(deb: Deb, image: Image) -> str:
    """Whose copyright file is its own: some packages of one source link to another's folder."""
    path = f"usr/share/doc/{deb.pin.name}"
    target = image.base[path].target if path in image.base else None
    return target or deb.pin.name


def _of_debian(deb: Deb, system: tuple[str, str], copyright_file: Entry) -> Obj:
    pin = deb.pin
    purl = f"pkg:deb/{system[0]}/{quote(pin.name)}@{quote(pin.version, safe='')}?arch={pin.architecture}&distro={'-'.join(system)}"
    named = _licences((copyright_file.content or b"").decode())
    return _component(pin.name, pin.version, purl, pin.sha256, [{"license": {"name": name}} for name in named])


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

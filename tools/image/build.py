"""The image: two trees, one over the other, and what they were made of."""

from __future__ import annotations

import platform
import tempfile
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from e2e.binaries import build_lock, get_cache_dir
from tools.image import base, debian, oci, project, wheels
from tools.image.debian import Deb, PackageError, Pin
from tools.image.interpreter import Interpreter
from tools.image.oci import Archive, Settings
from tools.image.tree import Tree
from tools.image.wheels import Wheel


@dataclass(frozen=True)
class Image:
    """`base` changes with the lock of Debian's packages only, `application` with everything else."""

    base: Tree
    application: Tree
    debs: tuple[Deb, ...]
    wheels: tuple[Wheel, ...]  # the last one is ours


def build(pins: tuple[Pin, ...]) -> Image:
    """Fetches what is not in the cache yet: some 60 MB the first time. Raises `PackageError` where that is not to be had, and on a
    machine of another kind: the image's own Python has to run."""
    if (machine := platform.machine()) != "x86_64":
        raise PackageError(f"the image is one for amd64, and made by its own Python: this machine is a {machine}")
    cache = get_cache_dir() / "image"
    cache.mkdir(parents=True, exist_ok=True)
    with build_lock(cache / ".lock"), tempfile.TemporaryDirectory() as scratch:
        debs = tuple(debian.fetch(pins, cache))
        root = Path(scratch) / "root"
        below = base.build(debs)
        below.write(root)
        python = Interpreter(root)
        python.compile(below, [base.LIBRARY])
        (version,) = (pin.version for pin in pins if pin.name == f"{base.PYTHON}-minimal")
        made = [*wheels.fetch(python, version, project.RUN_LOCK, cache), wheels.read(project.build_wheel(Path(scratch)))]
        above = Tree()
        wheels.unpack(made, above)
        wheels.put_scripts(made[-1], above)
        above.write(root)
        python.compile(above, [wheels.SITE])
    return Image(below, above, debs, tuple(made))


def pins() -> tuple[Pin, ...]:
    """Those of our lock."""
    return debian.read_lock(debian.LOCK.read_text())


def renew() -> str:
    """A lock of what the mirrors have now, as text."""
    cache = get_cache_dir() / "image"
    cache.mkdir(parents=True, exist_ok=True)
    with build_lock(cache / ".lock"):
        return debian.write_lock(debian.renew(list(base.PACKAGES), cache))


# --- what is made of it ---------------------------------------------------------------------------------------------

SETTINGS = Settings(
    architecture="amd64",
    user=f"{base.USER}:{base.USER}",
    # `webhook` and `reconciler` are words to say after it; the chart says the whole.
    entrypoint=("python", "-m"),
    command=("reconciler", "--help"),
    environment={
        "PATH": "/usr/local/bin:/usr/bin",
        "LANG": "C.UTF-8",
        "PYTHONMALLOC": "malloc",  # with the next: pages of 2 MB where the kernel gives them on request; 6 to 13 % less CPU of decisions
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
    },
)


def archive(image: Image, created: datetime) -> Archive:
    """As an OCI archive."""
    said = project.about()["project"]
    labels = {
        "org.opencontainers.image.title": said["name"],
        "org.opencontainers.image.description": said["description"],
        "org.opencontainers.image.version": said["version"],
        "org.opencontainers.image.licenses": said["license"],
        "org.opencontainers.image.created": oci.rfc3339(created),
    }
    if commit := project.revision():
        labels["org.opencontainers.image.revision"] = commit
    layers = [oci.layer(image.base, "Debian's packages"), oci.layer(image.application, "Python's packages and topogate")]
    return oci.archive(layers, SETTINGS, created, f"{said['name']}:{said['version']}", labels)

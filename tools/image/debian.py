"""Debian's packages: pinned in a lock file of ours by version and SHA-256, fetched by apt from the mirrors that the machine's apt
knows, read without dpkg and without running anything of them.

apt works in folders of its own here: neither root nor the state of the machine's lists matters. What was fetched is kept, by its hash.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

LOCK = Path(__file__).parent / "debian-amd64.lock"
RENEW = "python -m tools.image lock"
_AR_MAGIC = b"!<arch>\n"
_AR_HEADER_BYTES = 60


class PackageError(Exception):
    """A package is not to be had, or is not what the lock says."""


class Gone(PackageError):
    """No mirror has it at this version."""


@dataclass(frozen=True, order=True)
class Pin:
    """One line of the lock."""

    name: str
    version: str
    architecture: str
    sha256: str

    def __str__(self) -> str:
        return f"{self.name}={self.version} {self.architecture} sha256:{self.sha256}"


@dataclass(frozen=True)
class Deb:
    """A package that was read: its control file, and its archive of files (tar, perhaps compressed)."""

    pin: Pin
    control: str
    md5sums: str
    data: bytes

    @property
    def fields(self) -> dict[str, str]:
        """Of the control file, continued lines left out."""
        return dict(line.split(": ", 1) for line in self.control.splitlines() if re.match(r"[\w-]+: ", line))


# --- the lock -------------------------------------------------------------------------------------------------------


def read_lock(text: str) -> tuple[Pin, ...]:
    """Raises `PackageError` for a line that is no pin."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return tuple(map(_pin, lines))


def _pin(line: str) -> Pin:
    found = re.fullmatch(r"([a-z0-9][a-z0-9.+-]*)=(\S+) (amd64|all) sha256:([0-9a-f]{64})", line)
    if not found:
        raise PackageError(f"{line!r} is no pin; a line reads NAME=VERSION ARCHITECTURE sha256:HASH, and `{RENEW}` writes them")
    return Pin(*found.groups())


def write_lock(pins: Iterable[Pin]) -> str:
    """What `read_lock` reads."""
    head = f"# Debian's packages of the image, for amd64; written by `{RENEW}`, from Debian 12\n"
    return head + "".join(f"{pin}\n" for pin in sorted(pins))


# --- apt ------------------------------------------------------------------------------------------------------------


class Apt:
    """The machine's apt with its sources, in a folder of its own. `sources`: a file in place of the machine's, for tests."""

    def __init__(self, folder: Path, sources: Path | None = None) -> None:
        for name in ("lists/partial", "archives/partial"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / "status").touch()
        said = {
            "Dir::State": folder,
            "Dir::State::Lists": folder / "lists",
            "Dir::State::status": folder / "status",
            "Dir::Cache": folder,
            "APT::Sandbox::User": "root",  # the folder is its user's: apt's own could not write to it
            "APT::Update::Error-Mode": "any",
            "Acquire::Languages": "none",
        }
        if sources is not None:
            said |= {"Dir::Etc::sourcelist": sources, "Dir::Etc::sourceparts": "/dev/null"}
        self._options = [word for name, value in said.items() for word in ("-o", f"{name}={value}")]

    def update(self) -> None:
        """Learns what the mirrors have."""
        self._run("apt-get", "update", "--quiet")

    def candidates(self, names: Sequence[str]) -> tuple[Pin, ...]:
        """The newest of each. Raises `PackageError` for one that no mirror has."""
        found = {}
        for stanza in self._run("apt-cache", "show", "--no-all-versions", *names).split("\n\n"):
            said = dict(line.split(": ", 1) for line in stanza.splitlines() if re.match(r"[\w-]+: ", line))
            if said:
                found[said["Package"]] = Pin(said["Package"], said["Version"], said["Architecture"], said["SHA256"])
        if missing := sorted(set(names) - set(found)):
            raise PackageError(f"no mirror of this machine's apt has {', '.join(missing)}; the image is made of Debian 12 for amd64")
        return tuple(sorted(found.values()))

    def download(self, pins: Sequence[Pin], folder: Path) -> None:
        """Puts the packages into the folder. Raises `Gone` where the mirrors have other versions by now."""
        try:
            self._run("apt-get", "download", "--quiet", *(f"{pin.name}={pin.version}" for pin in pins), cwd=folder)
        except PackageError as error:
            gone = [pin for pin in pins if _missed(pin) & set(str(error).splitlines())]
            if not gone:
                raise
            named = ", ".join(f"{pin.name}={pin.version}" for pin in gone)
            raise Gone(
                f"{LOCK.name}: no mirror of this machine's apt has {named} (any more); `{RENEW}` writes the lock anew with what they have"
            ) from None

    def _run(self, program: str, *words: str, cwd: Path | None = None) -> str:
        if shutil.which(program) is None:
            raise PackageError(f"{program} is not here: Debian's packages are fetched by the apt of a Debian or Ubuntu machine")
        command = [program, *self._options, *words]
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
        if done.returncode:
            raise PackageError(f"{program} {words[0]} failed with code {done.returncode}:\n{done.stderr.strip()}")
        return done.stdout


def _missed(pin: Pin) -> set[str]:
    """How apt says that it has no such version, or no such package."""
    return {f"E: Version '{pin.version}' for '{pin.name}' was not found", f"E: Unable to locate package {pin.name}"}


def fetch(pins: Sequence[Pin], cache: Path) -> Iterator[Deb]:
    """The packages of a lock, from the cache or from the mirrors. The caller holds the cache's lock."""
    kept = cache / "debs"
    kept.mkdir(parents=True, exist_ok=True)
    missing = [pin for pin in pins if not (kept / pin.sha256).exists()]
    if missing:
        _download(Apt(cache / "apt"), missing, kept)
    for pin in pins:
        yield read_deb(pin, (kept / pin.sha256).read_bytes())


def _download(apt: Apt, pins: Sequence[Pin], kept: Path) -> None:
    apt.update()
    with tempfile.TemporaryDirectory(dir=kept) as scratch:
        apt.download(pins, Path(scratch))
        by_hash = {hashlib.sha256(path.read_bytes()).hexdigest(): path for path in Path(scratch).iterdir()}
        for pin in pins:
            if pin.sha256 not in by_hash:
                raise PackageError(f"{pin.name}={pin.version} as fetched is not that of the lock: none of the files is sha256:{pin.sha256}")
            by_hash[pin.sha256].rename(kept / pin.sha256)


def renew(names: Sequence[str], cache: Path) -> tuple[Pin, ...]:
    """Pins of what the mirrors have now."""
    apt = Apt(cache / "apt")
    apt.update()
    return apt.candidates(names)


# --- the format -----------------------------------------------------------------------------------------------------


def read_deb(pin: Pin, content: bytes) -> Deb:
    """Raises `PackageError` if it is not the pinned one."""
    found = hashlib.sha256(content).hexdigest()
    if found != pin.sha256:
        raise PackageError(f"{pin.name}={pin.version} is sha256:{found}, and the lock says sha256:{pin.sha256}")
    parts = dict(_ar(content))
    with tarfile.open(fileobj=io.BytesIO(_part(parts, "control.tar"))) as archive:
        files = {member.name.removeprefix("./"): archive.extractfile(member) for member in archive if member.isfile()}
        said = {name: file.read().decode() for name, file in files.items() if file is not None}
    return Deb(pin, said["control"], said.get("md5sums", ""), _part(parts, "data.tar"))


def _ar(content: bytes) -> Iterator[tuple[str, bytes]]:
    """The members of an ar archive, by name."""
    if not content.startswith(_AR_MAGIC):
        raise PackageError("this is no Debian package: it is no ar archive")
    at = len(_AR_MAGIC)
    while at + _AR_HEADER_BYTES <= len(content):
        header = content[at : at + _AR_HEADER_BYTES]
        size = int(header[48:58])
        at += _AR_HEADER_BYTES
        yield header[:16].decode().rstrip(" /"), content[at : at + size]
        at += size + size % 2


def _part(parts: dict[str, bytes], name: str) -> bytes:
    for suffix in (".xz", ".gz", ""):
        if name + suffix in parts:
            return parts[name + suffix]
    raise PackageError(f"this Debian package has no {name}, {name}.gz or {name}.xz, but {', '.join(parts)}")

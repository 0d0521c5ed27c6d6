"""Debian's packages: the lock's lines, the format, what becomes of a package's files, and what apt says of one that is gone."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import shutil
import tarfile
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tools.image import base, debian
from tools.image.debian import Apt, Gone, PackageError, Pin, read_deb, read_lock, write_lock

CONTROL = "Package: small\nVersion: 1:2~3+4\nArchitecture: amd64\nDescription: one\n that is small\n"


def build_tar(files: Mapping[str, str]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(f"./{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content.encode()))
    return out.getvalue()


def build_deb(files: Mapping[str, str], pack: Callable[[bytes], bytes] = lzma.compress, suffix: str = ".xz") -> tuple[Pin, bytes]:
    """A package of odd length, as dpkg-deb would lay it out."""
    parts = {
        "debian-binary": b"2.0\n",
        f"control.tar{suffix}": pack(build_tar({"control": CONTROL, "md5sums": "".join(f"0  {name}\n" for name in files)})) + b"\0",
        f"data.tar{suffix}": pack(build_tar(files)),
    }
    content = b"!<arch>\n"
    for name, data in parts.items():
        content += f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode() + data + b"\n" * (len(data) % 2)
    return Pin("small", "1:2~3+4", "amd64", hashlib.sha256(content).hexdigest()), content


@pytest.mark.parametrize(("pack", "suffix"), [(gzip.compress, ".gz"), (bytes, "")])
def test_a_package_is_read_however_it_is_packed(pack, suffix):
    pin, content = build_deb({"etc/name": "x"}, pack, suffix)
    found = read_deb(pin, content)
    assert (found.control, found.md5sums) == (CONTROL, "0  etc/name\n")
    assert found.fields == {"Package": "small", "Version": "1:2~3+4", "Architecture": "amd64", "Description": "one"}
    assert "etc/name" in base.build([found])


def test_a_package_other_than_the_pinned_one_is_refused():
    pin, content = build_deb({})
    with pytest.raises(PackageError, match=r"small=1:2~3\+4 is sha256:.*, and the lock says sha256:"):
        read_deb(pin, content + b"\n")


def test_debian_package_with_unknown_compression_is_refused():
    pin, content = build_deb({}, suffix=".zst")
    with pytest.raises(PackageError, match=r"has no control\.tar.* but debian-binary, control\.tar\.zst"):
        read_deb(pin, content)


def test_debian_package_files_keep_their_paths_without_documentation():
    kept = ["bin/tool", "usr/share/doc/small/copyright", "usr/share/common-licenses/X", "lib/x86_64-linux-gnu/libx.so.1"]
    pin, content = build_deb(
        dict.fromkeys([*kept, "usr/share/doc/small/changelog.gz", "usr/share/man/man1/tool.1", "usr/local/bin/y"], "x")
    )
    tree = base.build([read_deb(pin, content)])
    files = {path for path, _ in tree.files()}
    assert {"usr/bin/tool", *kept[1:3], "usr/lib/x86_64-linux-gnu/libx.so.1"} <= files
    assert not {path for path in files if "changelog" in path or "man" in path or "local" in path}
    assert tree["bin"].target == "usr/bin"
    assert tree["var/lib/dpkg/status.d/small"].content == CONTROL.encode()
    assert tree["var/lib/dpkg/status.d/small.md5sums"].content == "".join(f"0  {name}\n" for name in kept).encode()


def test_a_lock_is_read_as_it_was_written():
    pins = read_lock(debian.LOCK.read_text())
    assert read_lock(write_lock(reversed(pins))) == pins
    assert {pin.name for pin in pins} == set(base.PACKAGES)


@pytest.mark.parametrize("line", ["libc6", "libc6=1 amd64", "libc6=1 arm64 sha256:" + "0" * 64, "libc6=1 amd64 sha256:0"])
def test_lock_line_that_is_no_pin_is_refused_with_the_format(line):
    with pytest.raises(PackageError, match=rf"'{line}' is no pin; a line reads NAME=VERSION ARCHITECTURE sha256:HASH"):
        read_lock(line)


@pytest.mark.skipif(shutil.which("apt-get") is None, reason="no apt on this machine")
def test_package_version_without_a_mirror_is_reported_with_the_command_that_renews_the_lock(tmp_path: Path):
    """A source of our own, on disk, so that nothing is asked of a mirror: it has `small` at another version, and not `other`."""
    pin, content = build_deb({"etc/name": "x"})
    source = tmp_path / "source"
    source.mkdir()
    (source / "small.deb").write_bytes(content)
    said = f"{CONTROL}Filename: ./small.deb\nSize: {len(content)}\nSHA256: {pin.sha256}\n"
    (source / "Packages").write_text(said.replace("\n that is small", ""))
    sources = tmp_path / "sources.list"
    sources.write_text(f"deb [trusted=yes] file:{source} ./\n")
    apt = Apt(tmp_path / "apt", sources)
    apt.update()
    assert apt.candidates(["small"]) == (pin,)
    into = tmp_path / "into"
    into.mkdir()
    apt.download([pin], into)
    assert [path.read_bytes() for path in into.iterdir()] == [content]
    gone = [Pin("small", "1:2~2", "amd64", "0" * 64), pin, Pin("other", "1", "all", "0" * 64)]
    with pytest.raises(Gone, match=r"has small=1:2~2, other=1 \(any more\); `python -m tools.image lock` writes the lock anew"):
        apt.download(gone, into)
    with pytest.raises(PackageError, match="no mirror of this machine's apt has other; the image is made of Debian 12"):
        apt.candidates(["small", "other"])


def test_debian_download_without_apt_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PackageError, match="apt-get is not here"):
        Apt(tmp_path).update()

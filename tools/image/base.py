"""The root file system of the base layer: Debian's packages without what nobody needs, and what their scripts would have done.

There is no shell, no dpkg and no apt in it. Scanners find the packages where those look that have no dpkg (`var/lib/dpkg/status.d`).
"""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterable

from tools.image.debian import Deb
from tools.image.tree import FILE_MODE, PROGRAM_MODE, Tree

PACKAGES = {  # what for; everything else that these depend on is only needed by what is left out
    "base-files": "the folders, and the name of the system",
    "ca-certificates": "whom TLS trusts, an OTLP endpoint's for one",
    "gcc-12-base": "the copyright of libgcc-s1 and libstdc++6",
    "libbz2-1.0": "Python's bz2",
    "libc6": "everything",
    "libexpat1": "Python's pyexpat",
    "libffi8": "Python's ctypes",
    "libgcc-s1": "libstdc++6; ending threads",
    "liblzma5": "Python's lzma",
    "libpython3.11-minimal": "Python's library",
    "libpython3.11-stdlib": "Python's library",
    "libssl3": "Python's ssl and hashlib",
    "libstdc++6": "numpy, grpcio and cel-expr-python",
    "libuuid1": "Python's uuid",
    "media-types": "Python's mimetypes",
    "python3.11-minimal": "Python",
    "zlib1g": "Python's zlib",
}
PYTHON = "python3.11"
LIBRARY = f"usr/lib/{PYTHON}"
LIBRARIES = "usr/lib/x86_64-linux-gnu"
LOADER = f"{LIBRARIES}/ld-linux-x86-64.so.2"
USER, USER_NAME = 65532, "nonroot"
CA_BUNDLE = "etc/ssl/certs/ca-certificates.crt"
_MERGED = ("bin", "sbin", "lib", "lib64")  # folders of the root that are links into /usr in Debian 12

_LEFT_OUT = re.compile(
    "|".join(
        (
            r"usr/share/doc/[^/]+/(?!copyright$).*",  # what licences demand stays
            r"usr/share/(man|info|lintian|gdb|gcc|binfmts|bug|locale|menu|pixmaps|applications|dict|misc)(/.*)?",
            r"usr/share/base-files(/.*)?",  # templates for its script
            r"usr/(games|include|src|sbin/.*)",
            r"(usr/lib/binfmt\.d|etc/(update-motd\.d|profile\.d|skel|terminfo|opt|binfmt\.d|ca-certificates))(/.*)?",
            r"etc/(issue|issue\.net|(default|ld\.so\.conf\.d)(/.*)?)",
            r"(boot|media|mnt|opt|srv|usr/local|var/(backups|local|mail|opt|spool|lock|run))(/.*)?",
            rf"{LIBRARIES}/(gconv|engines-3)(/.*)?",  # iconv's tables: Python has codecs of its own
            rf"{LIBRARY}/(test|unittest/test|lib2to3|turtledemo|pydoc_data|curses|sqlite3|dbm|tkinter)(/.*)?",
            rf"{LIBRARY}/(turtle|crypt)\.py",
            rf"{LIBRARY}/lib-dynload/(_test|_ctypes_test|_xx|xx|_curses|_dbm|_sqlite3|_crypt|nis|readline|ossaudiodev).*",
            rf"{LIBRARY}/sitecustomize\.py|etc/{re.escape(PYTHON)}(/.*)?",  # a hook for reports of crashes to Ubuntu
        )
    )
)


def build(debs: Iterable[Deb]) -> Tree:
    """The tree of the base layer, without bytecode."""
    tree = Tree()
    for name in _MERGED:
        tree.put_link(name, f"usr/{name}")
        tree.put_folder(f"usr/{name}")
    for deb in debs:
        _unpack(deb, tree)
        _register(deb, tree)
    _configure(tree)
    return tree


def _unpack(deb: Deb, tree: Tree) -> None:
    with tarfile.open(fileobj=io.BytesIO(deb.data)) as archive:
        for member in archive:
            path = _place(member.name)
            if not path or path in _MERGED or _LEFT_OUT.fullmatch(path):
                continue
            if member.issym():
                tree.put_link(path, member.linkname)
            elif member.isdir():
                tree.put_folder(path, member.mode)
            else:  # a hard link's content is that of what it links to
                file = archive.extractfile(member)
                assert file is not None, f"{deb.pin.name}: /{path} is neither file, folder nor link"
                tree.put_file(path, file.read(), PROGRAM_MODE if member.mode & 0o100 else FILE_MODE)


def _place(name: str) -> str:
    """Where it is, seen from the root, once /bin and its like are links into /usr."""
    path = name.removeprefix("./").rstrip("/")
    return f"usr/{path}" if path.split("/")[0] in _MERGED and "/" in path else path


def _register(deb: Deb, tree: Tree) -> None:
    """As images without dpkg do it: a file for each package, and one with the hashes of its files."""
    tree.put_file(f"var/lib/dpkg/status.d/{deb.pin.name}", deb.control)
    kept = [line for line in deb.md5sums.splitlines(keepends=True) if _place(line.split(maxsplit=1)[-1].strip()) in tree]
    tree.put_file(f"var/lib/dpkg/status.d/{deb.pin.name}.md5sums", "".join(kept))


def _configure(tree: Tree) -> None:
    """What scripts of packages, and who installs a system, would have done."""
    tree.put_file("etc/passwd", f"root:x:0:0:root:/root:/usr/sbin/nologin\n{USER_NAME}:x:{USER}:{USER}:{USER_NAME}:/:/usr/sbin/nologin\n")
    tree.put_file("etc/group", f"root:x:0:\n{USER_NAME}:x:{USER}:\n")
    # Without it a name is asked of DNS first, `localhost` too.
    tree.put_file("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n")
    for name in ("python", "python3"):
        tree.put_link(f"usr/bin/{name}", PYTHON)
    tree.put_link("var/run", "/run")
    trusted = [
        content.rstrip() for path, content in tree.files() if path.startswith("usr/share/ca-certificates/") and path.endswith(".crt")
    ]
    tree.put_file(CA_BUNDLE, b"\n".join([*trusted, b""]))
    tree.put_link("usr/lib/ssl/cert.pem", f"/{CA_BUNDLE}")  # where OpenSSL looks by itself

"""`python -m tools.image` makes the image; `--help` lists the other words."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from e2e.progress import CommandFailed
from tools.image import build, debian, project, sbom
from tools.image.debian import PackageError
from tools.image.tree import Tree
from tools.image.wheels import WheelError

OUT = Path("out")
MB = 1_000_000


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.image", description="Make the container image, without a container engine.")
    parser.set_defaults(do=_image)
    parser.add_argument("--out", type=Path, default=OUT, metavar="FOLDER", help="where to (default: out)")
    words = parser.add_subparsers(title="words")
    words.add_parser("image", help="an OCI archive and its SBOM (the default)").set_defaults(do=_image)
    words.add_parser("wheel", help="only our wheel").set_defaults(do=_wheel)
    words.add_parser("lock", help=f"write {debian.LOCK.name} anew, of what the mirrors have").set_defaults(do=_lock)
    root = words.add_parser("root", help="only the root file system, into a folder; for the Dockerfile")
    root.add_argument("folder", type=Path)
    root.set_defaults(do=_root)
    asked = parser.parse_args(arguments)
    try:
        asked.do(asked)
    except (PackageError, WheelError, CommandFailed) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _image(asked: argparse.Namespace) -> None:
    created = datetime.fromtimestamp(project.epoch(), UTC)
    made = build.build(build.pins())
    packed = build.archive(made, created)
    said = project.about()["project"]
    archive, bill = (asked.out / f"{said['name']}-{said['version']}{suffix}" for suffix in (".oci.tar", ".sbom.json"))
    packed.write(archive)
    bill.write_text(sbom.build(made, said["name"], said["version"], packed.digest, created))
    sizes = [f"{name} {_size(tree) / MB:.0f} MB" for name, tree in (("base", made.base), ("application", made.application))]
    print(f"{archive}: {archive.stat().st_size / MB:.0f} MB; unpacked {', '.join(sizes)}")
    print(f"{bill}: {len(made.debs)} packages of Debian, {len(made.wheels)} of Python")
    print(packed.digest)


def _size(tree: Tree) -> int:
    return sum(len(content) for _, content in tree.files())


def _wheel(asked: argparse.Namespace) -> None:
    print(project.build_wheel(asked.out))


def _lock(_: argparse.Namespace) -> None:
    debian.LOCK.write_text(build.renew())


def _root(asked: argparse.Namespace) -> None:
    asked.folder.mkdir(parents=True, exist_ok=True)
    made = build.build(build.pins())
    for tree in (made.base, made.application):
        tree.write(asked.folder)


if __name__ == "__main__":
    sys.exit(main())

"""The image's own Python, run before there is an image, out of a folder with its root file system.

Packages are chosen and bytecode is written by the very interpreter that will run them, whatever Python builds the image.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tools.image.base import LIBRARIES, LOADER, PYTHON
from tools.image.tree import Tree


class Interpreter:
    """`root` is what a base tree was written to."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def command(self, *words: str | Path) -> list[str | Path]:
        """Its loader is named, since that of the machine may be an older one. `-S`: nothing of the machine's is imported."""
        root = self._root
        return [root / LOADER, "--library-path", root / LIBRARIES, root / "usr" / "bin" / PYTHON, "-S", *words]

    def compile(self, tree: Tree, folders: Iterable[str]) -> None:
        """Adds the bytecode of the tree's modules in some folders; the tree is in the root already.

        It is taken unchecked: the root of a pod is read-only, and Python could write none itself at each start. One process, one hash
        seed: the same modules give the same bytes. `-f`, and nothing written by the import of what compiles: that would name this folder.
        """
        words = ["-m", "compileall", "-q", "-f", "-j", "1", "--invalidation-mode", "unchecked-hash", "-s", str(self._root), "-p", "/"]
        command = self.command(*words, *(self._root / folder for folder in folders))
        env = {"PATH": os.environ["PATH"], "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
        if done.returncode:
            raise RuntimeError(f"modules of the image do not compile:\n{done.stdout}{done.stderr}")
        for path, _ in list(tree.files()):
            if path.endswith(".py"):
                self._collect(tree, path)

    def _collect(self, tree: Tree, path: str) -> None:
        folder, _, name = path.rpartition("/")
        for made in (self._root / folder / "__pycache__").glob(f"{name.removesuffix('.py')}.cpython-*.pyc"):
            tree.put_file(f"{folder}/__pycache__/{made.name}", made.read_bytes())

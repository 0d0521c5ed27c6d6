"""`python -m tools.measure`: how large the code is, and how hard to find one's way in.

Lines of code are lines without blanks, comments and docstrings. Printed are: lines by package, folders with many files, modules of one base
name and public classes of one name in production code, and how many lines the check of words finds.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict
from pathlib import Path, PurePosixPath

from tools.words import check_tree

ROOT = Path(__file__).parents[1]
PRODUCTION = ("core", "webhook", "reconciler", "certs", "cli")
OTHERS = ("sim", "e2e", "tools", "tests")
MOST_FILES, MOST_LINES = 24, 29_000
DATA = ("tests/kueue_manifests/", "charts/topogate/files/policies")  # not read file by file
# A controller has the name of its planner, and the two processes have settings.
MIRRORED = (("core/plan/", "reconciler/"), ("reconciler/", "webhook/"))


def list_files() -> list[str]:
    """Paths of all files of the repository, relative to it."""
    return subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()


def count_code_lines(source: str) -> int:
    """Lines on which a token stands that is neither a comment nor a docstring."""
    tree = ast.parse(source)
    docstrings: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef | ast.stmt):
            body = getattr(node, "body", None) or []
            for number, each in enumerate(body if isinstance(body, list) else []):
                is_text = isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant) and isinstance(each.value.value, str)
                if is_text and (number == 0 or isinstance(node, ast.Module | ast.ClassDef)):
                    docstrings.update(range(each.lineno, (each.end_lineno or each.lineno) + 1))
    lines: set[int] = set()
    skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in skipped:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def find_large_folders(files: list[str]) -> dict[str, int]:
    """Folders with more than `MOST_FILES` files of their own, with their number, largest first."""
    folders = Counter(str(PurePosixPath(path).parent) for path in files if not path.startswith(DATA))
    return {folder: number for folder, number in folders.most_common() if number > MOST_FILES}


def find_same_modules(files: list[str]) -> list[list[str]]:
    """Modules of production code with one base name, but for those of folders that mirror each other."""
    by_name: defaultdict[str, list[str]] = defaultdict(list)
    for path in files:
        if path.startswith(PRODUCTION) and path.endswith(".py") and not path.endswith(("__init__.py", "__main__.py")):
            by_name[PurePosixPath(path).name].append(path)
    return [found for found in by_name.values() if len(found) > 1 and not _are_mirrored(found)]


def _are_mirrored(paths: list[str]) -> bool:
    return any(len(paths) == len(pair) and all(map(str.startswith, sorted(paths), pair)) for pair in MIRRORED)


def find_same_classes(files: list[str]) -> dict[str, list[str]]:
    """Public classes of production code with one name."""
    by_name: defaultdict[str, list[str]] = defaultdict(list)
    for path in files:
        if path.startswith(PRODUCTION) and path.endswith(".py"):
            for node in ast.parse((ROOT / path).read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    by_name[node.name].append(path)
    return {name: paths for name, paths in by_name.items() if len(paths) > 1 and not _are_mirrored(paths)}


def main() -> int:
    """Prints the figures. Returns 0."""
    files = list_files()
    code: Counter[str] = Counter()
    for path in files:
        package = path.partition("/")[0]
        if path.endswith(".py") and package in (*PRODUCTION, *OTHERS):
            code[package] += count_code_lines((ROOT / path).read_text())
    print("lines of code:", ", ".join(f"{package} {code[package]:,}" for package in (*PRODUCTION, *OTHERS)))
    print(f"production: {sum(code[package] for package in PRODUCTION):,} of at most {MOST_LINES:,}")
    large = ", ".join(f"{folder} {number}" for folder, number in find_large_folders(files).items())
    print(f"folders with more than {MOST_FILES} files:", large or "none")
    same_modules = find_same_modules(files)
    print("modules of one base name:", "; ".join(" ".join(each) for each in same_modules) or "none")
    same_classes = find_same_classes(files)
    print("public classes of one name:", "; ".join(f"{name}: {' '.join(paths)}" for name, paths in sorted(same_classes.items())) or "none")
    print("lines that are not plain English:", len(check_tree(ROOT)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

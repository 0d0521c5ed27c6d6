"""Mutants of source files by cosmic-ray's operators, and which of them are tried."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

# Of None, enums and small numbers `is` says what `==` does.
_SAME = tuple(f"core/ReplaceComparisonOperator_{pair}" for pair in ("Is_Eq", "Eq_Is", "IsNot_NotEq", "NotEq_IsNot"))


@dataclass(frozen=True)
class Mutant:
    """One change of one file: what the operator does at the place that it counts as `occurrence`."""

    path: str
    line: int
    columns: tuple[int, int]
    operator: str
    occurrence: int

    @property
    def place(self) -> tuple[str, int, tuple[int, int]]:
        """What of the source it is about."""
        return self.path, self.line, self.columns

    def __str__(self) -> str:
        return f"{self.path}:{self.line}:{self.columns[0] + 1} {self.operator}"


def find_mutants(path: str, source: str) -> Iterator[Mutant]:
    """Every mutant of a file; operators that need to be told what to do, or that do nothing, are left out."""
    nodes = list(ast_nodes(get_ast(source)))
    for name in operator_names():
        operator = get_operator(name)
        if operator.arguments() or name in _SAME:
            continue
        places = (place for node in nodes for place in operator().mutation_positions(node))
        for occurrence, ((line, start), (_, end)) in enumerate(places):
            yield Mutant(path, line, (start, end), name.removeprefix("core/"), occurrence)


def mutate(mutant: Mutant, source: str) -> str | None:
    """The source as the mutant has it; None where it is no program, or the same one but for docstrings and annotations."""
    changed: str | None = mutate_code(source, get_operator(f"core/{mutant.operator}")(), mutant.occurrence)
    if changed is None:
        return None
    try:
        return changed if _meaning(changed) != _meaning(source) else None
    except SyntaxError:
        return None


def sample(sources: Mapping[str, str], seed: int) -> Iterator[Mutant]:
    """Mutants in random order, one for each place: operators that know many replacements would count many times."""
    everything = [mutant for path in sorted(sources) for mutant in find_mutants(path, sources[path])]
    Random(seed).shuffle(everything)
    seen = set()
    for mutant in everything:
        if mutant.place not in seen and mutate(mutant, sources[mutant.path]) is not None:
            seen.add(mutant.place)
            yield mutant


def changed_line(mutant: Mutant, source: str) -> tuple[str, str]:
    """The first line that differs, before and after."""
    before, after = source.splitlines(), (mutate(mutant, source) or "").splitlines()
    return next(((a.strip(), b.strip()) for a, b in zip(before, after, strict=False) if a != b), ("", ""))


def read_sources(root: Path, folders: Iterable[str]) -> dict[str, str]:
    """The Python files of some folders, by their path from the root."""
    return {path.relative_to(root).as_posix(): path.read_text() for folder in folders for path in sorted((root / folder).rglob("*.py"))}


def _meaning(source: str) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)  # a mutant may well compare a literal by `is`
        tree = ast.parse(source)
        compile(source, "mutant", "exec")
    return ast.dump(_Bare().visit(tree))


class _Bare(ast.NodeTransformer):
    """Without annotations, which nothing reads at run time, without zip's own check, which decides nothing while it holds, and
    without `slots`, which saves memory."""

    def visit_Call(self, node: ast.Call) -> ast.Call:
        node.keywords = [keyword for keyword in node.keywords if keyword.arg not in ("strict", "slots")]
        self.generic_visit(node)
        return node

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.annotation = None
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        node.returns = None
        self.generic_visit(node)
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AnnAssign:
        node.annotation = ast.Constant(None)
        self.generic_visit(node)
        return node

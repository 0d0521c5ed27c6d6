"""`python -m tools.words`: checks that the text is plain English with standard words (docs/development/style.md).

Every line of production code, documents and tests is compared with a few patterns; names of functions begin with a verb of the
glossary (`tools/verbs.txt`), names of tests say subject, condition and result.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCTION = ("core/", "webhook/", "reconciler/", "certs/", "cli/")
NAMED_ONLY = ("tests/", "e2e/", "tools/")  # only names of functions and tests are judged there, and citations
OLD = ("CHANGELOG.md", "changelog.d/", "docs/upgrading.md")  # what was released is not written anew

VERBS = frozenset(Path(__file__).with_name("verbs.txt").read_text().split())
OF_LIBRARIES = frozenset({"_receive_metrics", "aclose", "error", "force_flush", "handleError", "monotonic", "now", "shutdown"})
"""Names that base classes of libraries, and Python's clocks, give."""
TEST_WORDS = frozenset({"what", "who", "whose", "whoever", "nor", "nobody", "somebody"})


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern that a line must not match, and what to write instead."""

    pattern: re.Pattern[str]
    instead: str


RULES = (
    Rule(re.compile(r"\b(who|whose|whom|whoever|nobody|somebody|anybody|everybody)\b", re.I), "name the thing: a workload that, no pod"),
    Rule(
        re.compile(r"(?<![A-Za-z])(tells?|(un)?told|telling|hears?|(un)?heard|stor(y|ies)|news)(?![A-Za-z])", re.I),  # in names, too
        "report, record, emit, message, event, condition, trace",
    ),
    Rule(re.compile(r"\w\(s\)"), "a right plural: 1 pod, 2 pods"),
    Rule(re.compile(r"\bthe peer('s)?\b", re.I), "Kueue"),
    Rule(re.compile(r"\b(speaks? of|goes by|go by|takes? care|in vain|by and by)\b", re.I), "matches, uses, ... without effect"),
)

CITATION = Rule(
    re.compile(r"(?i:\b(?:defects?|attacks?) [A-Z]?\d+\b)|\bBEHAVIOUR(?:\.md|,)"), "what happened: no list of them is in the repository"
)

ALLOWED = re.compile(
    r"(?:out of \S+ \w+|fit any of \S+ \w+|unhealthy node|missing \w+|inactive \w+|Admission check)\(s\)|\(KEP-\d+, Story \d+\)"
    r"|test_stories\.py"
)  # sentences of Kueue's, parts of KEPs, and a file's name


@dataclass(frozen=True, slots=True)
class Violation:
    """A line that breaks a rule."""

    path: str
    line: int
    text: str
    found: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.found!r}; write {self.instead}"


def check_text(path: str, text: str) -> Iterator[Violation]:
    """All violations of one file."""
    is_production = path.startswith(PRODUCTION)
    for number, line in enumerate(text.splitlines() if not path.startswith(OLD) else (), 1):
        for match in CITATION.pattern.finditer(line):
            yield Violation(path, number, line, match.group(), CITATION.instead)
    if (is_production or path.endswith(".md")) and not path.startswith(OLD):
        for number, line in enumerate(text.splitlines(), 1):
            for rule in RULES:
                for match in rule.pattern.finditer(ALLOWED.sub("", line)):
                    yield Violation(path, number, line, match.group(), rule.instead)
    if path.endswith(".py") and (is_production or path.startswith(NAMED_ONLY)):
        yield from _check_names(path, text)


def _check_names(path: str, text: str) -> Iterator[Violation]:
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("__"):
            continue
        words = node.name.strip("_").split("_")
        if words[0] == "test":
            for word in sorted(TEST_WORDS.intersection(words)):
                yield Violation(path, node.lineno, node.name, word, "test_<subject>_<condition>_<result>")
        elif path.startswith(PRODUCTION) and words[0] not in VERBS and node.name not in OF_LIBRARIES and not _is_noun(node):
            yield Violation(path, node.lineno, node.name, node.name, "a verb of tools/verbs.txt first (a predicate: is, has, can, should)")


def _is_noun(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a function stands for a value: a property, or one that other code (a protocol, a validator) names."""
    return any("property" in ast.unparse(decorator) for decorator in node.decorator_list)


def check_tree(root: Path) -> list[Violation]:
    """All violations of the files that git knows, or would add, in the order of their names."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py", "*.md"],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = sorted({path for path in listed.stdout.splitlines() if (root / path).is_file()})
    return [violation for path in paths for violation in check_text(path, (root / path).read_text())]


def main() -> int:
    """0: no violation; 1: there are some, and each is printed."""
    found = check_tree(ROOT)
    for violation in found:
        print(violation)
    if found:
        print(f"{len(found)} lines are not plain English: see docs/development/style.md", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

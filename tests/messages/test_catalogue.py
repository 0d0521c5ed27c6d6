"""The catalogue has each sentence once, and no other test repeats one: a better sentence is one change."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
CATALOGUE = Path(__file__).parent
OWN_TEXTS = {"bench", "chart", "cli", "docs", "messages", "replay", "traces"}  # texts of pages, traces, vectors and the command's output
PLAIN_WORD = re.compile(r"[(\"'`]*[A-Za-z']+[)\"'`.,:;]*")  # no name with a dot, a dash or a number
MOST_WORDS = 5  # of a sentence that another test may assert on in a row: a name or an amount with its unit


def list_sentences() -> list[str]:
    """The last element of each case of a table."""
    return [
        case.elts[-1].value
        for path in CATALOGUE.glob("test_*.py")
        for table in ast.walk(ast.parse(path.read_text()))
        if isinstance(table, ast.Dict)
        for case in table.values
        if isinstance(case, ast.Tuple) and isinstance(case.elts[-1], ast.Constant) and isinstance(case.elts[-1].value, str)
    ]


def list_asserted(path: Path) -> Iterator[tuple[int, str]]:
    """Lines, and texts that an assert of a file has literally and that are longer than a name or an amount."""
    for node in ast.walk(ast.parse(path.read_text())):
        for part in ast.walk(node.test) if isinstance(node, ast.Assert) else ():
            text = part.value.strip() if isinstance(part, ast.Constant) and isinstance(part.value, str) else ""
            if sum(bool(PLAIN_WORD.fullmatch(word)) for word in text.split()) > MOST_WORDS:
                yield getattr(part, "lineno", 0), text


def test_sentence_of_the_catalogue_stands_there_once():
    counts = Counter(list_sentences())
    assert len(counts) > 200
    assert [sentence for sentence, count in counts.items() if count > 1] == []


def test_sentence_of_the_catalogue_is_asserted_by_no_other_test():
    everything = "\n".join(list_sentences())
    repeated = [
        f"{path.relative_to(TESTS)}:{line}: {text}"
        for path in sorted(TESTS.rglob("*.py"))
        if path.relative_to(TESTS).parts[0] not in OWN_TEXTS
        for line, text in list_asserted(path)
        if text in everything
    ]
    assert repeated == []

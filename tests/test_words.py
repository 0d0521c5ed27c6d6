"""The check of plain English: it finds what it should, and the tree has none of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import words

ROOT = Path(__file__).parents[1]
DEFECT, ATTACK = "defects" + " C1", "Attack" + " 28"  # which this file may not have either


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        ("core/a.py", "# pods that nobody made\n", ["nobody"]),
        ("core/a.py", '"""Who waits, and the story."""\n', ["Who", "story"]),
        ("docs/a.md", "2 pod(s) of the peer\n", ["d(s)", "the peer"]),
        ("docs/a.md", "fit only 8 out of 16 pod(s), unhealthy node(s): n, 2 node(s)\n", ["e(s)"]),
        ("core/a.py", "def telling():\n    pass\n", ["telling", "telling"]),
        ("core/a.py", "self._is_telling = group.unheard = is_news\n", ["telling", "unheard", "news"]),
        ("core/a.py", "def find_pods():\n    pass\n", []),
        ("core/a.py", "# KEP-2724 (KEP-2724, Story 4)\n", []),
        ("core/a.py", "async def aclose():\n    pass\n", []),
        ("core/a.py", "@property\ndef pods():\n    pass\n", []),
        ("tests/a.py", "def test_who_waits_nor_runs(): ...\n", ["nor", "who"]),
        ("tests/a.py", "# nobody\n", []),
        ("CHANGELOG.md", "nobody\n", []),
        ("tests/a.py", f"# found {DEFECT}, C2; {ATTACK}: it was a 500\n", [DEFECT, ATTACK]),
        ("tests/a.py", "# Former defect: 50 pods waited; the attack took 3 s\n", []),
    ],
)
def test_lines_that_break_a_rule_are_found(path: str, text: str, found: list[str]):
    assert [violation.found for violation in words.check_text(path, text)] == found


def test_the_tree_has_no_line_that_breaks_a_rule():
    assert [str(violation) for violation in words.check_tree(ROOT)] == []

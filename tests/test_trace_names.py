"""The names on traces: one file, as the documents have it, and no other place that makes up one."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from core import trace_names
from core.trace_names import ATTRIBUTES, EVENTS, SPANS, WORK

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "traces.md"
NOT_ATTRIBUTES = {trace_names.FIRST_PASS, trace_names.SECOND_PASS, trace_names.REPLACEMENT}


def defined() -> dict[str, str]:
    """Constants by name."""
    return {name: value for name, value in vars(trace_names).items() if name.isupper() and isinstance(value, str)}


def test_the_document_has_the_tables_of_all_names():
    text = PAGE.read_text()
    begin, end = "<!-- tables -->\n", "<!-- end of tables -->"
    shown = text[text.index(begin) + len(begin) : text.index(end)]
    assert shown == trace_names.format_tables(), "`python -m core.trace_names` prints what belongs between the marks of docs/traces.md"


def test_every_name_is_in_one_table_with_its_meaning():
    tables = [*SPANS, *EVENTS, *ATTRIBUTES]
    assert len(tables) == len(set(tables))
    assert set(tables) | NOT_ATTRIBUTES == set(defined().values())
    meanings = [*(says for _, says in (*SPANS.values(), *EVENTS.values())), *ATTRIBUTES.values()]
    assert all(says and not says.endswith(".") and "\n" not in says for says in meanings)
    assert {span for span, _ in EVENTS.values()} <= set(SPANS)
    assert set(SPANS) > WORK


def test_attributes_are_the_conventions_own_or_ours():
    assert all(re.fullmatch(r"(k8s|topogate)(\.[a-z_]+)+", name) for name in ATTRIBUTES)
    ours = {name for name in ATTRIBUTES if name.startswith("k8s.")}
    from opentelemetry.semconv._incubating.attributes import k8s_attributes

    assert ours <= {value for value in vars(k8s_attributes).values() if isinstance(value, str)}


def test_every_name_is_used_and_no_other_file_spells_one():
    names, used = defined(), set()
    for package in ("webhook", "reconciler", "core/plan"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "t":
                    used.add(node.attr)
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    assert node.value not in ATTRIBUTES, f"{path} spells {node.value}"
                    assert node.value not in SPANS, f"{path} spells {node.value}"
                    assert node.value not in EVENTS, f"{path} spells {node.value}"
    assert set(names) == used

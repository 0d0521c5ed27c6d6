"""A YAML or JSON document that a person wrote, and the keys in it that are given twice."""

from __future__ import annotations

from collections.abc import Iterator

import yaml

from core.api.files.mistakes import InvalidFile, Mistake, build_path

MAX_BYTES = 1 << 20  # what a ConfigMap can hold


def parse_yaml(text: str | bytes) -> tuple[object, tuple[Mistake, ...]]:
    """Returns what a YAML or JSON document holds, and a mistake for each key that is given twice, of which it has the last. Raises
    InvalidFile with one mistake for a document that is empty, larger than `MAX_BYTES`, nested too deeply, or broken. Several documents in
    one are broken, too."""
    if len(text) > MAX_BYTES:
        raise InvalidFile([Mistake("", f"the file is larger than {MAX_BYTES >> 20} MiB; a configuration is expected")])
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            raise InvalidFile([Mistake("", "the file is empty")])
        twice = tuple(_list_duplicate_keys(node, "", set()))
        value: object = loader.construct_document(node)
    except InvalidFile:
        raise
    except RecursionError as error:
        raise InvalidFile([Mistake("", "it is nested too deeply")]) from error
    except Exception as error:  # PyYAML's constructors raise whatever comes of odd scalars
        raise InvalidFile([Mistake("", f"YAML syntax error: {_format_in_one_line(error)}")]) from error
    return value, twice


def _format_in_one_line(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"{error.problem} in line {error.problem_mark.line + 1}, column {error.problem_mark.column + 1}"
    why = " ".join(str(error).split())[:200]
    return why if isinstance(error, yaml.YAMLError) else f"{type(error).__name__}: {why}"


def _list_duplicate_keys(node: yaml.Node, path: str, seen: set[int]) -> Iterator[Mistake]:
    # What an alias names is the same node again: looking once is enough, and ends.
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _list_duplicate_keys(value, build_path(path, index), seen)
    elif isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue  # no key of ours; it is refused as one
            where, line = build_path(path, key.value), key.start_mark.line + 1
            if key.value in lines and key.tag != "tag:yaml.org,2002:merge":
                yield Mistake(where, f"it is given twice, in lines {lines[key.value]} and {line}; leave one out")
            lines.setdefault(key.value, line)
            yield from _list_duplicate_keys(value, where, seen)

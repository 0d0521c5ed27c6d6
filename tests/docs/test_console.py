"""How commands are read from documents, and what counts as what they show."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.docs.console import Command, is_shown, list_commands, run

PAGE = """# A page

## First

Text with `$ not a command`.

```console
$ one
$ two --with \\
  more
shown
$ cat <<'END'
text
END
```

```yaml
$ no: command
```

### Deeper

1. a list

   ```console
   $ three
     indented
   ```
"""


def test_console_commands_are_read_with_line_section_and_output():
    found = list_commands("page.md", PAGE)
    assert [(c.line, c.section, c.text, c.shown) for c in found] == [
        (8, "First", "one", ()),
        (9, "First", "two --with \\\n  more", ("shown",)),
        (12, "First", "cat <<'END'\ntext\nEND", ()),
        (26, "Deeper", "three", ("  indented",)),
    ]


def test_a_block_that_begins_with_no_command_is_a_mistake():
    with pytest.raises(ValueError, match=r"docs/page\.md:2: a console block begins with"):
        list_commands("page.md", "```console\nshown\n```\n")


@pytest.mark.parametrize(
    ("printed", "shown", "same"),
    [
        ("a   b\n", ("a b",), True),
        ("a b\n", ("a", "b"), False),
        ("a\nb\nc\n", ("a", "...", "c"), True),
        ("a\nc\n", ("a", "...", "c"), True),
        ("a\nb\nc\n", ("a", "..."), True),
        ("a\nb\n", ("a",), False),
        ("job took 12s to run\n", ("job took ... to run",), True),
        ("job took 12s\nto run\n", ("job took ... to run",), False),
        ("1.5 (x)\n", ("1.5 (x)",), True),
        ("135 (x)\n", ("1.5 (x)",), False),
        ("name   age\n", ("name ...",), True),
    ],
)
def test_dots_stand_for_anything_and_blanks_for_blanks(printed: str, shown: tuple[str, ...], same: bool):
    assert is_shown(printed, shown) is same


def command(text: str, *shown: str) -> Command:
    return Command("page.md", 3, "First", text, shown)


def test_console_command_runs_in_the_given_folder_and_environment(tmp_path: Path):
    environment = {"PATH": os.environ["PATH"], "WHO": "me"}
    assert run(command('echo "$WHO"; pwd >&2', "me", "..."), tmp_path, environment) == f"me\n{tmp_path}\n"
    run(command("echo Error; false", "Error"), tmp_path, environment)


@pytest.mark.parametrize(
    ("shown", "told"),
    [
        (command("false"), "page.md:3: .* false\nended with 1"),
        (command("false | true"), "ended with 1"),
        (command("echo yes", "no"), "printed\nyes\n\nand not what is shown:\nno"),
        (command("echo Error", "Error"), "ended with 0"),
    ],
)
def test_wrong_output_on_a_page_is_reported_with_its_place(tmp_path: Path, shown: Command, told: str):
    with pytest.raises(AssertionError, match=told):
        run(shown, tmp_path, os.environ)

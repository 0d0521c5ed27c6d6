"""Commands as the documents show them: blocks marked `console`, a line with `$ ` for each command, below it what is printed.

A shown line `...` stands for any number of lines, `...` within a line for anything, any number of blanks for any other. A command under
which nothing is shown may print what it likes. One that is shown to fail begins what it prints with `Error`, `error:` or
`The ... is invalid`.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
_BLOCK = re.compile(r"^(?P<indent> *)```console\n(?P<text>.*?)^ *```$", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Command:
    """`text` may have several lines, as a shell takes them; `section` is the heading it stands under."""

    page: str
    line: int
    section: str
    text: str
    shown: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: $ {self.text}"

    @property
    def fails(self) -> bool:
        return bool(self.shown) and re.match(r"Error|error:|The .* is invalid", self.shown[0]) is not None


def list_commands(page: str, text: str | None = None) -> list[Command]:
    """All commands of docs/`page` in their order."""
    text = (DOCS / page).read_text() if text is None else text
    headings = [(found.start(), found[1]) for found in _HEADING.finditer(text)]
    found: list[Command] = []
    for block in _BLOCK.finditer(text):
        section = next((name for start, name in reversed(headings) if start < block.start()), "")
        first = text.count("\n", 0, block.start("text")) + 1
        lines = [line.removeprefix(block["indent"]) for line in block["text"].splitlines()]
        starts = [at for at, line in enumerate(lines) if line.startswith("$ ")]
        if not starts or starts[0] != 0:
            raise ValueError(f"docs/{page}:{first}: a console block begins with a line `$ COMMAND`")
        for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
            words, shown = _split(lines[start:end])
            found.append(Command(page, first + start, section, words, tuple(shown)))
    return found


def _split(lines: Sequence[str]) -> tuple[str, list[str]]:
    """A command goes on below a line that ends with a backslash, and until a here-document is over."""
    end = 1
    marker = re.search(r"<<'?(\w+)'?$", lines[0])
    if marker:
        end = lines.index(marker[1]) + 1
    while lines[end - 1].endswith("\\"):
        end += 1
    return "\n".join(lines[:end]).removeprefix("$ "), list(lines[end:])


def run(command: Command, folder: Path, environment: Mapping[str, str], timeout_s: float = 120) -> str:
    """What it prints, stdout and stderr as they come; AssertionError where that, or how it ends, is not what is shown."""
    done = subprocess.run(
        ["bash", "-eo", "pipefail", "-c", command.text],
        cwd=folder,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert bool(done.returncode) is command.fails, f"{command}\nended with {done.returncode}:\n{done.stdout}"
    if command.shown:
        assert is_shown(done.stdout, command.shown), f"{command}\nprinted\n{done.stdout}\nand not what is shown:\n" + "\n".join(
            command.shown
        )
    return done.stdout


def is_shown(printed: str, shown: Sequence[str]) -> bool:
    """Whether this is what `shown` says."""
    parts = [r"(?:[^\n]*\n)*?" if line.strip() == "..." else _build_pattern(line) + r"\n" for line in shown]
    text = "".join(" ".join(line.split()) + "\n" for line in printed.splitlines())
    return re.fullmatch("".join(parts), text) is not None


def _build_pattern(line: str) -> str:
    return "[^\n]*?".join(re.escape(" ".join(part.split())) if part.strip() else "" for part in _split_pieces(line))


def _split_pieces(line: str) -> list[str]:
    return " ".join(line.split()).split("...")

"""Lines and tables of plain text for a terminal of any width; ten thousand rows take a fraction of a second."""

import sys
from collections.abc import Sequence
from textwrap import wrap

_GAP = "  "
TITLE = "JOB"  # the header of cells that need no explanation
_LEAST_LAST = 30  # columns for the last cell; with fewer each row is written below the other
_MOST_LINES = 8  # of the last cell of a paragraph
_LEAST_WIDTH = 16


def print_line(line: str) -> None:
    """Prints one line on stdout; control characters are replaced."""
    print(replace_controls(line))


def print_remark(remark: str) -> None:
    """Prints an error or a warning as one line on stderr, after the name of the command; control characters are replaced."""
    print(f"topogate: {replace_controls(remark)}", file=sys.stderr)


def remove_controls(text: str) -> str:
    """Returns a text as one line without control characters: what is in objects must not steer a terminal."""
    return text if text.isalnum() else replace_controls(" ".join(text.split()))


def replace_controls(text: str) -> str:
    """Returns a text of the same length in which control characters are spaces, where they are white space, or question marks."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else " " if letter.isspace() else "?" for letter in text)


def cut(text: str, width: int) -> str:
    """Returns a text of at most `width` columns; a longer one ends with an ellipsis."""
    return text if len(text) <= width else f"{text[: max(0, width - 1)]}…"


def format_table(headers: Sequence[str], rows: Sequence[Sequence[str]], width: int, *, is_cut: bool = True) -> list[str]:
    """Returns the lines of a table. Where `is_cut` no line is longer than `width` columns: the last cell of a row is cut, and on a terminal
    that is too narrow for the others each row is a paragraph, with the last cell in lines of its own, `_MOST_LINES` at most."""
    width = max(width, _LEAST_WIDTH)
    cells = [[remove_controls(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(headers, *cells, strict=True)]
    if is_cut and sum(widths[:-1]) + len(_GAP) * (len(widths) - 1) + min(_LEAST_LAST, widths[-1]) > width:
        return [line for row in cells for line in _format_paragraph(headers, row, width)]
    lines = [_GAP.join(cell.ljust(size) for cell, size in zip(row, widths, strict=True)).rstrip() for row in (headers, *cells)]
    return [cut(line, width) for line in lines] if is_cut else lines


def _format_paragraph(headers: Sequence[str], row: Sequence[str], width: int) -> list[str]:
    named = [cell if header == TITLE else f"{header.lower()} {cell}" for header, cell in zip(headers[:-1], row[:-1], strict=True) if cell]
    last = wrap(row[-1], width, initial_indent=_GAP, subsequent_indent=_GAP, break_on_hyphens=False, max_lines=_MOST_LINES, placeholder="…")
    return [*wrap(", ".join(named), width, subsequent_indent=_GAP, break_on_hyphens=False), *last]

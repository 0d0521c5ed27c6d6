"""A trace as a picture: a row for each span in the order of time, its bar, how long it took, and what is told on it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from html import escape

from core import trace_names as t
from core.model.quantity import show_count
from e2e.audit.otlp import SpanRecord

COLOURS = {"topogate-webhook": "#f28e2b", "topogate-reconciler": "#4e79a7"}
OTHER, REFUSED = "#8c8c8c", "#c62828"
_WIDTH, _LEFT, _BARS, _ROW, _LINE, _TOP = 1120, 168, 800, 20, 14, 84
_LETTERS, _MOST_LINES = 150, 3  # of what is told below a bar
_TICKS = 8  # about as many times on the axis


def to_svg(spans: Sequence[SpanRecord], title: str) -> str:
    """The file. Reviews that only follow the first are left out: they say nothing that the first does not."""
    shown = [span for number, span in enumerate(sorted(spans, key=lambda span: span.start_ns)) if number == 0 or span.name != t.REVIEW]
    begin, end = min(span.start_ns for span in shown), max(span.end_ns for span in shown)
    scale = _BARS / max(1, end - begin)
    body, y = list(_render_legend()), _TOP
    for span in shown:
        lines = _list_details(span)
        x, width = _LEFT + (span.start_ns - begin) * scale, max(2.0, (span.end_ns - span.start_ns) * scale)
        colour = REFUSED if span.attributes.get(t.REFUSED) or span.is_error else COLOURS.get(span.service, OTHER)
        body.append(f'<text x="12" y="{y + 11}" class="n">{escape(span.name)}</text>')
        body.append(f'<rect x="{x:.1f}" y="{y + 2}" width="{width:.1f}" height="11" rx="2" fill="{colour}"/>')
        body.append(f'<text x="{x + width + 6:.1f}" y="{y + 11}">{_format_duration(span.end_ns - span.start_ns)}</text>')
        body += [f'<text x="{_LEFT}" y="{y + _ROW + 7 + _LINE * i}" class="s">{escape(line)}</text>' for i, line in enumerate(lines)]
        y += _ROW + _LINE * len(lines) + (4 if lines else 0)
    style = "text{font:11px sans-serif;fill:#263238}.n{font-weight:bold}.s{fill:#546e7a}.t{font-size:15px;font-weight:bold}.a{fill:#90a4ae}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{y + 12}" role="img" aria-label="{escape(title)}">'
        f'<style>{style}</style><rect width="100%" height="100%" fill="white"/><text x="12" y="24" class="t">{escape(title)}</text>'
        + "".join((*_render_axis((end - begin) / 1e9, y), *body))
        + "</svg>\n"
    )


def _render_legend() -> Iterator[str]:
    x = 12
    for name, colour in (*COLOURS.items(), ("the answer was no", REFUSED)):
        yield f'<rect x="{x}" y="38" width="10" height="10" rx="2" fill="{colour}"/><text x="{x + 15}" y="47">{escape(name)}</text>'
        x += 40 + 6 * len(name)


def _render_axis(seconds: float, bottom: int) -> Iterator[str]:
    """Lines at round times."""
    step = next(step for exponent in range(-3, 9) for digit in (1, 2, 5) if (step := digit * 10.0**exponent) * _TICKS >= seconds)
    for number in range(int(seconds / step) + 1):
        x = _LEFT + _BARS * number * step / max(seconds, 1e-9)
        yield f'<line x1="{x:.1f}" y1="{_TOP - 6}" x2="{x:.1f}" y2="{bottom}" stroke="#eceff1"/>'
        yield f'<text x="{x:.1f}" y="{_TOP - 11}" text-anchor="middle" class="a">{number * step:g} s</text>'


def _format_duration(nanoseconds: int) -> str:
    return f"{nanoseconds / 1e9:.1f} s" if nanoseconds >= 1e9 else f"{nanoseconds / 1e6:.1f} ms"


def _list_details(span: SpanRecord) -> list[str]:
    """What is worth reading of a span: the sentence that users see, why it is there, where its pods went."""
    if span.name == t.REVIEW:
        text = f"{span.attributes.get(t.REVIEW_OPERATION)} {span.attributes.get(t.OBJECT_KIND)} {span.attributes.get(t.OBJECT_NAME)}"
    elif span.attributes.get(t.MESSAGE):
        text = f"{span.attributes.get(t.REASON, '')}: {span.attributes[t.MESSAGE]}"
    else:
        texts = [str(attributes[t.MESSAGE]) for name, attributes in span.events if name == t.CHOSEN]
        ungated = [attributes for name, attributes in span.events if name == t.DOMAIN_UNGATED]
        if ungated:
            texts.append(f"{show_count(sum(to[t.POD_COUNT] for to in ungated), 'pod')} to {', '.join(str(to[t.DOMAIN]) for to in ungated)}")
        text = "; ".join(texts)
    return textwrap.wrap(text, _LETTERS, max_lines=_MOST_LINES, placeholder=" …")

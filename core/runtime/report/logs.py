"""Logs as one JSON object a line, with the context of the work in each.

Fields go in `extra`, never into the message: messages stay countable. `add_fields` adds fields to every line logged inside it, in whichever
module.
"""

from __future__ import annotations

import io
import json
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, BinaryIO, TextIO, cast

from core.runtime.http.errors import remove_credentials

_fields: ContextVar[dict[str, Any]] = ContextVar("log fields", default={})  # noqa: B039  # never changed in place

_STDERR = 2
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


@contextmanager
def add_fields(**fields: Any) -> Iterator[None]:
    """Adds fields to every line that is logged inside, by this task and those it starts; of several with one name the innermost holds."""
    token = _fields.set({**_fields.get(), **fields})
    try:
        yield
    finally:
        _fields.reset(token)


class JsonFormatter(logging.Formatter):
    """`time`, `level`, `logger`, `message`, then the fields; an exception as text in `exception`. A value that JSON lacks becomes its
    str."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns a log record as one line of JSON, without credentials in its URLs: time (UTC), level, logger, message, and its fields. Of
        one name the record's own field holds before that of `add_fields`; none replaces the first four. It has `exception` and `stack`
        where the record has them."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        fields = {**_fields.get(), **{key: value for key, value in vars(record).items() if key not in _OWN}}
        for key, value in fields.items():
            line.setdefault(key, value)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = record.stack_info
        return remove_credentials(json.dumps(line, default=str, ensure_ascii=False))


class LineFormatter(logging.Formatter):
    """For people at a terminal: `prefix`, the message, then the fields, in one line."""

    def __init__(self, prefix: str) -> None:
        super().__init__()
        self._prefix = prefix

    def format(self, record: logging.LogRecord) -> str:
        """Returns a log record as one line of text for people, without credentials in its URLs: `prefix`, message, then its own fields (not
        those of `add_fields`). White space is made single spaces, control characters are question marks, and there is no exception text."""
        fields = ", ".join(f"{key} {value}" for key, value in vars(record).items() if key not in _OWN)
        text = f"{record.getMessage()}: {fields}" if fields else record.getMessage()
        line = remove_credentials(" ".join(text.split()))
        return self._prefix + "".join(letter if letter.isprintable() else "?" for letter in line)


def configure(level: str | int = "INFO", stream: TextIO | None = None) -> None:
    """Makes JSON lines on `stream` (None: stderr) the only output of the root logger, and so of all that pass on to it; other handlers of
    it are removed. `level` is a name in any case, or a number. Raises ValueError for an unknown name."""
    handler = _Handler(stream if stream is not None else _open_stderr())
    handler.setFormatter(JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper() if isinstance(level, str) else level)


class _Handler(logging.StreamHandler[TextIO]):
    def handleError(self, record: logging.LogRecord) -> None:
        """Drops a line that could not be written (OSError): a report of that could not be written either, and would
        make the process fail at its end."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


def _open_stderr() -> TextIO:
    """Unbuffered, as with PYTHONUNBUFFERED: where a disk is full a line is lost, and does not spoil the next or the process' exit code."""
    if sys.stderr is not sys.__stderr__:  # stderr was replaced, and its lines are collected
        return sys.stderr
    raw = cast("BinaryIO", io.FileIO(_STDERR, "w", closefd=False))
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True)

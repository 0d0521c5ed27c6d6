"""Log lines are JSON, whatever is in them."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from core.runtime.report import logs


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    logs.configure("debug", stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)


def test_fields_message_and_context_are_in_one_object(stream: io.StringIO):
    with logs.add_fields(controller="jobs"), logs.add_fields(key="ns/a"):
        logging.getLogger("x").info("placed %s pods", 3, extra={"domain": ["r1"], "odd": object})
    logging.getLogger("x").debug("outside")
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert first["message"] == "placed 3 pods"
    assert (first["level"], first["logger"], first["controller"], first["key"], first["domain"]) == ("info", "x", "jobs", "ns/a", ["r1"])
    assert first["odd"] == "<class 'object'>"
    assert first["time"].endswith("+00:00")
    assert "key" not in second


def test_an_exception_is_one_line(stream: io.StringIO):
    try:
        raise ValueError("a\nb")
    except ValueError:
        logging.getLogger("x").exception("failed")
    (line,) = stream.getvalue().splitlines()
    assert "ValueError: a\nb" in json.loads(line)["exception"]


def test_fields_cannot_fake_the_frame(stream: io.StringIO):
    logging.getLogger("x").info("true", extra={"time": "never", "level": "none"})
    line = json.loads(stream.getvalue())
    assert line["level"] == "info"
    assert line["time"] != "never"


def test_log_lines_contain_no_url_password(stream: io.StringIO):
    url = "http://user:hunter2@proxy.example:3128/a@b"
    try:
        raise OSError(f"no way past {url}")
    except OSError as error:
        logging.getLogger("x").exception("failed at %s", url, extra={"url": url, "error": error, "mail": "a@b.example, //c@d"})
    assert "hunter2" not in stream.getvalue()
    line = json.loads(stream.getvalue())
    assert line["url"] == "http://proxy.example:3128/a@b"
    assert line["mail"] == "a@b.example, //c@d"


def test_line_for_people_has_no_credentials_of_a_url() -> None:
    record = logging.makeLogRecord({"msg": "%s gives no answer", "args": ("https://me:secret@host/api",), "proxy": "http://a:b@proxy"})
    line = logs.LineFormatter("topogate: ").format(record)
    assert line.startswith("topogate: https://")
    assert "secret" not in line
    assert "a:b" not in line

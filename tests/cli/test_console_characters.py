"""Characters that do not print, in what programs read."""

from __future__ import annotations

import json

import pytest
import yaml

from cli.reporting.draw import make_console, write_data

ODD = "a\u00a0b\u200bc\x7fd\u2028e\ufeff\U000e0001"


@pytest.mark.parametrize("form", ["json", "yaml"])
@pytest.mark.parametrize("value", ["plain", "für", "10:100:20 :warning:", ODD])
def test_report_for_programs_is_read_back_as_it_was_and_steers_no_terminal(value: str, form: str, capsys: pytest.CaptureFixture[str]):
    write_data(make_console(), {"value": value}, form)
    printed = capsys.readouterr().out
    assert printed.replace("\n", "").isprintable()
    assert (json.loads(printed) if form == "json" else yaml.safe_load(printed)) == {"value": value}
    assert ("\\" in printed) == (value == ODD)

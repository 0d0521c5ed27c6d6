"""What a command decides is what the reconciler would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from core.queueing.cycle import cycle
from core.runtime.http.client import Client
from reconciler.behaviour import Behaviour
from reconciler.measure import outlook
from reconciler.settings import parse
from tests.runtime.fakes import ManualClock

CONFIG = """apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
topogate: {nodeReplacement: {leavingTaints: [example.com/upgrade]}}
"""


def test_outlook_replaces_nodes_by_the_rules_of_the_reconciler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Found by a reader: the taints by which nodes leave were those of the defaults."""
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG)
    settings, given = parse(["--config", str(path)], environ={}), list[Any]()

    class Recorded(cycle.Cycle):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            given.append(arguments[3])
            super().__init__(*arguments, **named)

    monkeypatch.setattr(cycle, "Cycle", Recorded)
    outlook.Outlook(Client.make_offline(), ManualClock(), settings).decide([])
    assert given == [Behaviour.read(settings).replacement]

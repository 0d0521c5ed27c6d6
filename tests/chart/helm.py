"""The chart as the real Helm renders it."""

from __future__ import annotations

import copy
import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any, cast

import yaml

from e2e.kind import tools

CHART = Path(__file__).parents[2] / "charts" / "topogate"
KUBE_VERSION = "1.36.0"  # a Helm that is built from its module takes another for that of a cluster it does not ask
Obj = dict[str, Any]


class Refused(Exception):
    """Helm did not render; the message is what it said."""


def run_helm(*words: str | Path) -> str:
    """What Helm prints."""
    environment = {**os.environ, "GOGC": "off"}  # it ends soon
    done = subprocess.run([tools.ensure_tool(tools.HELM), *words], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Refused(done.stdout + done.stderr)
    return done.stdout


def render(folder: Path, values: Obj | None = None, *, release: str = "topogate", namespace: str = "topogate-system") -> list[Obj]:
    """All objects of a release. `folder` is for the values' file."""
    path = folder / "values.json"
    path.write_text(json.dumps(values or {}))
    said = run_helm("template", release, CHART, "--namespace", namespace, "--kube-version", KUBE_VERSION, "--values", path)
    return [copy.deepcopy(obj) for part in said.split("\n---\n") if (obj := _load(part))]


@cache
def _load(text: str) -> Obj | None:
    return cast(Obj | None, yaml.load(text, yaml.CSafeLoader))  # most objects are the same whatever the values, the large ones too


def find_one(objects: list[Obj], kind: str, name: str = "") -> Obj:
    """The only object of a kind whose name ends so."""
    (found,) = (obj for obj in objects if obj["kind"] == kind and obj["metadata"]["name"].endswith(name))
    return found

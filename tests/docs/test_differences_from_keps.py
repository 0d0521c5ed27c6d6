"""Where topogate differs from a KEP on purpose, the documents say so, and say what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from core.jobs.kinds.registry import KINDS
from core.model.wire.assignment import DomainCount, TopologyAssignment
from core.model.wire.decoding import decode
from core.model.wire.encoding import encode
from core.names import EVENT_POD_TERMINATED, HOSTNAME_LABEL

ROOT = Path(__file__).parents[2]
DOCS, CRDS = ROOT / "docs", ROOT / "charts" / "topogate" / "files" / "crds"
MIGRATION = (DOCS / "migration.md").read_text()


def find_row(begins: str) -> str:
    (found,) = (line for line in MIGRATION.splitlines() if line.startswith(f"| {begins}"))
    return found


def test_name_of_the_event_of_an_ended_pod_is_documented():
    assert f"`{EVENT_POD_TERMINATED}`, as Kueue emits it; KEP-2724 names it `PodTerminated`" in find_row("event of a pod that is ended")


def test_most_levels_of_a_topology_are_documented():
    (crd,) = (made for path in CRDS.glob("kueue.x-k8s.io_topologies.yaml") for made in yaml.safe_load_all(path.read_text()))
    most = {
        version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["levels"]["maxItems"]
        for version in crd["spec"]["versions"]
    }
    (documented,) = re.findall(r"up to (\d+) levels", find_row("a Topology"))
    assert most == {int(documented)}
    assert "limits a Topology to 8" in find_row("a Topology")


def test_empty_affixes_are_read_and_none_is_written():
    assert "writes them only if they are not empty" in find_row("`prefix` and `suffix`")
    assignment = TopologyAssignment((HOSTNAME_LABEL,), (DomainCount(("a",), 1), DomainCount(("b",), 2)))
    written = encode(assignment)
    (part,) = written["slices"]
    (values,) = part["valuesPerLevel"]
    assert {"prefix", "suffix"} & values["individual"].keys() == set()
    individual = {**values["individual"], "prefix": "", "suffix": ""}
    empty = {**written, "slices": [{**part, "valuesPerLevel": [{**values, "individual": individual}]}]}
    assert decode(empty) == assignment


def test_kinds_without_a_gate_from_their_creation_on_are_named():
    text = " ".join((DOCS / "design.md").read_text().split())
    named = text.split("every mistake refused at once. ")[1].split(" get the gate when they are started")[0]
    assert set(re.split(r", | and ", named)) == {kind.kind for kind in KINDS if not getattr(kind, "gates_at_creation", True)}


def test_least_version_of_jobset_is_documented():
    """Older ones take no gate off the Jobs that they have made."""
    assert "JobSet 0.6 or newer is required" in " ".join((DOCS / "kinds.md").read_text().split())

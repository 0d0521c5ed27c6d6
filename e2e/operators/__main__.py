"""`python -m e2e.operators`: plays the scenes with the real operators on simulated nodes, and keeps what came of each.

Results are kept in `out/operators.json`; `--write` makes the table of `docs/kinds.md` of them. Exit code 1 if a scene has failed, 2 for an
operator that is not known.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

from e2e.cluster import Cluster
from e2e.operators.build import ensure_operators
from e2e.operators.catalogue import OPERATORS, Operator, UnknownOperator, find_operators
from e2e.operators.running import start_operators
from e2e.operators.scenes import list_acts
from e2e.topogate import Topogate
from tests.reconciler.kinds.lives import LIVES

ROOT = Path(__file__).parents[2]
RESULTS, PAGE = ROOT / "out" / "operators.json", ROOT / "docs" / "kinds.md"
BEGIN, END = "<!-- made by `python -m e2e.operators --write` -->", "<!-- end -->"
OK = "ok"
Results = dict[str, dict[str, str]]  # by kind and scene: `ok`, or the first line of what was wrong


def run_scenes(operator: Operator, results: Results) -> None:
    """Plays all scenes of an operator's kinds on a cluster of its own, and notes what came of each."""
    with Cluster() as cluster:
        running = start_operators(cluster, [operator.name])
        try:
            with Topogate(cluster, leader_election=False) as topogate:
                for act in list_acts(operator.kinds):
                    began, came = time.monotonic(), OK
                    try:
                        act.play(cluster, topogate)
                    except Exception as error:  # whatever a scene raises is what is wrong with it
                        traceback.print_exc()
                        came = (str(error).splitlines() or [type(error).__name__])[0]
                    results.setdefault(act.kind, {})[act.what] = came
                    print(f"{came[:60]:<6} {act.kind}: {act.what} ({time.monotonic() - began:.0f} s)", flush=True)
        finally:
            for each in reversed(running):
                each.stop()


def render_table(results: Mapping[str, Mapping[str, str]]) -> str:
    """The table of kinds and scenes in Markdown, and the list of the scenes that one kind alone has."""
    names = [*LIVES, "deleted while gated"]
    lines = [f"| kind | operator | {' | '.join(names)} |", "|---" * (len(names) + 2) + "|"]
    more: list[str] = []
    for operator in OPERATORS:
        for kind in operator.kinds:
            found = results.get(kind, {})
            cells = [_render_cell(found.get(name)) for name in names]
            lines.append(f"| {kind} | {operator.name} {operator.version} | {' | '.join(cells)} |")
            more += [f"- {kind}, {_show_name(name)}: {_render_cell(came)}" for name, came in found.items() if name not in names]
    return "\n".join([*lines, "", "Further scenes, of one kind each:", "", *more])


def _show_name(name: str) -> str:
    """Examples of the KEP are named by their numbers there."""
    return re.sub(r"^[a-z]+-(\d)-(.*)", lambda found: f"example {found[1]} of KEP-2724 ({found[2].replace('-', ' ')})", name)


def _render_cell(came: str | None) -> str:
    return "" if came is None else came if came == OK else "failed"


def write_page(table: str) -> None:
    """Puts the table in the place of the one before."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{rest.partition(END)[2]}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m e2e.operators", description="Plays scenes with the real operators.")
    parser.add_argument("names", nargs="*", help="names of operators (all)")
    parser.add_argument("--write", action="store_true", help="write the table of docs/kinds.md; without names nothing is played")
    options = parser.parse_args(arguments)
    results: Results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    try:
        wanted = {name: find_operators([name])[-1] for name in options.names}
    except UnknownOperator as error:
        print(error, file=sys.stderr)
        return 2
    chosen = list(wanted.values()) if options.names or options.write else [operator for operator in OPERATORS if operator.kinds]
    ensure_operators(operator.name for operator in chosen)
    for operator in chosen:
        run_scenes(operator, results)
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    if options.write:
        write_page(render_table(results))
    failed = [came for operator in chosen for kind in operator.kinds for came in results.get(kind, {}).values() if came != OK]
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

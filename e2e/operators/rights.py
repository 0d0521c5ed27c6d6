"""`python -m e2e.operators.rights --write`: the rights of the operators, from their own manifests, into `e2e/standins/rights.json`.

Stand-ins act with these, so that what topogate's policies let operators do is tried with what operators may do.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from e2e.operators.build import Built, ensure_operators
from e2e.operators.catalogue import OPERATORS
from e2e.standins.rights import RIGHTS, read_rights

Rule = dict[str, Any]


def find_rules(built: Built) -> list[Rule]:
    """The rules of all roles that an operator's manifests bind to its account."""
    manifests, account = built.read_manifests(), built.operator.account
    bindings = [obj for obj in manifests if obj["kind"].endswith("RoleBinding")]
    bound = [obj["roleRef"] for obj in bindings if any(subject["name"] == account for subject in obj.get("subjects") or ())]
    named = {(role["kind"], role["name"]) for role in bound}
    return [rule for obj in manifests if (obj["kind"], obj["metadata"]["name"]) in named for rule in obj["rules"]]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m e2e.operators.rights", description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write them; else they are compared")
    options = parser.parse_args(arguments)
    built = ensure_operators(operator.name for operator in OPERATORS if operator.kinds)
    found = {kind: find_rules(each) for each in built for kind in each.operator.kinds}
    if options.write:
        RIGHTS.write_text(json.dumps(found, indent=1) + "\n")
    elif found != read_rights():
        print(f"{RIGHTS.name} is not what the operators' manifests say; run: python -m e2e.operators.rights --write", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m tests.chart.rights_of_a_run`: whether the rights of both processes are those that a whole run of the tests used.

Each process of a run writes to `out/asked` what the processes beside its control plane asked of the API server, and each module that is
played in memory what its reconcilers wrote. This reads them all, once the run is over: nothing that was asked may have been refused, and
all that is granted must have been used. With `--some`, of a run of some of the tests, a right that was not used is no problem.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import webhook.chart
from core.jobs.kinds.pod_kinds import list_pod_kinds
from core.jobs.kinds.registry import KINDS
from core.runtime.rbac_rules import Right
from e2e.accounts import get_user_name
from e2e.audit.asked import read_asked
from e2e.topogate import SYSTEM_NAMESPACE
from reconciler import rbac
from tests.chart.test_generated import list_granted

SOME = "--some"
ASKED = Path(__file__).parents[2] / "out" / "asked"
GRANTED = {
    "webhook": webhook.chart.list_cluster_rights(),
    "reconciler": rbac.list_cluster_rights().union(
        *(
            list_granted(rules)
            for rules in (
                rbac.list_namespace_rights(),
                rbac.list_pause_rights(),
                rbac.list_visibility_rights(),
                rbac.list_front_proxy_rights(),
            )
        )
    ),
}

# The same code asks the same of each kind; which of them a run nests, stops in an odd moment or finds without its CRD is chance.
OF_KINDS = {
    (group, resource, verb)
    for group, resource, verb in GRANTED["webhook"] | GRANTED["reconciler"]
    if any(group == kind.group and resource.partition("/")[0] == kind.plural for kind in (*KINDS, *list_pod_kinds(KINDS)))
    or resource.endswith("trainingruntimes")
}
# A workload is read singly only where writes of several meet; tests of --nominate-nodes go through a proxy, which has other credentials.
# PodGroups of kube-scheduler are served by a control plane of their own (tests/reconciler/podgroups/test_podgroups_as_kube_scheduler.py).
OF_NATIVE_GROUPS = {right for right in GRANTED["reconciler"] if right[0] == "scheduling.k8s.io" and right[1] != "priorityclasses"}
SELDOM = OF_KINDS | OF_NATIVE_GROUPS | {("kueue.x-k8s.io", "workloads", "get"), ("", "pods/status", "patch")}


def write_asked(audit_folder: Path, to: str) -> None:
    """Writes what was asked by the log of one API server, as `out/asked/<to>.json`."""
    ASKED.mkdir(parents=True, exist_ok=True)
    found = {name: read_asked(audit_folder, refused=refused) for name, refused in (("used", False), ("refused", True))}
    listed = {name: {user: sorted(asked) for user, asked in users.items()} for name, users in found.items()}
    (ASKED / f"{to}.json").write_text(json.dumps(listed))


def write_written_in_memory(written: Iterable[Right], to: str) -> None:
    """Writes what simulated reconcilers have written, as `out/asked/<to>.json`: refused is what is not granted."""
    ASKED.mkdir(parents=True, exist_ok=True)
    user, asked = get_user_name("reconciler", SYSTEM_NAMESPACE), set(written)
    found = {"used": {user: sorted(asked)}, "refused": {user: sorted(asked - GRANTED["reconciler"])}}
    (ASKED / f"{to}.json").write_text(json.dumps(found))


def find_problems(folder: Path = ASKED, *, of_all: bool = True) -> list[str]:
    """Sentences about rights that are missing and, where it was a run `of_all` tests, rights that no process used; none if all is well."""
    used: dict[str, set[Right]] = defaultdict(set)
    problems = []
    files = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    for file in files:
        for user, asked in file["refused"].items():
            problems += [f"{user} was refused {describe(tuple(right))}" for right in asked]
        for user, asked in file["used"].items():
            used[user] |= {(group, resource, verb) for group, resource, verb in asked}
    for part, rights_of_part in GRANTED.items() if of_all else ():
        mine = used[get_user_name(part, SYSTEM_NAMESPACE)]
        problems += [f"the {part} is granted {describe(right)} and did not use it" for right in sorted(rights_of_part - SELDOM - mine)]
        if not mine & OF_KINDS:
            problems.append(f"the {part} used no right on a kind of jobs")
    return problems


def describe(right: Right) -> str:
    """A right in words."""
    group, resource, verb = right
    return f"{verb} {resource} of {group or 'the core group'}"


def main(arguments: Sequence[str]) -> int:
    problems = find_problems(of_all=SOME not in arguments)
    print(*problems, sep="\n", end="\n" if problems else "")
    print(f"rights: {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""`python -m e2e.kind`: a kind cluster, the real operators, topogate on this machine, and the scenes.

Ends with 0 if every scene went well, 1 if one did not or something could not be installed, 2 for a word that is not known,
3 where there is no Docker that it could use, 130 on Ctrl-C.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import ExitStack

from e2e.kind.cluster import KindCluster
from e2e.kind.install import install
from e2e.kind.operators import UnknownKind, find_kinds, list_operators
from e2e.kind.tools import ToolFailed, find_docker_problem
from e2e.operators.scenes import Act, list_acts
from e2e.process import StartFailed
from e2e.progress import CommandFailed
from e2e.topogate import Topogate

OK, FAILED, USAGE, NO_DOCKER, INTERRUPTED = 0, 1, 2, 3, 130


def run_scenes(acts: Sequence[Act], cluster: KindCluster, topogate: Topogate) -> int:
    """Every scene, whatever became of those before it; how many failed."""
    failed = 0
    for act in acts:
        began = time.monotonic()
        try:
            act.play(cluster, topogate)
        except Exception:  # whatever a scene raises is what is wrong with it
            failed += 1
            traceback.print_exc()
            print(f"FAILED {act.kind}: {act.what} ({time.monotonic() - began:.0f} s)", flush=True)
        else:
            print(f"ok     {act.kind}: {act.what} ({time.monotonic() - began:.0f} s)", flush=True)
    return failed


def run_command(kinds: Sequence[str], *, keep: bool) -> int:
    """The exit code."""
    acts = [act for act in list_acts(kinds) if not act.is_simulated]
    with ExitStack() as stack:
        print("creating a kind cluster ...", flush=True)
        cluster = KindCluster(keep=keep)
        stack.enter_context(cluster)
        install(cluster, list_operators(kinds), cluster.log_dir.parent)
        topogate = stack.enter_context(Topogate(cluster, leader_election=False, address=cluster.address_of_host()))
        failed = run_scenes(acts, cluster, topogate)
        print(f"{len(acts) - failed} of {len(acts)} scenes went well")
        if failed:
            # Told by its own code; an exception on the way out is what makes the cluster keep its logs.
            raise ScenesFailed
    return OK


class ScenesFailed(Exception):
    """Each has been told of."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m e2e.kind", description="Plays scenes with the real operators in a kind cluster.")
    parser.add_argument("--kinds", default="", help="kinds or operators, with commas between them (all)")
    parser.add_argument("--keep", action="store_true", help="leave the cluster there")
    options = parser.parse_args(arguments)
    try:
        kinds = find_kinds(word.strip() for word in options.kinds.split(",") if word.strip())
    except UnknownKind as unknown:
        print(unknown, file=sys.stderr)
        return USAGE
    problem = find_docker_problem()
    if problem is not None:
        print(f"e2e.kind did not run: {problem}", file=sys.stderr)
        return NO_DOCKER
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # stopped by whatever, it cleans up as on Ctrl-C
    try:
        return run_command(kinds, keep=options.keep)
    except ScenesFailed:
        return FAILED
    except (ToolFailed, CommandFailed, StartFailed, TimeoutError) as failure:
        print(failure, file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("interrupted: everything that was started has been stopped", file=sys.stderr)
        return INTERRUPTED


if __name__ == "__main__":
    sys.exit(main())

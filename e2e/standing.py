"""A cluster left running, to try `kubectl apply` by hand: `python -m e2e.cluster`, and `python -m e2e.cluster stop`.

One per user. It has two blocks of three racks of eight nodes with eight GPUs each, topogate's webhook and reconciler,
and the queues of `examples/queues.yaml`. What is running is written in a small file in the cache folder; a second call
finds it there and says the same again.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from e2e.binaries import UnknownVersion, ensure_binaries, get_cache_dir
from e2e.cluster import Cluster
from e2e.nodes import NodePool, build_ready_condition
from e2e.operators.build import ensure_operators
from e2e.operators.catalogue import OPERATORS, UnknownOperator
from e2e.operators.running import RunningOperator, start_operators
from e2e.process import StartFailed, is_alive, kill
from e2e.progress import CommandFailed
from e2e.topogate import Topogate

FAIL, REPAIR = "fail", "repair"  # a node
STATE_FILE = "standing-cluster.json"
EXAMPLES = Path(__file__).parent.parent / "examples"


@dataclass(frozen=True)
class Standing:
    """What is needed to use and to stop it."""

    root: str
    kubeconfig: str
    kubectl: str
    server: str
    pids: Mapping[str, int]

    @property
    def is_running(self) -> bool:
        """Whether any part of it is left: what is left must be found to be stopped."""
        # The folder is among the arguments of each, so an id that was given to another process is not mistaken.
        return any(is_alive(pid, self.root) for pid in self.pids.values())

    @property
    def missing(self) -> list[str]:
        """Parts that are not running any more."""
        return sorted(name for name, pid in self.pids.items() if not is_alive(pid, self.root))

    def describe(self) -> str:
        operators = [operator.name for operator in OPERATORS if operator.name in self.pids]
        return "\n".join(
            [
                f"export KUBECONFIG={self.kubeconfig}",
                f"alias kubectl={self.kubectl}",
                "",
                "kubectl apply -f examples/job-one-rack.yaml    # a moment later: kubectl get workloads,pods -o wide",
                "kubectl apply -f examples/job-too-large.yaml   # then: kubectl describe job too-large",
                "",
                f"API server {self.server}; logs in {self.root}/logs",
                *([f"Operators: {', '.join(operators)}"] if operators else []),
                "Stop it with: make cluster-stop",
            ]
        )


def find_standing(state: Path) -> Standing | None:
    """The one that runs; None if there is none, or if what the file tells of is gone."""
    try:
        standing = Standing(**json.loads(state.read_text()))
    except (OSError, ValueError, TypeError):
        return None
    return standing if standing.is_running else None


def start_standing(state: Path, operators: Sequence[str] = ()) -> Standing:
    """Starts one, with operators by their names (`e2e.operators`)."""
    print("# starting a control plane, 48 simulated nodes and topogate ...", file=sys.stderr)
    cluster = Cluster(guarded=False).start()
    topogate, running = Topogate(cluster, guarded=False), list[RunningOperator]()
    try:
        cluster.add_nodes(NodePool(labels={"node-group": "gpu"}))
        topogate.start()
        running += start_operators(cluster, operators, is_guarded=False)
        cluster.kubectl("apply", "-f", str(EXAMPLES / "queues.yaml"))
    except BaseException as error:
        for operator in running:
            operator.stop()
        topogate.stop()
        cluster.stop(keep_logs=isinstance(error, Exception))
        raise
    print("# 2 blocks x 3 racks x 8 nodes with 8 GPUs; queue main of namespace default is open", file=sys.stderr)
    standing = Standing(
        root=str(cluster.log_dir.parent),
        kubeconfig=str(cluster.kubeconfig),
        kubectl=str(cluster.binaries["kubectl"]),
        server=cluster.server,
        pids=cluster.abandon() | topogate.abandon() | {name: pid for each in running for name, pid in each.abandon().items()},
    )
    state.parent.mkdir(parents=True, exist_ok=True)
    state.write_text(json.dumps(asdict(standing)))
    return standing


def set_node_ready(standing: Standing, name: str, *, ready: bool) -> int:
    """Lets a node fail, or be Ready again; what kubectl says goes to its own outputs. Returns its exit code."""
    patch = json.dumps({"status": {"conditions": [build_ready_condition(ready=ready)]}})
    command = [standing.kubectl, "--kubeconfig", standing.kubeconfig, "patch", "node", name, "--subresource=status", "-p", patch]
    return subprocess.run(command, check=False).returncode


def stop_standing(state: Path) -> bool:
    """Stop it by its process ids and remove its folder; False if none was running."""
    standing = find_standing(state)
    if standing is None:
        state.unlink(missing_ok=True)
        return False
    for pid in standing.pids.values():
        if is_alive(pid, standing.root):
            kill(pid)
    shutil.rmtree(standing.root, ignore_errors=True)
    state.unlink(missing_ok=True)
    return True


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m e2e.cluster", description="A control plane left running, to try things by hand.")
    parser.add_argument("command", nargs="?", choices=["start", "stop", "status", FAIL, REPAIR], default="start")
    parser.add_argument("node", nargs="?", help=f"the node of {FAIL} and {REPAIR}")
    parser.add_argument("--operators", default="", help="names of operators to start beside topogate, with commas between them")
    options = parser.parse_args(arguments)
    command, operators = options.command, [name for name in options.operators.split(",") if name]
    state = get_cache_dir() / STATE_FILE
    if command == "stop":
        print("stopped" if stop_standing(state) else "no cluster was running")
        return 0
    standing = find_standing(state)
    if (options.node is not None) != (command in (FAIL, REPAIR)):
        parser.error(f"{FAIL} and {REPAIR} need the name of a node, and no other command takes one")
    if command != "start" and standing is None:
        print("no cluster is running")
        return 1
    if standing is not None and options.node is not None:
        return set_node_ready(standing, options.node, ready=command == REPAIR)
    if standing is not None:
        print("# it is already running", file=sys.stderr)
        lacking = [name for name in operators if name not in standing.pids]
        if lacking:
            print(f"# but without {', '.join(lacking)}. Start anew: make cluster-stop, then make cluster", file=sys.stderr)
            return 1
        if standing.missing:
            gone = ", ".join(standing.missing)
            print(f"# but not all of it: {gone} ended. Start anew: make cluster-stop, then make cluster", file=sys.stderr)
            return 1
    else:
        try:
            ensure_binaries()
            ensure_operators(operators)
            standing = start_standing(state, operators)
        except KeyboardInterrupt:
            print("interrupted: everything that was started has been stopped", file=sys.stderr)
            return 130
        except (UnknownOperator, UnknownVersion) as error:
            print(error, file=sys.stderr)
            return 2
        except (StartFailed, CommandFailed, OSError, RuntimeError) as error:
            print(f"it did not start, and everything that was started has been stopped: {error}", file=sys.stderr)
            return 1
    print(standing.describe())
    return 0

"""`make demo`: a real control plane, topogate's two processes, a handful of jobs, and the truth about where they went.

Every promise is verified from the API server's state (`e2e.audit.truth`); one that is broken makes the
exit code non-zero. `out/demo.svg` keeps the picture.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.markup import escape

from core.names import ADMITTED, QUOTA_RESERVED
from e2e import manifests
from e2e.api import wait_for
from e2e.audit import stories, truth
from e2e.audit.cluster_picture import GPU, find_seats, render_seats, to_svg
from e2e.audit.otlp import Receiver, SpanRecord
from e2e.audit.recount import recount
from e2e.binaries import ensure_binaries
from e2e.cluster import Cluster
from e2e.nodes import HOSTNAME_LABEL, NodePool, build_node
from e2e.progress import CommandFailed
from e2e.topogate import Topogate

OUT = Path("out")
NAMESPACE = "team-a"
QUEUE = "main"
SHOWN = {  # how the output names what a job requests
    "required": "all pods in one {}",
    "preferred": "in one {} if possible",
    "unconstrained": "on any nodes",
    "slice_topology": "each slice in one {}",
    "slice_size": "{} pods a slice",
    "indexed": "Indexed",
}
MIN_WIDTH = 112  # of a rack of nine nodes with eight GPUs each, and of the timeline
# Called between a step and its verification, with the step's name: how tests break what the demo promises.
Meddle = Callable[[str, "Demo"], None]


class Traces(Protocol):
    """Where spans can be read that were sent: a receiver of ours, or a real collector."""

    def list_spans(self, trace_id: str | None = None) -> list[SpanRecord]: ...


class Broken(Exception):
    """A promise is not kept."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class Demo:
    """The scenes, on a running cluster with topogate beside it."""

    def __init__(
        self, cluster: Cluster, topogate: Topogate, receiver: Traces, console: Console, meddle: Meddle | None = None, prefix: str = ""
    ) -> None:
        self.cluster = cluster
        self.topogate = topogate
        self.receiver = receiver
        self.console = console
        self.prefix = prefix  # so that several demos can share a cluster in tests
        self.namespace = prefix + NAMESPACE
        self.pool = NodePool(blocks=2, racks=3, nodes=8, prefix=prefix, labels={"node-group": f"{prefix}gpu"})
        self._meddle = meddle or (lambda step, demo: None)
        self._began = time.monotonic()
        self._kept = 0
        self._broken: list[str] = []

    # --- scenes -----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """All scenes; raises Broken at the end of the first scene with a promise that is not kept."""
        self._set_up()
        self._place()
        self._wait_and_help()
        self._show()
        self._say(f"[bold green]all {self._kept} checks passed[/] in {time.monotonic() - self._began:.0f} s")

    def _set_up(self) -> None:
        pool = self.pool
        self.cluster.add_nodes(pool)
        self.cluster.create_namespace(self.namespace)
        topology, flavor, queue = f"{self.prefix}default", f"{self.prefix}gpu", f"{self.prefix}research"
        for obj in (
            manifests.build_topology(topology, pool.levels),
            manifests.build_flavor(flavor, pool.labels, topology),
            manifests.build_cluster_queue(queue, {flavor: {"cpu": 2000, GPU: 1000}}),
            manifests.build_local_queue(QUEUE, self.namespace, queue),
        ):
            self._create(obj)
        self._say(f"{pool.blocks} blocks x {pool.racks} racks x {pool.nodes} nodes with 8 GPUs; queue {QUEUE} is open")

    def _place(self) -> None:
        block, rack = self.pool.block_label, self.pool.rack_label
        jobs: dict[str, dict[str, Any]] = {
            "one-rack": {"pods": 16, "gpus": 4, "required": rack},
            "wider": {"pods": 25, "gpus": 8, "preferred": block},  # a block has 24 nodes
            "anywhere": {"pods": 4, "gpus": 2, "unconstrained": "true"},
            "slices": {"pods": 8, "gpus": 2, "required": block, "slice_topology": rack, "slice_size": 4},
            "ranked": {"pods": 12, "gpus": 2, "required": rack, "indexed": True},
        }
        for name, asked in jobs.items():
            self._create(manifests.build_job(name, self.namespace, queue=QUEUE, **asked))
            shape = ", ".join(SHOWN[key].format(value) for key, value in asked.items() if key in SHOWN)
            self._say(f"applied job [bold]{name}[/]: {asked['pods']} pods x {asked['gpus']} GPUs, {shape}")
            self._until_bound(name, asked["pods"])
        self._meddle("placed", self)
        now = self.read()
        for name, asked in jobs.items():
            self._promise(f"{name}: all pods bound, none gated", truth.check_all_bound(now, name, asked["pods"]))
            self._promise(f"{name}: pods where the assignment says", truth.as_assigned(now, name))
        self._promise("one-rack: in one rack", truth.check_one_domain(now, "one-rack", rack))
        blocks = Counter(now.label_of(pod, block) for pod in now.pods_of("wider"))
        self._promise(
            "wider: in both blocks, since no block has 25 free nodes", [] if len(blocks) == 2 else [f"job wider is in {dict(blocks)}"]
        )
        self._promise("slices: in one block", truth.check_one_domain(now, "slices", block))
        self._promise("slices: each slice of 4 pods in one rack", truth.check_slices(now, "slices", rack, 4))
        self._promise("ranked: in one rack", truth.check_one_domain(now, "ranked", rack))
        self._promise("ranked: consecutive ranks share nodes", truth.check_rank_order(now, "ranked", [HOSTNAME_LABEL]))
        self._promise("no node over capacity, no place assigned to two pods", truth.check_invariants(now))
        self._settle()
        self._tell_why(*jobs)

    def _wait_and_help(self) -> None:
        rack, free = self._roomiest_rack()
        self._create(manifests.build_job("waits", self.namespace, queue=QUEUE, pods=free + 1, gpus=8, required=self.pool.rack_label))
        self._say(f"applied job [bold]waits[/]: {free + 1} pods x 8 GPUs in one rack, but no rack has more than {free} free nodes")
        self._until("job waits to be explained", lambda: not truth.check_waiting_reason(self.read(), "waits"))
        self._meddle("waiting", self)
        now = self.read()
        self._promise(
            "waits: its condition names what is missing",
            truth.check_waiting_reason(now, "waits", self.pool.rack_label, f"{free} out of {free + 1} pod(s)", GPU),
        )
        with suppress(TimeoutError):  # then the promise is broken
            wait_for(
                "spans of who is refused",
                lambda: not stories.find_unreported_refusals(now.workloads, self.receiver.list_spans),
                timeout_s=15,
            )
        self._promise(
            "waits: its trace has the same message as its condition",
            stories.find_unreported_refusals(now.workloads, self.receiver.list_spans),
        )
        self._settle()
        self._say(f"[yellow]why waits is pending:[/] {truth.get_condition(now.workload_of('waits'), QUOTA_RESERVED)['message']}")
        labels = now.nodes[rack[0]]["metadata"]["labels"]
        block_number, rack_number = (int(part[1:]) for part in labels[self.pool.rack_label].removeprefix(self.prefix).split("-"))
        extra = build_node(self.pool, block_number, rack_number, self.pool.nodes + 1)
        began = time.monotonic()
        self.cluster.add_nodes([extra])
        self._say(f"added node {extra['metadata']['name']} to rack {labels[self.pool.rack_label]}")
        self._until_bound("waits", free + 1)
        self._say(f"bound {time.monotonic() - began:.1f} s after the node was added")
        now = self.read()
        self._promise("waits: placed once a node that helps was added", truth.check_one_domain(now, "waits", self.pool.rack_label))
        self._promise("waits: pods where the assignment says", truth.as_assigned(now, "waits"))
        self._promise("no node over capacity, and no quota exceeded", [*truth.check_invariants(now), *recount(self.cluster.api)])
        self._settle()

    def _roomiest_rack(self) -> tuple[list[str], int]:
        """Nodes of the rack with most wholly free nodes, and how many those are."""
        now = self.read()
        busy = {pod["spec"].get("nodeName") for pod in now.pods if not truth.is_terminal(pod)}
        racks: dict[str, list[str]] = {}
        for name, node in now.nodes.items():
            if node["metadata"]["labels"].get("node-group") == self.pool.labels["node-group"]:
                racks.setdefault(node["metadata"]["labels"][self.pool.rack_label], []).append(name)
        best = max(racks.values(), key=lambda nodes: sum(node not in busy for node in nodes))
        return best, sum(node not in busy for node in best)

    def _show(self) -> None:
        now = self.read()
        group = self.pool.labels["node-group"]
        mine = [node for node in now.nodes.values() if node["metadata"]["labels"].get("node-group") == group]
        picture = find_seats(replace(now, read_nodes=lambda: mine), self.pool.block_label, self.pool.rack_label)
        render_seats(picture, self.console)
        OUT.mkdir(exist_ok=True)
        (OUT / "demo.svg").write_text(to_svg(picture, "topogate demo: jobs on nodes"))
        self._say(f"the same as a file: {OUT / 'demo.svg'}")
        self._show_trace("ranked")

    def _show_trace(self, name: str) -> None:
        workload = self.read().workload_of(name)
        trace_id = stories.trace_of(workload)
        self._until("the trace to arrive", lambda: set(stories.STORY) <= {span.name for span in self.receiver.list_spans(trace_id)})
        spans = self.receiver.list_spans(trace_id)
        self._promise(f"{name}: one trace from admission to bound", stories.find_problems(spans))
        self._settle()
        self._say(f"trace {trace_id} of job {name}:")
        start, end = min(span.start_ns for span in spans), max(span.end_ns for span in spans)
        for span in spans:
            left = int(50 * (span.start_ns - start) / max(1, end - start))
            width = max(1, int(50 * (span.end_ns - span.start_ns) / max(1, end - start)))
            bar = " " * left + "█" * min(width, 50 - left)
            self.console.print(f"  {span.name:<17} {span.service:<20} [cyan]{bar:<50}[/] {(span.end_ns - span.start_ns) / 1e6:8.1f} ms")

    def _tell_why(self, *jobs: str) -> None:
        """Why each job got its place, as `kubectl describe workload` shows it."""
        for job in jobs:
            self._until(f"the event that says why {job} is there", partial(self._told, job))
            self._say(f"why [bold]{job}[/] is there: {escape(self._told(job)[0])}")

    def _told(self, job: str) -> list[str]:
        workload = self.read().workload_of(job)
        uid = workload["metadata"]["uid"] if workload is not None else ""
        events = self.cluster.api.list(f"/api/v1/namespaces/{self.namespace}/events")
        mine = [str(event["message"]) for event in events if event["involvedObject"]["uid"] == uid and event["reason"] == ADMITTED]
        return [message.partition("; placed: ")[2] for message in mine if "; placed: " in message]

    # --- helpers ----------------------------------------------------------------------------------------------------

    def _create(self, obj: dict[str, Any]) -> None:
        self.cluster.api.create(manifests.get_path(obj), obj)

    def read(self) -> truth.Snapshot:
        return truth.read(self.cluster.api, [self.namespace])

    def _until(self, what: str, probe: Callable[[], object]) -> None:
        try:
            wait_for(what, lambda: probe() or None, timeout_s=300)
        except TimeoutError as error:
            raise Broken([str(error)]) from error

    def _until_bound(self, job: str, pods: int) -> None:
        self._until(f"job {job} to be bound", lambda: not truth.check_all_bound(self.read(), job, pods))

    def _promise(self, what: str, problems: list[str]) -> None:
        self._broken += problems
        self._kept += not problems
        self._say(f"[bold red]FAILED[/] {what}" if problems else f"[green]ok[/] {what}")

    def _settle(self) -> None:
        """Ends a scene: raises Broken with every promise of it that was not kept."""
        if self._broken:
            raise Broken(list(dict.fromkeys(self._broken)))

    def _say(self, text: str) -> None:
        self.console.print(f"[dim]{time.monotonic() - self._began:5.1f}s[/] {text}", highlight=False, soft_wrap=True)


def run_scenes(demo: Demo) -> int:
    """Runs the scenes and says what is broken, if anything; the exit code."""
    try:
        demo.run()
    except Broken as broken:
        for problem in broken.problems:
            demo.console.print(f"[bold red]check failed:[/] {problem}", soft_wrap=True)
        return 1
    return 0


def main(arguments: list[str] | None = None) -> int:
    argparse.ArgumentParser(prog="python -m e2e.demo", description=__doc__.splitlines()[0]).parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)  # stopped by whatever, it cleans up as on Ctrl-C
    console = Console(highlight=False)
    console.width = max(console.width, MIN_WIDTH)
    try:
        ensure_binaries()
        console.print("starting etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok ...")
        with ExitStack() as stack:
            receiver = stack.enter_context(Receiver())
            cluster = stack.enter_context(Cluster())
            console.print(f"control plane is up at {cluster.server}; starting topogate's webhook and reconciler ...")
            topogate = stack.enter_context(Topogate(cluster, otlp_endpoint=receiver.endpoint))
            code = run_scenes(Demo(cluster, topogate, receiver, console))
            console.print("stopping all processes and deleting their files ...")
        console.print("done")
        return code
    except CommandFailed as failure:
        print(failure, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        console.print("\n[yellow]interrupted:[/] everything that was started has been stopped")
        return 130


if __name__ == "__main__":
    sys.exit(main())

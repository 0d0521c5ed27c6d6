"""A cluster's life: different requests one after the other, with events between them, and what each decision costs.

    python -m tests.bench.stream [STREAM.jsonl] [--answers OUT.jsonl] [--json]

STREAM is of the kind that `vectors/tools/generate.py stream` writes; without one, `tests.bench.parts.streams` makes one.

A decision is timed from the workload's facts to the encoded assignment or the sentence of the refusal, usage committed.
It goes the reconciler's way and not through `place` alone: the workload is observed, `Cycle.run` searches flavors with
quota and topology and assumes what it found, `encode` writes it. So what is measured has no shorter path of its own, and
what grows with the number of workloads in the cluster is in the figure, too. A workload refused is deleted at once,
untimed, and a release is the workload's deletion. Events (node, pod, release) are timed apart, from the facts on.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from core.model.pod_resources import parse_resources
from core.model.wire.encoding import decode, encode
from core.placement.refusals import RefusalKind
from core.queueing.flavors.outcome import Admissible
from core.state.facts import PodFacts
from tests.bench.parts.life import NAMESPACE, Life, Refused, build_pod, build_workload, change_node, read_node
from tests.bench.parts.streams import build_stream

Json = Mapping[str, Any]
MEAN_BUDGET_MS = 0.6  # at 10,240 nodes


class Runner:
    """Lives through a stream; answers and times are kept as they come."""

    def __init__(self, head: Json) -> None:
        flavor = head.get("flavor") or {}
        nodes = [read_node(node) for node in head["nodes"]]
        self.life = Life(head["levels"], nodes, node_labels=flavor.get("node_labels"), tolerations=tuple(flavor.get("tolerations") or ()))
        self.seconds: dict[str, list[float]] = {"fit": [], "not_fit": [], "node": [], "pod": [], "release": []}
        self._placed: set[str] = set()
        self._pods: dict[str, PodFacts] = {}

    def run(self, operations: Iterable[Json]) -> Iterator[dict[str, Any]]:
        """One answer per request, in the schema of `expect`."""
        for operation in operations:
            if operation["op"] == "place":
                yield {"id": operation["id"], "answer": self._place(operation)}
            else:
                self._observe(operation)

    def _place(self, operation: Json) -> dict[str, Any]:
        workload = build_workload(operation["id"], operation["pod_sets"])
        began = time.perf_counter()
        outcome = self.life.decide(workload)
        wires = _encode(outcome) if isinstance(outcome, Admissible) else {}
        seconds = time.perf_counter() - began
        if isinstance(outcome, Refused):
            self.seconds["not_fit"].append(seconds)
            self.life.release(workload.key)
            return _refused(outcome)
        self.seconds["fit"].append(seconds)
        self._placed.add(operation["id"])
        return {"ok": True, "pod_sets": [{"name": name, "assignment": _decode(wire)} for name, wire in wires.items()]}

    def _observe(self, event: Json) -> None:
        state, kind = self.life.state, event["op"]
        if kind == "node":
            node = change_node(state.nodes[event["name"]], event)
            began = time.perf_counter()
            state.observe_node(node.name, node)
        elif kind == "pod":
            pod = self._read_pod(event)
            began = time.perf_counter()
            state.observe_pod(pod.key, pod)
        elif kind == "release":
            if event["id"] not in self._placed:
                return
            self._placed.remove(event["id"])
            began = time.perf_counter()
            self.life.release(f"{NAMESPACE}/{event['id']}")
        else:
            raise ValueError(f"operation {kind!r} is none of place, release, node, pod")
        self.seconds[kind].append(time.perf_counter() - began)

    def _read_pod(self, event: Json) -> PodFacts:
        """A pod's later events name no node and no requests; they are those of its first."""
        name, terminal = event["name"], event["phase"] in ("Succeeded", "Failed")
        known = self._pods.pop(name, None)
        if known is not None and terminal:
            return build_pod(name, known.node, {r: amount - (r == "pods") for r, amount in known.requests.items()}, terminal=True)
        pod = build_pod(name, event.get("node") or "", parse_resources(event.get("requests")), terminal=terminal)
        self._pods[name] = pod
        return pod


def _encode(found: Admissible) -> dict[str, dict[str, Any]]:
    return {placement.pod_set: encode(placement.assignment) for _, placement in found.placements}


def _decode(wire: Json) -> dict[str, Any]:
    assignment = decode(wire)
    domains = [{"values": list(domain.values), "count": domain.count} for domain in assignment.domains]
    return {"levels": list(assignment.levels), "domains": domains}


def _refused(refused: Refused) -> dict[str, Any]:
    refusal = refused.refusal
    failure: dict[str, Any] = {"kind": refusal.kind.value, "message": refused.message}
    if refusal.kind is RefusalKind.NOT_FIT:
        failure |= {"fit": refusal.fit, "of": refusal.wanted, "unit": refusal.unit}
    return {"ok": False, "pod_sets": [{"name": name, "failure": failure} for name in refusal.group or (refusal.pod_set,)]}


def summarize(runner: Runner) -> dict[str, Any]:
    """The figures of a life."""
    seconds = runner.seconds
    decisions = sorted(seconds["fit"] + seconds["not_fit"])
    events = seconds["node"] + seconds["pod"] + seconds["release"]
    return {
        "requests": len(decisions),
        "fit": len(seconds["fit"]),
        "not_fit": len(seconds["not_fit"]),
        "mean_ms": _mean(decisions, 1e3),
        "p50_ms": round(_percentile(decisions, 50) * 1e3, 3),
        "p99_ms": round(_percentile(decisions, 99) * 1e3, 3),
        "max_ms": round(max(decisions, default=0.0) * 1e3, 3),
        "fit_ms": _mean(seconds["fit"], 1e3),
        "not_fit_ms": _mean(seconds["not_fit"], 1e3),
        "events": len(events),
        "event_us": _mean(events, 1e6),
        **{f"{kind}_us": _mean(seconds[kind], 1e6) for kind in ("node", "pod", "release")},
        "rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10), 1),
    }


def _mean(figures: list[float], unit: float) -> float:
    return round(statistics.fmean(figures) * unit, 3) if figures else 0.0


def _percentile(ascending: list[float], percent: int) -> float:
    return ascending[min(len(ascending) - 1, len(ascending) * percent // 100)] if ascending else 0.0


def read_stream(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a stream, one at a time."""
    with path.open() as lines:
        for line in lines:
            yield json.loads(line)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.stream", description=__doc__.splitlines()[0])
    parser.add_argument("stream", nargs="?", type=Path, metavar="STREAM.jsonl", help="default: one of our own making")
    parser.add_argument("--nodes", type=int, default=10_240, help="of the stream of our own (default: %(default)s)")
    parser.add_argument("--requests", type=int, default=2000, help="of the stream of our own (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of the stream of our own (default: %(default)s)")
    parser.add_argument("--answers", type=Path, metavar="OUT.jsonl", help="where to write one answer per request")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    lines = read_stream(options.stream) if options.stream else build_stream(options.nodes, options.requests, options.seed)
    runner = Runner(next(lines))
    answers = runner.run(lines)
    if options.answers:
        with options.answers.open("w") as out:
            out.writelines(json.dumps(answer, separators=(",", ":")) + "\n" for answer in answers)
    else:
        for _ in answers:
            pass
    figures = summarize(runner)
    if options.json:
        print(json.dumps(figures))
        return 0
    print(f"{figures['requests']} decisions: {figures['fit']} fit, {figures['not_fit']} do not; {figures['rss_mb']} MB at most")
    print(f"  decision, ms: mean {figures['mean_ms']}, p50 {figures['p50_ms']}, p99 {figures['p99_ms']}, max {figures['max_ms']}", end="; ")
    print(f"fit {figures['fit_ms']}, not fit {figures['not_fit_ms']}; budget of the mean {MEAN_BUDGET_MS}")
    print(f"  event, us:    mean {figures['event_us']}", end="; ")
    print(f"node {figures['node_us']}, pod {figures['pod_us']}, release {figures['release_us']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

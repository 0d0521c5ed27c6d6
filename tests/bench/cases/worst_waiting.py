"""The worst cases of many workloads that wait: see `tests.bench.worst`."""

from __future__ import annotations

import time
from collections.abc import Generator
from functools import partial

from core.model.configuration import FairSharing
from core.names import HOSTNAME_LABEL
from core.placement.algorithms.profile import STANDARD
from core.plan.steps import pacing
from core.queueing.cycle.cycle import Cycle
from core.queueing.cycle.run import Verdict
from core.queueing.flavors.outcome import Admissible
from reconciler.schedule.scheduler import StepTime, may_go_on
from tests.bench.parts.steps import NODES, PODS, PREEMPTION_MS, WAITING_MS, Steps, ThreadClock, case
from tests.bench.preemption import GPUS, build, submit
from tests.builders import RACK, Node
from tests.queueing.shared import ALL_MAY, Shared


def in_pieces(cycle: Cycle) -> Generator[list[Verdict] | None, None, None]:
    """As the scheduler decides: cycles until one is not cut off, and between them the pieces of a long decision."""
    is_cut = True
    while is_cut:
        limit, verdicts = StepTime(ThreadClock(), pacing.DECIDING_S), list[Verdict]()
        for verdict in cycle.run(partial(may_go_on, limit, verdicts)):
            verdicts.append(verdict)
        is_cut = cycle.is_cut
        yield verdicts
        while cycle.is_deciding:
            cycle.run_piece(StepTime(ThreadClock(), pacing.PIECE_S).is_left)
            yield None


def waiting(count: int, shapes: int, sharing: FairSharing | None = None) -> Steps:
    """A full cluster, and many workloads that wait in two queues: of few shapes, or of many that are judged one by one."""
    scene = build(200, sharing=sharing)
    submit(scene, "all", 200, GPUS, queue="mine", required=False)
    scene.run()
    for i in range(count):
        queue = "mine" if i % 2 else "theirs"
        submit(scene, f"waiting-{i:06}", 1 + i % shapes % 2_000, GPUS, queue=queue, priority=i % shapes // 2_000)

    scene.cycle = Cycle(scene.state, STANDARD, sharing=sharing, timer=time.thread_time)

    def decide() -> Steps:
        yield from in_pieces(scene.cycle)
        scene.finish("all")
        yield from in_pieces(scene.cycle)

    return decide()


@case(WAITING_MS)
def waiting_50_000_alike() -> Steps:
    return waiting(50_000, 1)


@case(WAITING_MS)
def waiting_20_000_of_as_many_shapes() -> Steps:
    return waiting(20_000, 20_000)


@case(WAITING_MS)
def waiting_20_000_of_as_many_shapes_by_fair_share() -> Steps:
    return waiting(20_000, 20_000, FairSharing())


@case(WAITING_MS * 5 // 2)
def waiting_50_000_of_as_many_shapes_by_fair_share() -> Steps:
    return waiting(50_000, 50_000, FairSharing())


@case(PREEMPTION_MS)
def other_queue_behind_120_that_search_for_victims() -> Steps:
    """In a full cluster; until the workload of lowest priority, which has its quota and its place, is admitted."""
    scene, running = build(NODES), NODES - 100
    for i in range(running):
        submit(scene, f"running-{i:05}", 1, GPUS, queue="mine", priority=i % 3, required=False)
        if i % 500 == 499:
            scene.run()
    scene.run()
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "tas", "resources": [{"name": "cpu", "nominalQuota": 100}]}]}
    scene.queue("other", {}, resourceGroups=[group])
    scene.local_queue("other", "other")
    for i in range(120):
        submit(scene, f"standing-{i:03}", 1_500 + i, GPUS, queue="mine", priority=9, required=False)
    scene.submit("other", 1, cpu="1", queue="other")
    scene.cycle = Cycle(scene.state, STANDARD, timer=time.thread_time)

    def decide() -> Steps:
        for verdicts in in_pieces(scene.cycle):
            yield None
            if any(isinstance(one.outcome, Admissible) for one in verdicts or ()):
                return
        raise AssertionError("it is not admitted")

    return decide()


def rivals(topology: dict[str, object] | None, pods: int) -> Steps:
    """300 queues that lend. In each the first workload would borrow, and eight behind it have quota of their own and a place. One of
    another queue, of so many pods, would borrow before them: it is found out whether any of those would reclaim what it gets."""
    scene = Shared()
    for number in range(NODES):
        rack = f"rack-{number // 16:05}"
        scene.node(Node(f"node-{number:06}", {RACK: rack, HOSTNAME_LABEL: f"node-{number:06}"}, {"cpu": 16_000, "pods": 110}))
    if topology is None:
        scene.flavor("tas")
    scene.pool("lender", str(16 * NODES), "all")
    scene.pool("taker", "0", "all", preemption=ALL_MAY)
    scene.submit("taker", pods, queue="taker", priority=3, topology=topology)
    for number in range(300):
        scene.pool(f"q{number}", "10", "all", preemption=ALL_MAY)
        scene.submit(f"first-{number}", 11, queue=f"q{number}", priority=2, topology=topology)
        for behind in range(8):
            scene.submit(f"behind-{number}-{behind}", 1 + behind, queue=f"q{number}", priority=1, topology=topology)
    scene.cycle = Cycle(scene.state, STANDARD, timer=time.thread_time)
    return in_pieces(scene.cycle)


@case(WAITING_MS)
def borrower_beside_2_400_that_might_reclaim() -> Steps:
    return rivals({"required": RACK}, 1)


@case(WAITING_MS)
def borrower_of_50_000_pods_beside_2_400_that_might_reclaim() -> Steps:
    return rivals({"unconstrained": True}, PODS)


@case(WAITING_MS)
def borrower_beside_2_400_that_might_reclaim_without_a_topology() -> Steps:
    return rivals(None, 1)

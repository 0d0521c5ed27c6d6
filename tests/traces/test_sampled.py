"""A share of none, and yet whoever is refused has the whole story on the trace: both processes agree without a word to each other."""

from __future__ import annotations

import contextlib

import pytest

from core.names import QUOTA_RESERVED
from e2e.api import wait_for
from e2e.audit import stories, truth
from e2e.audit.otlp import Receiver
from e2e.cluster import Cluster
from tests.installed import Installed
from tests.traces.scene import scene

pytestmark = pytest.mark.cluster
REVIEW = "admission.review"
SLOW = ["--trace-slow", "60"]  # on a busy machine a write may well take a quarter of a second


def test_sampled_traces_contain_only_the_job_that_waited(cluster: Cluster, installed: Installed):
    with contextlib.ExitStack() as stack:
        receiver = stack.enter_context(Receiver())
        running = installed.run(otlp_endpoint=receiver.endpoint, flags=["--trace-ratio", "0", *SLOW], is_fresh=True)
        here = stack.enter_context(scene(cluster, "sampled"))
        here.submit("first", pods=1, gpus=1)  # may be refused for a moment: the queue, or its nodes, are not seen yet
        here.wait_bound("first", 1)
        here.submit("fits", pods=2, gpus=8)
        here.wait_bound("fits", 2)
        here.submit("waits", pods=4, gpus=8)  # a rack has two nodes
        sentence = wait_for("a reason", lambda: truth.get_condition(here.read().workload_of("waits"), QUOTA_RESERVED).get("message"))
        fits, waits = here.story("fits"), here.story("waits")
        wait_for("the refusal", lambda: not stories.find_unreported_refusals(here.read().workloads, receiver.list_spans) or None)
        steps = (REVIEW, "workload.create", "placement.solve")  # of two processes, each of which sends once a second
        wait_for("the whole of it", lambda: not stories.find_problems(receiver.list_spans(waits), steps) or None)
        wait_for("the beginning of the other", lambda: receiver.list_spans(fits) or None)
        running.kill_reconciler()
        told = receiver.list_spans(waits)
        assert sentence in {span.attributes.get("topogate.message") for span in told}
        assert {span.name for span in receiver.list_spans(fits)} == {REVIEW}
        assert [span.attributes.get("topogate.trace.begins") for span in receiver.list_spans(fits)] == [True]
        cycles = [span for span in receiver.list_spans() if span.name == "scheduler.cycle"]
        assert cycles
        assert all(cycle.attributes["topogate.refused"] for cycle in cycles)

"""What `examples/` and docs/pods.md show is accepted, as their readers would apply it, and without a warning."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from core.jobs.kinds.pod_kinds import list_pod_kinds
from core.jobs.kinds.registry import KINDS
from core.jobs.objects import OBJECTS
from e2e import manifests
from e2e.api import wait_for
from e2e.cluster import Cluster
from e2e.topogate import Topogate
from tests.webhook.asking import Webhook, get_causes, hook
from tests.webhook.reviews.test_group_reviews import list_groups, mutated, validate_object

ROOT = Path(__file__).parents[3]
REFUSED = "job-three-mistakes.yaml"
UNQUEUED = "podgroups.md"  # which is about pods without a queue: the API server judges what it shows
EXAMPLES = {
    path.name: path.read_text()
    for path in (*sorted((ROOT / "examples").glob("*.yaml")), *sorted((ROOT / "examples" / "kinds").glob("*.yaml")))
}
DOCUMENTED = {
    f"{path.name} {i}": text
    for path in sorted((ROOT / "docs").rglob("*.md"))
    for i, text in enumerate(re.findall(r"^```yaml\n(.*?)^```$", path.read_text(), re.MULTILINE | re.DOTALL))
    if text.startswith("apiVersion:") and path.name != UNQUEUED
}
JUDGED = {rules.kind for rules in OBJECTS}
UNJUDGED = {"AdmissionCheck", "ConfigMap", "LocalQueue", "ProvisioningRequestConfig", "Service", "TrainingRuntime", "WorkloadPriorityClass"}


def objects(text: str) -> list[dict[str, Any]]:
    return [obj for obj in yaml.safe_load_all(text) if obj is not None]


def asked(obj: dict[str, Any]) -> dict[str, Any]:
    """The answer to the object's creation, after its defaults."""
    webhook = Webhook()
    return webhook.validate(webhook.mutate(obj))


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in (EXAMPLES | DOCUMENTED).items() if name != REFUSED])
def test_an_example_is_accepted_without_a_warning(text: str):
    judged = [obj for obj in objects(text) if obj["kind"] not in UNJUDGED]
    for obj in judged:
        assert asked(obj) == {"uid": "4f0c", "allowed": True}, obj["metadata"]["name"]
        if obj["kind"] not in JUDGED:
            changed = Webhook().ask(hook("mutate", obj["kind"]), obj)
            assert "patch" in changed, "it is queued"


@pytest.mark.parametrize("path", sorted((ROOT / "examples" / "podgroups").glob("*.yaml")), ids=lambda path: path.name)
def test_an_example_without_a_queue_asks_for_a_group_and_is_accepted_without_a_warning(path: Path):
    for obj in objects(path.read_text()):
        assert validate_object(mutated(obj)) == {"uid": "4f0c", "allowed": True}
        assert all(list_groups(mutated(obj)))


def test_the_three_mistakes_are_three():
    (obj,) = objects(EXAMPLES[REFUSED])
    assert len(get_causes(asked(obj))) == 3


def test_there_is_an_example_of_every_way_to_be_queued():
    kinds = {obj["kind"] for text in EXAMPLES.values() for obj in objects(text)}
    assert {kind.kind for kind in (*KINDS, *list_pod_kinds())} <= kinds


def test_pods_of_the_example_of_a_group_are_one_group():
    pods = objects(EXAMPLES["pod-group.yaml"])
    shown = [group_of(pod) for pod in pods]
    assert len({name for name, _ in shown}) == 1
    assert {total for _, total in shown} == {str(len(pods))}


def group_of(pod: dict[str, Any]) -> tuple[str, str]:
    metadata = pod["metadata"]
    return metadata["labels"]["kueue.x-k8s.io/pod-group-name"], metadata["annotations"]["kueue.x-k8s.io/pod-group-total-count"]


def test_documents_name_the_python_that_has_the_packages():
    bare = re.compile(r"^ {4,}python3? (?!.*: \d+ mistakes).*$|# python3? -m .*$", re.MULTILINE)
    found = {path.name: bare.findall(path.read_text()) for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))}
    assert {name: commands for name, commands in found.items() if commands} == {}


@pytest.mark.cluster
def test_the_api_server_takes_them_too(cluster: Cluster, topogate: Topogate):
    """But for kinds whose CRDs are not there. They name a queue, which draws a warning where it or its ClusterQueue is not there."""
    whole = manifests.build_cluster_queue("research", {"of-examples": {"cpu": 1}})
    for queue in (whole, manifests.build_local_queue("main", "default", "research")):
        cluster.kubectl("apply", "-f", "-", input=json.dumps(queue))
    try:
        for path in sorted((ROOT / "examples").glob("*.yaml")):
            if path.name not in (REFUSED, "jobset.yaml"):
                wait_for(f"{path.name} to draw no warning", partial(is_taken, cluster, path))
    finally:
        cluster.kubectl("delete", "localqueue", "main", "--namespace=default")
        cluster.kubectl("delete", "clusterqueue", "research")


def is_taken(cluster: Cluster, path: Path) -> bool:
    try:
        cluster.kubectl("apply", "--warnings-as-errors", "--dry-run=server", "-f", str(path))
    except RuntimeError as error:
        if "has no LocalQueue main" in str(error) or "names ClusterQueue research" in str(error):
            return False  # the webhook knows the queues a moment later
        raise
    return True


def test_kinds_guide_has_a_heading_for_each_kind_and_links_existing_examples():
    text = (ROOT / "docs" / "kinds.md").read_text()
    headings = {kind.strip() for line in re.findall(r"^## (.*)$", text, re.MULTILINE) for kind in line.split(",")}
    assert {kind.kind for kind in KINDS} | {"StatefulSet", "Deployment", "LeaderWorkerSet", "Pods"} <= headings
    for path in re.findall(r"\]\(\.\./(examples/[^)]*)\)", text):
        assert (ROOT / path).is_file(), path

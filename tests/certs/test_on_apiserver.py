"""Two webhooks that make and rotate their own certificates, on the real API server: what was decided on paper holds there."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest

from certs.pki import issue_ca
from certs.rotation import FIELD_MANAGER, KINDS, SECRETS, BundleHolder, _patch
from core.resource import PatchKind
from core.runtime.http.client import Client
from core.runtime.http.errors import Conflict
from e2e import manifests
from e2e.api import APPLY_PATCH, wait_for
from e2e.cluster import Cluster
from tests.certs.in_memory import START
from tests.certs.replicas import CONVERTED, REGISTRATIONS, Replicas
from tests.long import mark_long

# So they look every half second, and a rotation takes some ten.
SHORT = ("--cert-settle=1", "--cert-overlap=8")
FOREIGN = issue_ca("somebody else", START).certificate


@pytest.fixture(scope="module")
def shared(cluster: Cluster, crds: list[str]) -> Iterator[Replicas]:
    """Two at rest, for all tests that leave them so."""
    cluster.create_namespace("own-certificates")
    with Replicas(cluster, "own-certificates", *SHORT, converts=True) as replicas:
        yield replicas.start()
    cluster.delete_namespace("own-certificates")


@pytest.fixture
def replicas(shared: Replicas) -> Replicas:
    wait_for("what a test before has done to be mended", shared.is_at_rest)
    return shared


def test_two_replicas_that_start_together_create_and_publish_one_ca(replicas: Replicas):
    assert len(replicas.step_times("there is no Secret yet")) == 1, "of two that create it one is told that it is there"
    assert replicas.api.get(replicas.secret_path)["type"] == "kubernetes.io/tls"
    secret = replicas.secret()
    assert [replicas.served(number) for number in range(2)] == [secret["tls.crt"]] * 2
    assert replicas.bundles() == dict.fromkeys(replicas.configurations, secret["ca.crt"])
    assert replicas.why_no_job() == ""


def test_objects_are_converted_by_it(replicas: Replicas):
    assert "localqueues.kueue.x-k8s.io" in CONVERTED
    queue = manifests.build_local_queue("q", replicas.namespace, "nowhere")
    replicas.api.create(manifests.get_path(queue), queue)
    found = replicas.api.get(f"{manifests.get_path(queue).replace('v1beta2', 'v1beta1')}/q")
    assert (found["apiVersion"], found["spec"]["clusterQueue"]) == ("kueue.x-k8s.io/v1beta1", "nowhere")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "apiservice"])
async def test_patch_of_a_configuration_changed_since_it_was_read_is_a_conflict(replicas: Replicas, kind: str):
    one = next(one for one in map(as_configuration, replicas.configurations) if one.kind == kind)
    resource = KINDS[kind]
    async with await Client.connect(str(replicas.cluster.kubeconfig), user_agent="test") as client:
        read = await client.get(resource, one.name)
        bundle = base64.b64decode(_patch(one, read, replicas.secret()["ca.crt"])[1]["value"])
        await client.patch(resource, one.name, None, {"metadata": {"annotations": {"e2e": "x"}}}, kind=PatchKind.MERGE)
        with pytest.raises(Conflict) as refused:
            await client.patch(resource, one.name, None, _patch(one, read, bundle), kind=PatchKind.JSON, field_manager=FIELD_MANAGER)
        assert (refused.value.status, refused.value.reason) == (409, "Conflict")
        again = await client.get(resource, one.name)
        await client.patch(resource, one.name, None, _patch(one, again, bundle), kind=PatchKind.JSON, field_manager=FIELD_MANAGER)
        await client.patch(resource, one.name, None, {"metadata": {"annotations": {"e2e": None}}}, kind=PatchKind.MERGE)


async def test_a_secret_that_has_changed_or_is_there_is_a_conflict(replicas: Replicas):
    async with await Client.connect(str(replicas.cluster.kubeconfig), user_agent="test") as client:
        read = await client.get(SECRETS, "certs", replicas.namespace)
        metadata = {"metadata": {"annotations": {"e2e": "x"}}}
        await client.patch(SECRETS, "certs", replicas.namespace, metadata, kind=PatchKind.MERGE)
        with pytest.raises(Conflict):
            await client.replace(SECRETS, read, field_manager=FIELD_MANAGER)
        with pytest.raises(Conflict):
            await client.create(SECRETS, {"metadata": {"name": "certs"}}, replicas.namespace)


def as_configuration(text: str) -> BundleHolder:
    kind, _, name = text.partition("/")
    return BundleHolder(kind, name)


@pytest.mark.parametrize("bundle", [None, FOREIGN], ids=["taken away", "of somebody else"])
def test_a_bundle_that_is_edited_by_hand_heals(replicas: Replicas, bundle: bytes | None):
    wanted = replicas.bundles()
    for one in (*replicas.configurations[:2], f"crd/{CONVERTED[0]}"):
        replicas.edit_bundle(one, bundle)
    wait_for("the bundles to be as before", lambda: replicas.bundles() == wanted)
    wait_for("jobs to be taken again", lambda: replicas.why_no_job() == "")
    wait_for("both to be ready", replicas.are_ready)


def test_applied_manifest_without_a_ca_bundle_keeps_the_bundle_and_may_remove_a_webhook(replicas: Replicas):
    """As a GitOps tool does, by server-side apply, again and again."""
    for obj in replicas.registered():
        path = f"{manifests.get_path(obj)}/{obj['metadata']['name']}?fieldManager=gitops&force=true"
        (hook,) = obj["webhooks"]
        more = {**obj, "webhooks": [hook, {**hook, "name": f"more.{hook['name']}"}]}
        replicas.api.patch(path, more, APPLY_PATCH)

        def all_have_it(path: str = path) -> bool:
            return {h["clientConfig"].get("caBundle") for h in replicas.api.get(path)["webhooks"]} == {
                base64.b64encode(replicas.secret()["ca.crt"]).decode()
            }

        wait_for("the new webhook to have it, too", all_have_it)
        replicas.api.patch(path, more, APPLY_PATCH)
        assert all_have_it(), "applied again, it is not taken away"
        replicas.api.patch(path, obj, APPLY_PATCH)
        assert len(replicas.api.get(path)["webhooks"]) == 1


def test_a_lost_secret_is_made_anew_and_no_job_is_refused_meanwhile(replicas: Replicas):
    before = replicas.secret()
    replicas.api.delete(replicas.secret_path)
    refused = []

    def is_mended() -> bool:
        refused.append(replicas.why_no_job())
        return replicas.is_at_rest() and {replicas.served(number) for number in range(2)} == {replicas.secret()["tls.crt"]}

    wait_for("a new CA, and none but it", is_mended)
    assert replicas.secret()["signer.crt"] != before["signer.crt"]
    assert len(refused) > 10
    assert set(refused) == {""}


def test_a_secret_that_is_set_back_is_taken_over_and_no_job_is_refused_meanwhile(replicas: Replicas):
    """By a restored backup, or a GitOps tool that has kept it."""
    before = replicas.api.get(replicas.secret_path)
    replicas.api.delete(replicas.secret_path)
    wait_for(
        "a new CA", lambda: replicas.is_at_rest() and replicas.secret()["signer.crt"] != base64.b64decode(before["data"]["signer.crt"])
    )
    replicas.api.patch(replicas.secret_path, {"data": before["data"]})
    refused = []

    def is_back() -> bool:
        refused.append(replicas.why_no_job())
        shown = {base64.b64encode(replicas.served(number)).decode() for number in range(2)}
        return replicas.is_at_rest() and shown == {before["data"]["tls.crt"]}

    wait_for("the CA of before, and none but it", is_back)
    assert set(refused) == {""}


def test_a_new_ca_is_made_when_it_is_asked_for_and_objects_are_converted_all_the_time(replicas: Replicas):
    before = replicas.secret()
    queue = manifests.build_local_queue("read", replicas.namespace, "nowhere")
    replicas.api.create(manifests.get_path(queue), queue)
    old = f"{manifests.get_path(queue).replace('v1beta2', 'v1beta1')}/read"
    replicas.rotate()

    def is_done() -> bool:
        assert replicas.api.get(old)["apiVersion"] == "kueue.x-k8s.io/v1beta1"
        return replicas.is_at_rest() and replicas.secret()["signer.crt"] != before["signer.crt"]

    wait_for("a new CA, and none but it", is_done)
    assert "annotations" not in replicas.api.get(replicas.secret_path)["metadata"]
    assert replicas.why_no_job() == ""


def test_replicas_stay_ready_when_one_webhook_configuration_is_deleted(replicas: Replicas):
    _, validating = replicas.registered()
    path = f"{REGISTRATIONS}/validatingwebhookconfigurations/{replicas.name}"
    replicas.api.delete(path)
    wait_for("it to be told", lambda: len(gone(replicas)) == 2)
    wait_for("both to be ready all the same", replicas.are_ready)
    assert replicas.api.find(path) is None
    replicas.api.create(manifests.get_path(validating), validating)
    wait_for("jobs to be taken again", lambda: replicas.why_no_job() == "")


def gone(replicas: Replicas) -> list[str]:
    told = (line["error"] for line in replicas.lines("certificates not in order"))
    return [error for error in told if error == f"validating/{replicas.name} is gone"]


@pytest.mark.parametrize("but", mark_long(["validating", "secret"], but={1}))
def test_missing_right_of_a_replica_is_reported_by_its_readiness_probe(cluster: Cluster, namespace: str, but: str):
    with Replicas(cluster, namespace, *SHORT) as replicas:
        replicas.grant(but=but)
        replicas.start(wait=False)
        user = f'User "system:serviceaccount:{namespace}:webhook" cannot'
        said = {
            "validating": f'not ready: 403 Forbidden: validatingwebhookconfigurations.admissionregistration.k8s.io "{replicas.name}" is '
            f"forbidden: {user} get resource",
            "secret": f'not ready: 403 Forbidden: secrets "certs" is forbidden: {user} get resource "secrets"',
        }[but]
        wait_for("the reason", lambda: replicas.readiness(0).startswith(said))
        replicas.grant()
        wait_for("it to be ready", replicas.are_ready)
        assert replicas.why_no_job() == ""


def test_readiness_without_the_right_to_patch_names_the_unwritten_configuration(cluster: Cluster, namespace: str):
    with Replicas(cluster, namespace, *SHORT) as replicas:
        replicas.grant(only_get="validating")
        replicas.start(wait=False)
        one = f"validating/{replicas.name}"
        said = f"not ready: {one}: there is no CA bundle; {one} is not written: 403 Forbidden: "
        wait_for("the reason", lambda: replicas.readiness(0).startswith(said))
        assert replicas.bundles()[f"mutating/{replicas.name}"] == replicas.secret()["ca.crt"]
        replicas.grant()
        wait_for("it to be ready", replicas.are_ready)


def test_the_api_server_may_call_an_address(cluster: Cluster, namespace: str):
    with Replicas(cluster, namespace, *SHORT, by_url=True) as replicas:
        replicas.start()
        assert replicas.why_no_job() == ""

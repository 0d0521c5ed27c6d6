"""Two replicas and an API server in memory: they race, are refused, are lied to by hand, and end in the same place."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

import pytest

from certs.rotation import Rotation
from core.names import ROTATE_CA
from core.runtime.http.errors import Forbidden, ServerError
from core.runtime.serving.tls import PairNotServed
from sim.apiserver.server import Change
from tests.certs.in_memory import (
    APISERVICE,
    CONFIGURATIONS,
    CRD,
    MUTATING,
    START,
    TARGET,
    VALIDATING,
    Replica,
    Server,
    build_configuration_object,
    is_accepted,
)

FORBIDDEN = Forbidden(403, "Forbidden", "webhooks may not do that")


def is_accepted_by_all(server: Server, replica: Replica) -> bool:
    return all(is_accepted(bundle, replica.rotation.served, replica.clock.true) for one in CONFIGURATIONS for bundle in server.bundles(one))


def test_from_nothing_to_ready_in_one_look():
    server = Server()
    replica = Replica(server)
    assert replica.rotation.find_unready_reason() == "no serving certificate yet"
    replica.look()
    assert replica.rotation.find_unready_reason() == ""
    assert is_accepted_by_all(server, replica)
    assert len(replica.handed) == 1
    writes = len(server.tried)
    replica.look()
    assert len(server.tried) == writes, "at rest nothing is written"


@pytest.mark.parametrize("turns", range(1, 9))
def test_two_that_start_at_once_agree(turns):
    server = Server(pausing=True)
    one, two = Replica(server), Replica(server)
    for _ in range(40):
        for _ in range(turns):
            one.step()
        two.step()
    one.look()
    two.look()
    assert one.rotation.served == two.rotation.served
    assert one.rotation.find_unready_reason() == two.rotation.find_unready_reason() == ""


def test_of_two_that_create_the_secret_one_succeeds_and_the_other_reads_it():
    server = Server(pausing=True)
    one, two = Replica(server), Replica(server)
    reads = 2 * len(CONFIGURATIONS) + 1  # configurations, Secret, configurations again
    for replica in (one, two):
        for _ in range(reads + 1):
            replica.step()
    assert server.tried == []
    one.look()
    two.look()
    assert server.tried.count("secrets") == 3, "made once, after an attempt that failed, and marked as trusted once"
    assert one.rotation.served == two.rotation.served


def test_rotation_requested_by_annotation_reaches_all_replicas():
    server = Server()
    one, two = Replica(server), Replica(server)
    one.look()
    two.look()
    before = server.secret["signer.crt"]
    server.annotate_secret(**{"topogate.dev__rotate-ca": "", "kept": "yes"})
    one.look()
    assert server.get("Secret", "certs")["metadata"]["annotations"] == {"kept": "yes"}
    assert server.secret["next.crt"] in server.bundles(CRD)[0]
    assert one.rotation.served == two.rotation.served
    for replica in (one, two):
        replica.clock.true += timedelta(minutes=2)
    one.look()
    assert one.rotation.served != two.rotation.served
    assert is_accepted_by_all(server, one)
    assert is_accepted_by_all(server, two)
    two.look()
    for replica in (one, two):
        replica.clock.true += timedelta(days=2)
    two.look()
    one.look()
    assert before not in server.bundles(MUTATING)[0]
    assert one.rotation.find_unready_reason() == two.rotation.find_unready_reason() == ""


def test_a_former_ca_that_is_taken_out_of_the_secret_is_trusted_no_more():
    server = Server()
    one, two = Replica(server), Replica(server)
    one.look()
    former = server.secret["signer.crt"]
    server.annotate_secret(**{"topogate.dev__rotate-ca": ""})
    one.look()
    for replica in (one, two):
        replica.clock.true += timedelta(minutes=2)
        replica.look()
    assert all(former in bundle for bundle in server.bundles(MUTATING))
    server.edit_secret(retiring_crt=None)
    two.look()
    assert not any(former in bundle for configuration in CONFIGURATIONS for bundle in server.bundles(configuration))
    assert one.rotation.served == two.rotation.served
    assert is_accepted_by_all(server, one)


@pytest.mark.parametrize("bundle", [None, b"", b"\0garbage", b"wrong"])
@pytest.mark.parametrize("one", CONFIGURATIONS, ids=str)
def test_an_edited_bundle_is_healed_by_the_next_look(one, bundle):
    server = Server()
    replica = Replica(server)
    replica.look()
    published = server.bundles(one)
    server.edit(one, bundle)
    replica.look()
    assert server.bundles(one) == published
    assert replica.rotation.find_unready_reason() == ""


def test_one_configuration_that_may_not_be_written_keeps_it_from_ready_and_the_others_in_order(caplog):
    server = Server()
    server.fail["patch", "validatingwebhookconfigurations"] = FORBIDDEN
    replica = Replica(server)
    with caplog.at_level(logging.WARNING):
        replica.look()
        replica.look()
    refused = "validating/v is not written: 403 Forbidden: webhooks may not do that"
    assert replica.rotation.find_unready_reason() == f"validating/v: there is no CA bundle; {refused}"
    assert server.bundles(MUTATING) == [server.secret["ca.crt"]] * 2
    assert server.bundles(CRD) == [server.secret["ca.crt"]]
    assert "trusted-since" not in server.secret
    (line,) = caplog.records
    assert vars(line)["error"] == refused
    server.fail.clear()
    replica.look()
    assert replica.rotation.find_unready_reason() == ""


def test_missing_webhook_configuration_is_reported_and_gets_its_bundle_once_created():
    server = Server([MUTATING, CRD])
    replica = Replica(server)
    replica.look()
    assert replica.rotation.find_unready_reason() == "validating/v does not exist or has no webhook"
    server.put(build_configuration_object(VALIDATING))
    replica.look()
    assert replica.rotation.find_unready_reason() == ""


def test_rotation_without_rights_on_the_secret_reports_it():
    server = Server()
    server.fail["get", "secrets"] = FORBIDDEN
    replica = Replica(server)
    replica.look()
    assert replica.error is FORBIDDEN
    assert replica.rotation.find_unready_reason() == "no serving certificate yet"


def test_an_api_server_that_is_away_for_a_while_changes_nothing_and_for_long_makes_it_not_ready():
    server = Server()
    replica = Replica(server)
    replica.look()
    for verb_of in ("secrets", "mutatingwebhookconfigurations"):
        server.fail["get", verb_of] = ServerError(503, "", "away")
    replica.clock.true += timedelta(hours=5)
    replica.look()
    assert replica.rotation.find_unready_reason() == ""
    replica.clock.true += timedelta(hours=2)
    assert replica.rotation.find_unready_reason().startswith("the serving certificate could not be confirmed for 21600 s: ")
    server.fail.clear()
    replica.look()
    assert replica.rotation.find_unready_reason() == ""


def test_a_lost_secret_is_made_anew_while_the_other_goes_on_serving():
    server = Server()
    one, two = Replica(server), Replica(server)
    one.look()
    two.look()
    first = one.rotation.served
    server.edit_secret(signer_key=b"oops")
    one.look()
    assert one.rotation.served == first, "API servers may not have learnt of the new CA yet"
    assert_both_come_over(server, one, two)
    assert one.rotation.served != first


def assert_both_come_over(server: Server, one: Replica, two: Replica) -> None:
    """To what the Secret says, and are accepted all the time."""
    for replica in (one, two):
        replica.clock.true += timedelta(minutes=2)
    one.look()
    for replica in (one, two):
        assert is_accepted_by_all(server, replica)
        assert replica.rotation.find_unready_reason() == ""
    assert one.rotation.served != two.rotation.served
    two.look()
    assert one.rotation.served == two.rotation.served
    assert is_accepted_by_all(server, two)


def test_secret_restored_from_an_earlier_version_breaks_no_replica():
    server = Server()
    one, two = Replica(server), Replica(server)
    one.look()
    earlier = server.get("Secret", "certs")
    two.look()
    server.annotate_secret(**{"topogate.dev__rotate-ca": ""})
    for days in (0, 1, 2):
        for replica in (one, two):
            replica.clock.true += timedelta(days=days, minutes=2)
            replica.look()
    in_use = server.secret["signer.crt"]
    assert server.bundles(CRD) == [in_use]
    server.put(earlier)
    one.look()
    for replica in (one, two):
        assert is_accepted_by_all(server, replica)
    assert server.secret["retiring.crt"] == in_use
    assert_both_come_over(server, one, two)


def test_replica_with_a_clock_far_behind_writes_nothing_and_is_not_ready(caplog):
    server = Server()
    Replica(server).look()
    writes = list(server.tried)
    late = Replica(server, timedelta(days=-9000))
    with caplog.at_level(logging.WARNING):
        late.look()
        late.look()
    assert server.tried == writes
    assert late.rotation.find_unready_reason().startswith("by our clock it is 2001-")
    assert len(caplog.records) == 1


def test_replica_stays_ready_when_a_known_configuration_is_deleted(caplog):
    """Deleting one is what an administrator does in an emergency."""
    server = Server()
    replica = Replica(server)
    replica.look()
    gone = server.configuration(VALIDATING)
    server.drop(gone["kind"], "v")
    with caplog.at_level(logging.WARNING):
        replica.look()
        replica.look()
    assert replica.rotation.find_unready_reason() == ""
    assert [vars(record)["error"] for record in caplog.records] == ["validating/v is gone"]
    late = Replica(server)
    late.look()
    assert late.rotation.find_unready_reason() == "validating/v does not exist or has no webhook", "who has never seen it cannot know"
    server.put(gone)
    replica.look()
    assert replica.rotation.find_unready_reason() == ""


def test_concurrent_writer_of_webhook_configurations_is_logged(caplog):
    server = Server()
    replica = Replica(server)
    replica.look()

    def undo(_: Change) -> None:
        if server.bundles(MUTATING) != [b"\0mine"] * 2:
            server.edit(MUTATING, b"\0mine")

    server.server.on_change.append(undo)
    server.edit(MUTATING, b"\0mine")
    with caplog.at_level(logging.WARNING):
        replica.look()
    (line,) = caplog.records
    assert vars(line)["error"] == "after 12 steps something was changed again: another client writes the Secret or the configurations"


def test_rotation_reports_the_end_of_the_served_certificate():
    replica = Replica(Server())
    assert replica.rotation.not_after is None
    replica.look()
    assert replica.rotation.not_after == START.replace(microsecond=0) + timedelta(days=365)


def test_secret_created_by_another_client_keeps_its_type_and_labels():
    server = Server()
    metadata = {"name": "certs", "namespace": "ns", "labels": {"helm": "yes"}, "managedFields": [{}]}
    server.put({"kind": "Secret", "metadata": metadata, "type": "Opaque", "data": {}})
    replica = Replica(server)
    replica.look()
    secret = server.get("Secret", "certs")
    assert (secret["type"], secret["metadata"]["labels"]) == ("Opaque", {"helm": "yes"})
    assert replica.rotation.find_unready_reason() == ""


class Enough(Exception):
    pass


class FewLooks:
    """Ends the loop after some sleeps."""

    def __init__(self, looks: int) -> None:
        self.left = looks
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return sum(self.slept)

    def read_timer(self) -> float:
        return self.monotonic()

    def now(self):
        return START + timedelta(seconds=self.monotonic())

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.left -= 1
        if not self.left:
            raise Enough


async def test_rotation_loop_survives_errors_logs_them_once_and_runs_each_ten_seconds(caplog):
    server = Server()
    server.fail["get", "secrets"] = FORBIDDEN
    clock = FewLooks(3)
    with caplog.at_level(logging.WARNING), pytest.raises(Enough):
        await Rotation(server.client, TARGET, lambda pair: None, clock).run()
    assert clock.slept == [10.0] * 3
    assert [vars(record)["error"] for record in caplog.records] == [str(FORBIDDEN)]


@pytest.mark.parametrize("where", [("patch", "validatingwebhookconfigurations"), ("create", "secrets")])
async def test_repeated_refusal_of_a_rotation_write_is_logged_once(caplog, where):
    server = Server()
    server.fail[where] = FORBIDDEN
    with caplog.at_level(logging.WARNING), pytest.raises(Enough):
        await Rotation(server.client, TARGET, lambda pair: None, FewLooks(5)).run()
    assert len(caplog.records) == 1


def test_nothing_secret_is_logged(caplog):
    server = Server()
    replica = Replica(server)
    with caplog.at_level(logging.DEBUG):
        replica.look()
        server.edit_secret(signer_key=b"oops")
        replica.look()
    assert caplog.records
    for record in caplog.records:
        assert "PRIVATE KEY" not in str(vars(record))
        assert "oops" not in str(vars(record))


async def test_rotation_goes_on_after_a_pair_that_cannot_be_served(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch):
    """Found by a reader: with a CA file of clients that was half written a rotation ended the webhook."""
    replica, tried, is_served = Replica(Server()), list[object](), asyncio.Event()

    def serve(pair: object) -> None:
        tried.append(pair)
        if len(tried) == 1:
            raise PairNotServed("ca.crt: not PEM")
        is_served.set()

    replica.rotation._serve = serve
    monkeypatch.setattr(replica.clock, "sleep", lambda _: asyncio.sleep(0), raising=False)
    with caplog.at_level(logging.WARNING):
        working = asyncio.create_task(replica.rotation.run())
        await is_served.wait()
    working.cancel()
    await asyncio.wait([working])
    assert [vars(record)["error"] for record in caplog.records] == ["ca.crt: not PEM"]
    assert replica.rotation.find_unready_reason() == ""


def test_replica_without_the_api_service_stays_ready_for_the_webhooks():
    """The visibility API has a server of its own: the webhook's pods must not leave their Service for it."""
    server = Server((MUTATING, VALIDATING, CRD))
    replica = Replica(server)
    replica.look()
    assert replica.rotation.find_unready_reason() == ""
    server.put(build_configuration_object(APISERVICE))
    replica.look()
    assert server.bundles(APISERVICE) == [server.secret["ca.crt"]]


def test_api_service_that_may_not_be_read_or_takes_no_ca_holds_up_no_rotation():
    server = Server((MUTATING, VALIDATING, CRD))
    service = build_configuration_object(APISERVICE)
    server.put({**service, "spec": {**service["spec"], "insecureSkipTLSVerify": True}})
    replica = Replica(server)
    replica.look()
    assert replica.rotation.find_unready_reason() == ""
    assert server.bundles(APISERVICE) == [b""]
    first = server.secret["ca.crt"]
    server.annotate_secret(**{ROTATE_CA.replace("/", "__"): "now"})
    server.fail["get", "apiservices"] = FORBIDDEN
    for _ in range(10):
        replica.clock.true += timedelta(minutes=2)
        replica.look()
    assert server.secret["signer.crt"] not in first
    assert replica.rotation.find_unready_reason() == ""

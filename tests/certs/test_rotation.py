"""Two replicas and an API server on paper: they race, are refused, are lied to by hand, and end in the same place."""

from __future__ import annotations

import logging
from datetime import timedelta

import pytest

from certs.rotation import Rotation
from core.runtime.errors import Forbidden, ServerError
from tests.certs.paper import CONFIGURATIONS, CRD, MUTATING, START, TARGET, VALIDATING, Replica, Server, accepts

FORBIDDEN = Forbidden(403, "Forbidden", "webhooks may not do that")


def all_accept(server: Server, replica: Replica) -> bool:
    return all(accepts(bundle, replica.rotation.served, replica.clock.true) for one in CONFIGURATIONS for bundle in server.bundles(one))


def test_from_nothing_to_ready_in_one_look():
    server = Server()
    replica = Replica(server)
    assert replica.rotation.why_not_ready() == "no serving certificate yet"
    replica.look()
    assert replica.rotation.why_not_ready() == ""
    assert all_accept(server, replica)
    assert len(replica.handed) == 1
    writes = len(server.writes)
    replica.look()
    assert len(server.writes) == writes, "at rest nothing is written"


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
    assert one.rotation.why_not_ready() == two.rotation.why_not_ready() == ""


def test_of_two_that_create_the_secret_one_succeeds_and_the_other_reads_it():
    server = Server(pausing=True)
    one, two = Replica(server), Replica(server)
    reads = 2 * len(CONFIGURATIONS) + 1  # configurations, Secret, configurations again
    for replica in (one, two):
        for _ in range(reads + 1):
            replica.step()
    assert server.writes == []
    one.look()
    two.look()
    assert server.writes.count("secrets") == 2, "made once, marked as trusted once"
    assert one.rotation.served == two.rotation.served


def test_asked_for_a_new_ca_they_rotate_and_nobody_is_left_behind():
    server = Server()
    one, two = Replica(server), Replica(server)
    one.look()
    two.look()
    before = server.secret["signer.crt"]
    server.annotate_secret(**{"topogate.dev__rotate-ca": "", "kept": "yes"})
    one.look()
    assert server.objects["secrets", "certs"]["metadata"]["annotations"] == {"kept": "yes"}
    assert server.secret["next.crt"] in server.bundles(CRD)[0]
    assert one.rotation.served == two.rotation.served
    for replica in (one, two):
        replica.clock.true += timedelta(minutes=2)
    one.look()
    assert one.rotation.served != two.rotation.served
    assert all_accept(server, one)
    assert all_accept(server, two)
    two.look()
    for replica in (one, two):
        replica.clock.true += timedelta(days=2)
    two.look()
    one.look()
    assert before not in server.bundles(MUTATING)[0]
    assert one.rotation.why_not_ready() == two.rotation.why_not_ready() == ""


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
    assert replica.rotation.why_not_ready() == ""


def test_one_configuration_that_may_not_be_written_keeps_it_from_ready_and_the_others_in_order(caplog):
    server = Server()
    server.fail["patch", "validatingwebhookconfigurations"] = FORBIDDEN
    replica = Replica(server)
    with caplog.at_level(logging.WARNING):
        replica.look()
        replica.look()
    assert replica.error is FORBIDDEN
    assert "validating/v: the CA bundle is not readable as PEM" in replica.rotation.why_not_ready()
    assert server.bundles(MUTATING) == [server.secret["ca.crt"]] * 2
    assert server.bundles(CRD) == [server.secret["ca.crt"]]
    assert "trusted-since" not in server.secret
    (line,) = caplog.records
    assert vars(line)["error"] == "validating/v is not written: 403 Forbidden: webhooks may not do that"
    server.fail.clear()
    replica.look()
    assert replica.rotation.why_not_ready() == ""


def test_configurations_that_do_not_exist_yet_are_said_so_and_get_theirs_when_they_come():
    server = Server([MUTATING, CRD])
    replica = Replica(server)
    replica.look()
    assert replica.rotation.why_not_ready() == "validating/v does not exist or has no webhook"
    late = Server([VALIDATING]).objects["validatingwebhookconfigurations", "v"]
    server.put("validatingwebhookconfigurations", late)
    replica.look()
    assert replica.rotation.why_not_ready() == ""


def test_without_rights_on_the_secret_it_says_so():
    server = Server()
    server.fail["get", "secrets"] = FORBIDDEN
    replica = Replica(server)
    replica.look()
    assert replica.error is FORBIDDEN
    assert replica.rotation.why_not_ready() == "no serving certificate yet"


def test_an_api_server_that_is_away_for_a_while_changes_nothing_and_for_long_makes_it_not_ready():
    server = Server()
    replica = Replica(server)
    replica.look()
    for verb_of in ("secrets", "mutatingwebhookconfigurations"):
        server.fail["get", verb_of] = ServerError(503, "", "away")
    replica.clock.true += timedelta(hours=5)
    replica.look()
    assert replica.rotation.why_not_ready() == ""
    replica.clock.true += timedelta(hours=2)
    assert replica.rotation.why_not_ready().startswith("the serving certificate could not be confirmed for 21600 s: ")
    server.fail.clear()
    replica.look()
    assert replica.rotation.why_not_ready() == ""


def test_a_lost_secret_is_made_anew_while_the_other_goes_on_serving():
    server = Server()
    one, two = Replica(server), Replica(server)
    one.look()
    two.look()
    server.edit_secret(signer_key=b"oops")
    one.look()
    assert one.rotation.served != two.rotation.served
    assert all_accept(server, one)
    assert all_accept(server, two)


def test_a_secret_of_somebody_else_keeps_its_type_and_labels():
    server = Server()
    metadata = {"name": "certs", "namespace": "ns", "labels": {"helm": "yes"}, "managedFields": [{}]}
    server.put("secrets", {"metadata": metadata, "type": "Opaque", "data": {}})
    replica = Replica(server)
    replica.look()
    secret = server.objects["secrets", "certs"]
    assert (secret["type"], secret["metadata"]["labels"]) == ("Opaque", {"helm": "yes"})
    assert replica.rotation.why_not_ready() == ""


class Enough(Exception):
    pass


class FewLooks:
    """Ends the loop after some sleeps."""

    def __init__(self, looks: int) -> None:
        self.left = looks
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return sum(self.slept)

    def now(self):
        return START + timedelta(seconds=self.monotonic())

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.left -= 1
        if not self.left:
            raise Enough


async def test_the_loop_outlives_errors_tells_them_once_and_looks_every_ten_seconds(caplog):
    server = Server()
    server.fail["get", "secrets"] = FORBIDDEN
    clock = FewLooks(3)
    with caplog.at_level(logging.WARNING), pytest.raises(Enough):
        await Rotation(server, TARGET, lambda pair: None, clock).run()
    assert clock.slept == [10.0] * 3
    assert [vars(record)["error"] for record in caplog.records] == [str(FORBIDDEN)]


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

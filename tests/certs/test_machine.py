"""Whatever the order of requests of two or three replicas, crashes between any two, time and hand edits: whoever is ready is accepted.

Each step of a replica is one request to the API server, so views are as stale as they can be. The clocks of replicas are up to an hour off.
Not played: a Secret that is lost while a configuration is edited by hand (then nothing says any more what others serve), or more often than
former CAs are kept.
"""

from __future__ import annotations

from datetime import timedelta

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from certs.pki import BACKDATE, issue_ca, parse_certificates
from certs.rotation import KINDS, BundleHolder
from certs.rotation_plan import MAX_RETIRING
from certs.secret_data import SecretData, from_data
from core.runtime.http.errors import Forbidden
from tests.certs.in_memory import APISERVICE, CONFIGURATIONS, START, Replica, Server, is_accepted
from tests.strategies import scale_examples

FOREIGN = issue_ca("somebody else", START, timedelta(days=36500)).certificate
SPANS = [timedelta(seconds=70), timedelta(hours=1), timedelta(hours=7), timedelta(hours=25), timedelta(days=40), timedelta(days=300)]
SKEWS = [timedelta(0), BACKDATE, -BACKDATE]


class Rotating(RuleBasedStateMachine):
    replicas: list[Replica]

    @initialize(skews=st.lists(st.sampled_from(SKEWS), min_size=2, max_size=3))
    def start(self, skews):
        self.server = Server(pausing=True)
        self.replicas = [Replica(self.server, skew) for skew in skews]
        self.edited: dict[BundleHolder, list[bytes]] = {}
        self.earlier = [b""]
        self.losses = 0

    @property
    def now(self):
        return self.replicas[0].clock.true

    @rule(number=st.integers(0, 2), requests=st.integers(1, 12))
    def step(self, number, requests):
        replica = self.replicas[number % len(self.replicas)]
        for _ in range(requests):
            replica.step()
            self.ready_ones_are_accepted()

    @rule(number=st.integers(0, 2))
    def look(self, number):
        self.replicas[number % len(self.replicas)].look()

    @rule(number=st.integers(0, 2))
    def crash(self, number):
        number %= len(self.replicas)
        old = self.replicas[number]
        old.close()
        self.replicas[number] = Replica(self.server, old.clock.skew)
        self.replicas[number].clock.true = old.clock.true

    @rule(span=st.sampled_from(SPANS))
    def pass_time(self, span):
        for replica in self.replicas:
            replica.clock.true += span

    @precondition(lambda self: self.usable())
    @rule(one=st.sampled_from(CONFIGURATIONS), kind=st.sampled_from(["foreign", "garbage", "missing", "earlier"]), index=st.integers(0, 50))
    def edit(self, one, kind, index):
        bundle = {"foreign": FOREIGN, "garbage": b"\0garbage", "missing": None, "earlier": self.earlier[index % len(self.earlier)]}[kind]
        self.server.edit(one, bundle)
        self.edited[one] = self.server.bundles(one)

    @precondition(lambda self: self.usable())
    @rule()
    def ask_for_a_new_ca(self):
        self.server.annotate_secret(**{"topogate.dev__rotate-ca": "now"})

    @precondition(lambda self: self.usable() and not self.edited_now() and self.losses < MAX_RETIRING)
    @rule(how=st.sampled_from(["deleted", "emptied", "garbage", "no key"]))
    def lose_the_secret(self, how):
        self.losses += 1
        if how == "deleted":
            self.server.drop("Secret", "certs")
        elif how == "emptied":
            self.server.edit_secret(**dict.fromkeys([key.replace(".", "_") for key in self.server.secret]))
        else:
            self.server.edit_secret(signer_key=b"garbage" if how == "garbage" else None)

    @rule(one=st.sampled_from(CONFIGURATIONS))
    def forbid_or_allow_to_publish(self, one):
        where = ("patch", KINDS[one.kind].plural)
        if self.server.fail.pop(where, None) is None:
            self.server.fail[where] = Forbidden(403, "Forbidden", "no right to patch")

    def usable(self) -> bool:
        return self.server.has_secret and isinstance(from_data(self.server.secret, self.now), SecretData)

    def edited_now(self):
        """Configurations that are still as a hand left them."""
        self.edited = {one: bundles for one, bundles in self.edited.items() if self.server.bundles(one) == bundles}
        return set(self.edited)

    @invariant()
    def ready_ones_are_accepted(self):
        """Also those that were ready and would say otherwise now: who asks them has not heard of it yet. Only long silence excuses."""
        edited = self.edited_now()
        for replica in self.replicas:
            why = replica.rotation.find_unready_reason()
            if "could not be confirmed" in why:
                replica.was_ready = False
            elif not why:
                replica.was_ready = True
        for one in CONFIGURATIONS:
            # Readiness is that of the webhook: the server of an APIService is another process.
            if one in edited or one == APISERVICE:
                continue
            for bundle in self.server.bundles(one):
                if bundle not in self.earlier:
                    self.earlier.append(bundle)
                for replica in self.replicas:
                    if replica.was_ready:
                        assert is_accepted(bundle, replica.rotation.served, self.now), f"{one} does not accept what is served"

    @invariant()
    def the_bundle_stays_small(self):
        for one in CONFIGURATIONS:
            assert all(len(parse_certificates(bundle)) <= 6 for bundle in self.server.bundles(one))

    def teardown(self):
        if not hasattr(self, "server"):
            return
        self.server.fail.clear()
        for _ in range(6):
            for replica in self.replicas:
                replica.look()
                self.ready_ones_are_accepted()
            self.pass_time(timedelta(hours=27))
        for replica in self.replicas:
            replica.look()
        held = from_data(self.server.secret, self.now)
        assert isinstance(held, SecretData)
        assert held.next is None
        assert not held.retiring
        for one in CONFIGURATIONS:
            assert set(self.server.bundles(one)) == {held.signer.certificate}, "one CA, everywhere"
        for replica in self.replicas:
            assert replica.rotation.find_unready_reason() == ""
            assert replica.rotation.served == held.leaf
            replica.close()


TestRotating = Rotating.TestCase
TestRotating.settings = settings(
    max_examples=scale_examples(0.5), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)

"""The next step, by table: what is held, what is published, what time it is."""

from __future__ import annotations

import base64
from dataclasses import replace
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed448
from cryptography.x509.oid import NameOID

from certs import pki
from certs.rotation_plan import RotationPlan, RotationPolicy, decide, is_acceptable, is_settled, list_serving_problems
from certs.secret_data import ABSENT, Early, SecretData, Unusable, from_data, to_data
from tests.certs.in_memory import NAME, START

POLICY = RotationPolicy()
DAY = timedelta(days=1)
NAMES = (NAME, "topogate-webhook.topogate-system.svc.cluster.local")


def step(secret, published=None, at=START, names=NAMES) -> RotationPlan:
    return decide(secret, published or {}, names, at, POLICY)


def written(plan: RotationPlan) -> SecretData:
    assert plan.write is not None
    return plan.write.held


def get_reason(plan: RotationPlan) -> str:
    assert plan.write is not None
    return plan.write.reason


FIRST = written(step(ABSENT))
REST = written(step(FIRST))
OTHER = written(step(ABSENT))
ASKED = written(step(replace(REST, asked=True)))
TRUSTED = written(step(ASKED))
SWITCHED = written(step(TRUSTED, at=START + POLICY.settle))


assert REST.leaf is not None
assert OTHER.leaf is not None


def everywhere(held: SecretData) -> dict[str, tuple[bytes, ...] | None]:
    return {"a": (held.bundle, held.bundle), "b": (held.bundle,), "gone": None}


def test_a_rotation_goes_step_by_step():
    assert REST.trusted_since == START
    assert replace(REST, next=ASKED.next, trusted_since=None, asked=False) == ASKED
    assert replace(ASKED, trusted_since=START) == TRUSTED
    assert (SWITCHED.signer, SWITCHED.next, SWITCHED.retiring) == (TRUSTED.next, None, (TRUSTED.signer.certificate,))
    assert SWITCHED.leaf is not None
    assert pki.validate(SWITCHED.leaf.certificate, SWITCHED.signer.certificate, NAME, START, SWITCHED.leaf.key) == []
    dropped = written(step(SWITCHED, everywhere(SWITCHED), START + POLICY.settle + POLICY.overlap))
    assert dropped == replace(SWITCHED, retiring=())
    assert dropped.bundle == SWITCHED.signer.certificate


EVERY_REPLICA = "every replica takes over the new serving certificate"
WAITS = {
    "not published": (ASKED, {"a": (REST.bundle,)}, START, None, "the newest CA is not yet in a"),
    "published in some": (ASKED, {"a": (ASKED.bundle,), "b": (REST.bundle,), "c": (b"",)}, START, None, "the newest CA is not yet in b, c"),
    "in one hook of two": (ASKED, {"a": (ASKED.bundle, REST.bundle)}, START, None, "the newest CA is not yet in a"),
    "taken away again": (TRUSTED, {"a": (REST.bundle,)}, START + DAY, None, "the newest CA is not yet in a"),
    "settling": (TRUSTED, everywhere(TRUSTED), START, START + POLICY.settle, "every API server learns of the new CA"),
    "overlap": (
        SWITCHED,
        everywhere(SWITCHED),
        START + DAY,
        START + DAY + POLICY.settle,
        "every replica takes over the new serving certificate",
    ),
    "rest": (REST, everywhere(REST), START + DAY, START + 275 * DAY, ""),
}


@pytest.mark.parametrize("name", WAITS)
def test_a_step_is_not_taken_before_its_time(name):
    held, published, at, due, why = WAITS[name]
    plan = step(held, published, at)
    assert (plan.write, plan.due, plan.waiting) == (None, due, why)


EDITS = {"missing": b"", "garbage": b"\0", "foreign": OTHER.bundle, "too much": REST.bundle + OTHER.bundle, "in part": REST.bundle[:-30]}


@pytest.mark.parametrize("name", EDITS)
def test_an_edited_bundle_is_published_anew(name):
    plan = step(REST, everywhere(REST) | {"b": (REST.bundle, EDITS[name])})
    assert (plan.publish, plan.bundle) == (("b",), REST.bundle)


@pytest.mark.parametrize(
    ("left", "renewed"),
    [(timedelta(days=91), False), (timedelta(days=89), True), (timedelta(seconds=1), True), (timedelta(seconds=-1), True)],
)
def test_a_leaf_is_renewed_by_look_ahead_with_the_same_ca(left, renewed):
    assert REST.leaf is not None
    plan = step(REST, everywhere(REST), REST.leaf.not_after - left)
    assert (plan.write is not None) == renewed
    if renewed:
        assert written(plan) == replace(REST, leaf=written(plan).leaf)
        assert "ends at" in get_reason(plan) or "expired" in get_reason(plan)


@pytest.mark.parametrize(("left", "renewed"), [(timedelta(days=456), False), (timedelta(days=454), True)])
def test_a_ca_is_replaced_by_look_ahead(left, renewed):
    at = REST.signer.not_after - left
    held = replace(REST, leaf=pki.issue_serving(REST.signer, NAMES, at))
    plan = step(held, everywhere(REST), at)
    assert (plan.write is not None and written(plan).next is not None) == renewed


def test_a_leaf_never_outlives_its_ca_and_is_not_made_again_and_again_towards_the_end():
    at = REST.signer.not_after - 40 * DAY
    held = written(step(REST, {"stuck": (b"",)}, at))
    assert held.leaf is not None
    assert held.leaf.not_after == held.signer.not_after
    again = step(held, {"stuck": (b"",)}, at + DAY)
    assert again.write is None or again.write.held.leaf == held.leaf


LEAVES = {
    "of another CA": (OTHER.leaf, "no CA of the bundle signed the certificate"),
    "with another key": (pki.KeyPair(REST.leaf.certificate, OTHER.leaf.key), "the private key does not belong to the certificate"),
    "for other names": (pki.issue_serving(REST.signer, ["elsewhere"], START), f"the certificate is not for {NAME}"),
    "for not all names": (pki.issue_serving(REST.signer, [NAME], START), f"the certificate is not for {NAMES[1]}"),
    "unreadable": (None, "the certificate is not readable as PEM"),
}


@pytest.mark.parametrize("name", LEAVES)
def test_a_bad_leaf_is_made_anew_with_the_reason(name):
    leaf, why = LEAVES[name]
    held = replace(REST, leaf=leaf, leaf_problem="" if leaf else why)
    plan = step(held, everywhere(REST))
    assert get_reason(plan) == f"the serving certificate of the Secret cannot be used: {why}"
    assert written(plan).signer == REST.signer


def on_unknown_curve(key: bytes) -> bytes:
    """The same numbers; only the curve's identifier is one that nobody has."""
    der = base64.b64decode(b"".join(key.splitlines()[1:-1])).replace(bytes.fromhex("2a8648ce3d030107"), bytes.fromhex("2a8648ce3d03017f"))
    return b"-----BEGIN PRIVATE KEY-----\n" + base64.b64encode(der) + b"\n-----END PRIVATE KEY-----\n"


DATA = to_data(REST)
UNUSABLE = {
    "empty": ({}, "the Secret is empty"),
    "other keys only": ({"tls.crt": b"x"}, "its certificate is not readable as PEM"),
    "garbage": (DATA | {"signer.crt": b"\xff\0"}, "its certificate is not readable as PEM"),
    "half": (DATA | {"signer.crt": DATA["signer.crt"][:100]}, "its certificate is not readable as PEM"),
    "two": (DATA | {"signer.crt": DATA["signer.crt"] * 2}, "it has more than one certificate"),
    "key garbage": (DATA | {"signer.key": b"\xff"}, "the private key is not readable as PEM"),
    "key of an unknown curve": (DATA | {"signer.key": on_unknown_curve(DATA["signer.key"])}, "the private key is not readable as PEM"),
    "key of another": (DATA | {"signer.key": OTHER.signer.key}, "the private key does not belong to the certificate"),
    "no CA": (DATA | {"signer.crt": DATA["tls.crt"], "signer.key": DATA["tls.key"]}, "it is no self-signed CA"),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_an_unusable_secret_is_as_good_as_none_for_one_reason(name):
    data, why = UNUSABLE[name]
    found = from_data(data, START)
    assert isinstance(found, Unusable)
    assert found.reason == why or found.reason == f"the CA of the Secret cannot be used: {why}"
    plan = step(found, everywhere(REST))
    assert get_reason(plan) == found.reason
    assert plan.publish == ()
    assert written(plan).retiring == (REST.signer.certificate,), "others may still serve by what is published"


def exotic(subject: str) -> bytes:
    """A self-signed certificate with a key and a name that nobody expects here."""
    key = ed448.Ed448PrivateKey.generate()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(7)
    signed = builder.not_valid_before(START - DAY).not_valid_after(START + DAY).sign(key, None)
    return signed.public_bytes(serialization.Encoding.PEM)


def test_odd_certificates_in_a_bundle_or_in_the_secret_end_nothing():
    odd = exotic(x509.load_pem_x509_certificate(REST.signer.certificate).subject.rfc4514_string().removeprefix("CN="))
    assert REST.leaf is not None
    assert pki.validate(REST.leaf.certificate, odd, NAME, START) == ["no CA of the bundle signed the certificate"]
    assert step(REST, {"a": (odd, REST.bundle)}).publish == ("a",)
    for key in ("signer.crt", "tls.crt", "next.crt", "retiring.crt"):
        found = from_data(DATA | {key: odd}, START)
        assert isinstance(found, Unusable) == (key == "signer.crt")
        step(found, {"a": (odd,)})


def test_an_expired_ca_is_as_good_as_none_and_is_not_trusted_on():
    at = REST.signer.not_after + DAY
    found = from_data(DATA, at)
    assert isinstance(found, Unusable)
    assert "expired at" in found.reason
    assert written(step(found, everywhere(REST), at)).retiring == ()


def test_a_foreign_ca_is_not_kept_when_the_secret_is_lost():
    foreign = pki.issue_ca("somebody else", START).certificate
    assert written(step(ABSENT, {"a": (foreign + REST.bundle, b"garbage"), "b": None})).retiring == (REST.signer.certificate,)


def test_the_ca_that_is_published_is_trusted_on_where_the_secret_is_one_of_earlier():
    """A backup that is restored, or what a GitOps tool has kept."""
    plan = step(OTHER, everywhere(REST))
    assert get_reason(plan) == "another CA than the Secret's is published"
    assert plan.publish == (), "not before the Secret says that the other is trusted"
    kept = written(plan)
    assert kept == replace(OTHER, retiring=(REST.signer.certificate,), trusted_since=None)
    again = step(kept, everywhere(REST))
    assert (set(again.publish), again.bundle) == ({"a", "b"}, OTHER.signer.certificate + REST.signer.certificate)
    assert again.write is None
    some = everywhere(REST) | {"b": (OTHER.bundle,)}
    assert step(REST, some).publish == ("b",), "one that is edited by hand is none of this"


def test_of_too_many_cas_those_in_most_configurations_are_kept_and_it_comes_to_rest():
    old = [written(step(ABSENT)).signer.certificate for _ in range(6)]
    published: dict[str, tuple[bytes, ...] | None] = {"a": (b"".join(old),), "b": (old[3],)}
    kept = written(step(ABSENT, published))
    assert len(kept.retiring) == 4
    assert kept.retiring[0] == old[3]
    plan = step(replace(kept, signer=OTHER.signer, leaf=OTHER.leaf), published)
    assert plan.write is None, "there is no room for more, and no use in trying again"


BEHIND = START - timedelta(days=9000)


def test_with_a_clock_that_is_far_behind_nothing_is_made_or_written():
    """As of a machine without a battery, before it has heard of the time: it would make all others' certificates anew, again and again."""
    found = from_data(to_data(REST), BEHIND)
    assert isinstance(found, Early)
    plan = step(found, everywhere(OTHER), BEHIND)
    assert (plan.publish, plan.write) == ((), None)
    assert plan.waiting.startswith(
        f"by our clock it is {BEHIND.isoformat()}, and the CA of the Secret begins at 2026-03-04T04:06:07+00:00; "
    )


@pytest.mark.parametrize("held", [REST, ASKED, SWITCHED])
def test_replica_with_a_clock_slightly_behind_keeps_certificates_of_others(held):
    at = START - pki.CLOCKS_APART + timedelta(minutes=30)
    found = from_data(to_data(held), at)
    assert found == held
    plan = step(found, everywhere(held), at)
    if plan.write is not None:
        assert (plan.write.held.signer, plan.write.held.next) == (held.signer, held.next)
    settled = replace(held, leaf=pki.issue_serving(held.signer, NAMES, at), trusted_since=START)
    assert step(settled, everywhere(held), at).write is None, "and it comes to rest"


@pytest.mark.parametrize("held", [FIRST, REST, ASKED, TRUSTED, SWITCHED])
def test_held_certificates_survive_storage_in_the_secret(held):
    assert from_data(to_data(held), START) == held


SPOILT = {
    "next garbage": {"next.crt": b"x"},
    "next without key": {"next.key": b""},
    "next with another key": {"next.key": OTHER.signer.key},
}


@pytest.mark.parametrize("name", SPOILT)
def test_a_spoilt_next_ca_is_as_good_as_none(name):
    found = from_data(to_data(ASKED) | SPOILT[name], START)
    assert isinstance(found, SecretData)
    assert (found.next, found.signer) == (None, ASKED.signer)


@pytest.mark.parametrize(
    "text", [b"", b"yesterday", b"\xff", b"2026-03-04T05:06:07", b"9999-12-31T23:59:30+00:00", b"0001-01-01T00:00:00+09:00"]
)
def test_a_spoilt_time_is_as_good_as_none(text):
    found = from_data(to_data(REST) | {"trusted-since": text}, START)
    assert isinstance(found, SecretData)
    assert found.trusted_since is None


def test_a_time_far_ahead_is_not_waited_for():
    held = replace(SWITCHED, trusted_since=START + 100 * DAY)
    assert written(step(held, everywhere(held))).trusted_since == START


def test_new_leaf_that_an_api_server_would_refuse_is_not_served():
    assert REST.leaf is not None
    assert SWITCHED.leaf is not None
    old, new = REST.leaf, SWITCHED.leaf
    both, first = (SWITCHED.bundle,), (REST.bundle,)
    assert not is_acceptable(new, old, {"a": both, "b": first}, NAME, START)
    assert is_acceptable(new, old, {"a": both, "b": (b"garbage",), "c": None}, NAME, START), "b accepts neither"
    assert is_acceptable(new, None, {"a": first}, NAME, START)


def test_a_ca_is_settled_a_moment_after_it_is_trusted_everywhere_and_at_once_when_it_was_before():
    at = START + POLICY.settle
    assert [is_settled(held, at - timedelta(seconds=1), POLICY) for held in (REST, ASKED, TRUSTED)] == [False] * 3
    assert [is_settled(held, at, POLICY) for held in (REST, ASKED, TRUSTED, SWITCHED)] == [True, False, True, True]


def test_readiness_problem_names_the_configuration():
    assert REST.leaf is not None
    problems = list_serving_problems(REST.leaf, {"a": (REST.bundle,), "b": (b"",), "c": None}, NAME, START)
    assert problems == ["b: there is no CA bundle", "c does not exist or has no webhook"]


def test_certificates_have_key_usage_names_and_validity():
    assert REST.leaf is not None
    ca, leaf = (x509.load_pem_x509_certificate(one.certificate) for one in (REST.signer, REST.leaf))
    for one, signs in ((ca, True), (leaf, False)):
        usage = one.extensions.get_extension_for_class(x509.KeyUsage).value
        assert (usage.key_cert_sign, usage.digital_signature) == (signs, True)
        assert one.not_valid_before_utc == START.replace(microsecond=0) - pki.BACKDATE
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == list(NAMES)
    assert ca.serial_number != leaf.serial_number


@pytest.mark.parametrize("wrong", [{"leaf_lookahead": 400 * DAY}, {"ca_lookahead": 4000 * DAY}, {"overlap": 0 * DAY}, {"settle": -DAY}])
def test_times_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ValueError, match="must be"):
        RotationPolicy(**wrong)

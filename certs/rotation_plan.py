"""The rotation of CA and serving certificate as a pure decision: what is held and published, and the time, in; the next step out.

A new CA comes into use in steps, each of which may be the last for a while (a crash, no rights, no API server)::

    signer A                      at rest; the bundle is A
    signer A, next B              B is made; the bundle is A and B, published in every configuration
    the same, trusted since t     B was seen in every configuration; a moment for the caches of API servers
    signer B, retiring A          the leaf is B's; the bundle is still A and B, for replicas that serve A's leaf
    signer B                      after an overlap A is dropped, first here and then from the configurations

A replica serves a leaf of another CA than before only once that CA has been trusted everywhere for that moment, however it came to be the
signer: by these steps, or because the Secret was lost, or replaced by an earlier one.

The code that executes the plan (certs.rotation) has to read the configurations before the Secret, and to guard each write by
the version it has read. Then a replica with an old view cannot remove a CA from a configuration after another replica relies
on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from cryptography import x509

from certs import pki
from certs.pki import CA_LIFETIME, CLOCKS_APART, SERVING_LIFETIME, KeyPair
from certs.secret_data import Early, SecretData, Unusable

CA_NAME = "topogate webhook CA"
# A leaf is renewed only for a real gain: towards the end of its CA a new one would end with it, again and again.
MIN_GAIN = 0.1
# More would be a bundle of leftovers that is hard to inspect, and it is in every webhook of a configuration.
MAX_RETIRING = 4

Published = Mapping[str, tuple[bytes, ...] | None]
"""By configuration, what each of its webhooks has as caBundle (PEM); None where there is no such configuration, or none with a webhook."""


@dataclass(frozen=True, slots=True)
class RotationPolicy:
    """How long things last. Every default leaves an administrator weeks to mend what keeps a step from being done."""

    ca_lifetime: timedelta = CA_LIFETIME
    leaf_lifetime: timedelta = SERVING_LIFETIME
    ca_lookahead: timedelta = SERVING_LIFETIME + timedelta(days=90)
    """A CA with less left is replaced: it could not sign a leaf of full length."""
    leaf_lookahead: timedelta = timedelta(days=90)
    settle: timedelta = timedelta(minutes=1)
    """API servers learn of a configuration by a watch; those behind get this long before a leaf of the new CA is shown to them."""
    overlap: timedelta = timedelta(days=1)
    """How long the former CA stays trusted. A replica that cannot read the Secret may serve its old leaf for a quarter of it, see
    `certs.rotation`; the rest is for clocks that are up to CLOCKS_APART."""

    def __post_init__(self) -> None:
        if not timedelta(0) < self.leaf_lookahead < self.leaf_lifetime:
            raise ValueError("the look-ahead of the serving certificate must be shorter than its life")
        if not timedelta(0) < self.ca_lookahead < self.ca_lifetime:
            raise ValueError("the look-ahead of the CA must be shorter than its life")
        if self.settle < timedelta(0) or self.overlap <= timedelta(0):
            raise ValueError("the overlap must be longer than nothing, and the time to settle not negative")


@dataclass(frozen=True, slots=True)
class Write:
    """The Secret shall hold this; `reason` for the log."""

    held: SecretData
    reason: str


@dataclass(frozen=True, slots=True)
class RotationPlan:
    """`publish` names configurations with another bundle than `bundle`; `write` is one step of the Secret, independent
    of them.

    With neither, nothing is to be done before `due`, and `waiting` describes the reason.
    """

    bundle: bytes = b""
    publish: tuple[str, ...] = ()
    write: Write | None = None
    due: datetime | None = None
    waiting: str = ""


def decide(
    secret: SecretData | Unusable | Early, published: Published, names: Sequence[str], at: datetime, policy: RotationPolicy
) -> RotationPlan:
    """Returns what is to be done now. `write` is the Secret's next content; where it is None, `waiting` has the reason (empty at rest), and
    `due` the time of the next step (None: not known). `publish` are the configurations where a webhook has another bundle than `bundle`.

    Nothing is published for an Unusable Secret (`write` has a new CA), or where other CAs of ours are published instead of the Secret's
    (`write` adds them). Early asks for neither. `names` are DNS names and IP addresses to be served. Raises ValueError where a leaf
    is to be made without any. `at` may differ between replicas by CLOCKS_APART.
    """
    if isinstance(secret, Early):
        return RotationPlan(waiting=secret.reason)
    if isinstance(secret, Unusable):
        return RotationPlan(write=Write(_build_new_secret(published, names, at, policy), secret.reason))
    if used := _list_published_cas(secret, published, at):
        retiring = (*secret.retiring, *used)
        return RotationPlan(
            write=Write(replace(secret, retiring=retiring, trusted_since=None), "another CA than the Secret's is published")
        )
    astray = tuple(name for name, bundles in published.items() if any(bundle != secret.bundle for bundle in bundles or ()))
    write, due, waiting = _plan_step(secret, published, names, at, policy)
    return RotationPlan(secret.bundle, astray, write, due, waiting)


def _plan_step(
    held: SecretData, published: Published, names: Sequence[str], at: datetime, policy: RotationPolicy
) -> tuple[Write | None, datetime | None, str]:
    """The Secret's next step, or until when and for what there is none."""
    reason = _find_renewal_reason(held, names, at, policy)
    if reason:
        return Write(replace(held, leaf=_create_leaf(held.signer, names, at, policy)), reason), None, ""
    newest = held.next or held.signer
    untrusting = [name for name, bundles in published.items() if not _is_in_all(bundles, newest.certificate)]
    since = held.trusted_since
    if since is not None and since > at + CLOCKS_APART:
        since = None  # further ahead than clocks may differ: whatever wrote that, it would be waited for for ever
    if held.next is None and not held.retiring and (reason := _find_ca_renewal_reason(held, at, policy)):
        return Write(replace(held, next=_create_ca(at, policy), trusted_since=None, asked=False), reason), None, ""
    if untrusting:
        return None, None, f"the newest CA is not yet in {', '.join(untrusting)}"
    if since is None:
        return Write(replace(held, trusted_since=at), "the newest CA is trusted everywhere"), None, ""
    if held.next is not None:
        if at < since + policy.settle:
            return None, since + policy.settle, "every API server learns of the new CA"
        switched = SecretData(
            held.next, _create_leaf(held.next, names, at, policy), None, (held.signer.certificate, *held.retiring), at - policy.settle
        )
        return Write(switched, "the serving certificate is now of the new CA"), None, ""
    if held.retiring:
        if at < since + policy.settle + policy.overlap:
            return None, since + policy.settle + policy.overlap, "every replica takes over the new serving certificate"
        return Write(replace(held, retiring=()), "the former CA is dropped"), None, ""
    assert held.leaf is not None
    return None, min(held.leaf.not_after - policy.leaf_lookahead, held.signer.not_after - policy.ca_lookahead), ""


def is_acceptable(candidate: KeyPair, served: KeyPair | None, published: Published, name: str, at: datetime) -> bool:
    """Whether to serve `candidate` from now on. It is where nothing or the same pair is served yet, or all published bundles that accept
    what is served accept it, too. Both are judged as `name`."""
    if served is None or candidate == served:
        return True
    return all(
        is_accepted(bundle, candidate, name, at) or not is_accepted(bundle, served, name, at)
        for bundles in published.values()
        for bundle in bundles or ()
    )


def is_settled(held: SecretData, at: datetime, policy: RotationPolicy) -> bool:
    """Whether every API server has learnt of the newest CA (the next one, else the signer): `policy.settle` has passed since it was seen in
    every configuration. False while it is not in all."""
    return held.trusted_since is not None and at >= held.trusted_since + policy.settle


def is_accepted(bundle: bytes, pair: KeyPair, name: str, at: datetime) -> bool:
    """Whether a client that trusts `bundle` (PEM) accepts the leaf `pair` as `name` at that time. Its key is not looked at."""
    return not pki.validate(pair.certificate, bundle, name, at)


def list_serving_problems(served: KeyPair, published: Published, name: str, at: datetime) -> list[str]:
    """Returns why clients would not accept what is served as `name` at that time; empty when all would. There is one text, in the order of
    `published`, for each configuration where they would not, or that does not exist or has no webhook. The key is not looked at."""
    problems = []
    for configuration, bundles in published.items():
        if bundles is None:
            problems.append(f"{configuration} does not exist or has no webhook")
            continue
        for bundle in dict.fromkeys(bundles):
            if found := pki.validate(served.certificate, bundle, name, at):
                problems.append(f"{configuration}: {'; '.join(found)}")
                break
    return problems


def _find_renewal_reason(held: SecretData, names: Sequence[str], at: datetime, policy: RotationPolicy) -> str:
    """Returns why a new leaf has to be made; empty when the present one is good."""
    if held.leaf is None:
        return f"the serving certificate of the Secret cannot be used: {held.leaf_problem}"
    for name in names:
        # A CA that begins a moment from now by our clock is one of a clock that is ahead of it; no other leaf would be better.
        if problems := pki.validate(held.leaf.certificate, held.signer.certificate, name, max(at, held.signer.not_before), held.leaf.key):
            return f"the serving certificate of the Secret cannot be used: {problems[0]}"
    end = held.leaf.not_after
    gain = min(at + policy.leaf_lifetime, held.signer.not_after) - end
    if end - at < policy.leaf_lookahead and gain > MIN_GAIN * policy.leaf_lookahead:
        return f"the serving certificate ends at {end.isoformat()}"
    return ""


def _find_ca_renewal_reason(held: SecretData, at: datetime, policy: RotationPolicy) -> str:
    if held.asked:
        return "a new CA was asked for"
    end = held.signer.not_after
    return f"the CA ends at {end.isoformat()}" if end - at < policy.ca_lookahead else ""


def _build_new_secret(published: Published, names: Sequence[str], at: datetime, policy: RotationPolicy) -> SecretData:
    """A first CA and leaf. Where there were others before, they may still be served: what is published as ours stays trusted for an
    overlap."""
    ca = _create_ca(at, policy)
    return SecretData(ca, _create_leaf(ca, names, at, policy), retiring=tuple(_list_own_cas(published, at)[:MAX_RETIRING]))


def _list_published_cas(held: SecretData, published: Published, at: datetime) -> list[bytes]:
    """Returns CAs of ours that are published and that the Secret does not contain, where its own is in no
    configuration.

    Then the Secret is an earlier backup, or another CA was put into it; replicas serve with these published CAs.
    """
    bundles = [bundle for of_one in published.values() for bundle in of_one or ()]
    if any(_is_in_all((bundle,), held.signer.certificate) for bundle in bundles):
        return []
    known = held.bundle
    return [pem for pem in _list_own_cas(published, at) if pem not in known][: max(0, MAX_RETIRING - len(held.retiring))]


def _list_own_cas(published: Published, at: datetime) -> list[bytes]:
    """Our CAs in the bundles, those in most configurations first, since a leaf is served only where all trust it; then the newest."""
    found: dict[bytes, datetime] = {}
    where: dict[bytes, set[str]] = {}
    for configuration, bundles in published.items():
        for bundle in bundles or ():
            for one in pki.parse_certificates(bundle):
                if _is_ours(one) and at <= one.not_valid_after_utc:
                    found[pki.to_pem(one)] = one.not_valid_before_utc
                    where.setdefault(pki.to_pem(one), set()).add(configuration)
    return sorted(found, key=lambda pem: (len(where[pem]), found[pem], pem), reverse=True)


def _is_ours(certificate: x509.Certificate) -> bool:
    try:
        return certificate.subject.rfc4514_string().startswith(f"CN={CA_NAME} ")
    except ValueError:  # a name that cannot be parsed is none of ours
        return False


def _is_in_all(bundles: Sequence[bytes] | None, certificate: bytes) -> bool:
    (wanted,) = pki.parse_certificates(certificate)
    return all(wanted in pki.parse_certificates(bundle) for bundle in bundles or ())


def _create_ca(at: datetime, policy: RotationPolicy) -> KeyPair:
    # The time makes names differ, so that clients which look a CA up by its name find the right one of two.
    return pki.issue_ca(f"{CA_NAME} {at.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}", at, policy.ca_lifetime)


def _create_leaf(ca: KeyPair, names: Sequence[str], at: datetime, policy: RotationPolicy) -> KeyPair:
    """Never outlives its CA."""
    return pki.issue_serving(ca, names, at, min(policy.leaf_lifetime, ca.not_after - at))

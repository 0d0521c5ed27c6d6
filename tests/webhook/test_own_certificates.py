"""`--cert-mode own`: flags, and the chain of the rotation in real handshakes."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta

import pytest

from certs import pki
from certs.rotation import BundleHolder
from core.runtime.serving.tls import HeldCertificate
from tests.certs.in_memory import CONFIGURATIONS, NAME, Replica, Server
from webhook.__main__ import _choose_certificate
from webhook.review import Reviews
from webhook.server import AdmissionServer
from webhook.settings import parse

SECRET = ["--cert-secret", "certs", "--cert-namespace", "ns"]
OWN = [
    "--cert-mode",
    "own",
    *SECRET,
    "--cert-dns-name",
    NAME,
    "--cert-configuration",
    "mutating/m",
    "--cert-configuration",
    "crd/w.x-k8s.io",
]


def test_own_certificate_flags_are_parsed():
    settings = parse([*OWN, "--cert-overlap", "20", "--cert-settle", "2"])
    own = settings.own
    assert own is not None
    assert (own.secret, own.namespace, own.names) == ("certs", "ns", (NAME,))
    assert own.configurations == (BundleHolder("mutating", "m"), BundleHolder("crd", "w.x-k8s.io"))
    assert (own.policy.overlap, own.policy.settle, own.fresh_s) == (timedelta(seconds=20), timedelta(seconds=2), 5.0)
    assert (settings.cert_file, settings.key_file) == (None, None)


def test_certificate_dns_name_flag_accepts_ip_addresses():
    own = parse([*OWN, "--cert-dns-name", "127.0.0.1", "--cert-dns-name", "2001:0db8::0001", "--cert-dns-name", "127.0.0.1"]).own
    assert own is not None
    assert own.names == (NAME, "127.0.0.1", "2001:db8::1")


WRONG = {
    "nothing": (
        ["--cert-mode", "own"],
        "the following arguments are required: --cert-secret, --cert-namespace, --cert-dns-name, --cert-configuration",
    ),
    "no configuration": (OWN[:-4], "the following arguments are required: --cert-configuration"),
    "files as well": ([*OWN, "--cert-file", "tls.crt"], "not allowed with --cert-mode own: --cert-file"),
    "own with files": (
        ["--cert-file", "a", "--key-file", "b", *SECRET],
        "not allowed with --cert-mode files: --cert-secret, ",
    ),
    "endless": ([*OWN, "--cert-settle", "9" * 5000], "whole seconds, from 1 to a year, are expected"),
    "mode": (["--cert-mode", "magic"], "argument --cert-mode: 'magic' is not accepted; use files or own"),
    "kind": (
        [*OWN, "--cert-configuration", "deployment/x"],
        "'deployment/x' is not accepted; KIND/NAME with one of mutating, ",
    ),
    "no name": ([*OWN, "--cert-configuration", "crd/"], "'crd/' is not accepted"),
    "bad name": ([*OWN, "--cert-configuration", "crd/a/b"], "'a/b' is no name"),
    "DNS name": ([*OWN, "--cert-dns-name", "x-.svc"], "'x-.svc' is no name"),
    "empty": ([*OWN, "--cert-secret", ""], "'' is no name"),
    "overlap": ([*OWN, "--cert-overlap", "1d"], "'1d' is not accepted; whole seconds, from 1 to a year, are expected"),
    "no overlap": ([*OWN, "--cert-overlap", "0"], "'0' is not accepted"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_flag_ends_with_one_clear_line(name: str, capsys: pytest.CaptureFixture[str]):
    arguments, why = WRONG[name]
    with pytest.raises(SystemExit) as ended:
        parse(arguments)
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert why in line


def handshake(held: HeldCertificate, bundle: bytes) -> None:
    """By a client that trusts the bundle and asks for the service; raises as a client does."""
    client = ssl.create_default_context(cadata=bundle.decode())
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname=NAME),
        held.context.wrap_bio(to_server, to_client, server_side=True),
    ]
    while sides:
        for side in tuple(sides):
            try:
                side.do_handshake()
                sides.remove(side)
            except ssl.SSLWantReadError:
                continue


def test_real_handshakes_succeed_through_two_rotations_of_the_ca():
    """OpenSSL judges by the real time, so the clock is set to it and waits are short."""
    server, held = Server(), HeldCertificate()
    own = parse([*OWN, "--cert-configuration", "validating/v", "--cert-overlap", "40", "--cert-settle", "2"]).own
    assert own is not None
    replica = Replica(server, target=type(own)(own.namespace, own.secret, own.names, CONFIGURATIONS, own.policy))
    replica.clock.true = datetime.now(UTC)
    replica.rotation._serve = lambda pair: held.use_pair(pair.certificate, pair.key)
    authorities = set()
    for asked in (False, True, True):
        if asked:
            server.annotate_secret(**{"topogate.dev__rotate-ca": ""})
        for _ in range(30):
            replica.look()
            for one in CONFIGURATIONS:
                for bundle in server.bundles(one):
                    handshake(held, bundle)
            replica.clock.true += timedelta(seconds=3)
        assert "retiring.crt" not in server.secret
        authorities.add(server.secret["signer.crt"])
    assert len(authorities) == 3


def test_own_certificate_before_publication_is_served_but_not_trusted():
    files, held = _choose_certificate(parse(OWN))
    assert files is None
    assert held is not None
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(held, pki.issue_ca("not published", datetime.now(UTC)).certificate)


async def test_readiness_probe_names_the_missing_object():
    reasons = ["crd/w does not exist or has no webhook", ""]
    server = AdmissionServer(Reviews(None, (), None), lambda: reasons[0])  # type: ignore[arg-type]
    answers = []
    for ready in (False, True):
        server.ready = ready
        answer = await server._answer_readyz(None)  # type: ignore[arg-type]
        answers.append((answer.status, answer.text))
    reasons.pop(0)
    answer = await server._answer_readyz(None)  # type: ignore[arg-type]
    assert answers == [(503, "not ready: starting or stopping"), (503, "not ready: crd/w does not exist or has no webhook")]
    assert (answer.status, answer.text) == (200, "ok")

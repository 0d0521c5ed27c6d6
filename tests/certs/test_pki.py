"""Certificates at any time: issued, judged, and served to a real TLS client."""

from __future__ import annotations

import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtensionOID, NameOID
from hypothesis import given
from hypothesis import strategies as st

from certs.pki import BACKDATE, KeyPair, issue_ca, issue_serving, validate

AT = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
NAMES = ["topogate.ns.svc", "topogate.ns.svc.cluster.local", "127.0.0.1", "::1"]
CA = issue_ca("test", AT)
SERVING = issue_serving(CA, NAMES, AT, timedelta(days=90))


@pytest.mark.parametrize("name", NAMES)
def test_a_good_pair_has_no_problem_under_any_of_its_names(name):
    assert validate(SERVING.certificate, CA.certificate, name, AT, SERVING.key) == []


def test_it_is_good_for_clocks_an_hour_late_and_not_before():
    assert validate(SERVING.certificate, CA.certificate, NAMES[0], AT - BACKDATE) == []
    (problem, *_) = validate(SERVING.certificate, CA.certificate, NAMES[0], AT - BACKDATE - timedelta(seconds=1))
    assert problem.startswith("the certificate is not valid before 2026-03-04T04:06:07")


@given(st.timedeltas(min_value=timedelta(days=-400), max_value=timedelta(days=4000)))
def test_it_is_good_exactly_within_its_time(offset):
    at = AT + offset
    good = -BACKDATE <= offset <= timedelta(days=90)
    assert (validate(SERVING.certificate, CA.certificate, NAMES[0], at) == []) == good


def test_an_expired_ca_is_a_problem_though_the_leaf_is_good():
    short = issue_ca("short", AT, timedelta(days=1))
    leaf = issue_serving(short, NAMES, AT, timedelta(days=30))
    assert validate(leaf.certificate, short.certificate, NAMES[0], AT + timedelta(days=2)) == [
        "its CA expired at 2026-03-05T05:06:07+00:00"
    ]


def test_in_a_bundle_one_good_ca_is_enough():
    other = issue_ca("other", AT)
    assert validate(SERVING.certificate, other.certificate + CA.certificate, NAMES[0], AT) == []


def test_all_problems_of_a_certificate_are_reported_at_once():
    stranger = issue_serving(issue_ca("stranger", AT), ["elsewhere"], AT, timedelta(days=1))
    problems = validate(stranger.certificate, CA.certificate, NAMES[0], AT + timedelta(days=2), SERVING.key)
    assert problems == [
        "the certificate expired at 2026-03-05T05:06:07+00:00",
        "the certificate is not for topogate.ns.svc",
        "no CA of the bundle signed the certificate",
        "the private key does not belong to the certificate",
    ]


def test_a_ca_of_the_same_name_did_not_sign_it():
    assert "no CA of the bundle signed the certificate" in validate(SERVING.certificate, issue_ca("test", AT).certificate, NAMES[0], AT)


def test_a_leaf_cannot_sign():
    forged = issue_serving(SERVING, NAMES, AT)
    assert validate(forged.certificate, SERVING.certificate, NAMES[0], AT) == ["no CA of the bundle signed the certificate"]


@pytest.mark.parametrize(
    ("chain", "bundle", "key", "problem"),
    [
        (b"nonsense", CA.certificate, None, "the certificate is not readable as PEM"),
        (SERVING.certificate, b"", None, "there is no CA bundle"),
        (SERVING.certificate, b"nonsense", None, "the CA bundle is not readable as PEM"),
        (SERVING.certificate, CA.certificate, b"nonsense", "the private key is not readable as PEM"),
    ],
)
def test_certificate_that_cannot_be_read_is_reported_as_a_problem(chain, bundle, key, problem):
    assert validate(chain, bundle, NAMES[0], AT, key) == [problem]


def test_serial_numbers_are_never_repeated():
    pairs = [CA, SERVING, issue_ca("test", AT), issue_serving(CA, NAMES, AT)]
    assert len({x509.load_pem_x509_certificate(pair.certificate).serial_number for pair in pairs}) == 4


def test_serving_certificate_without_a_name_is_refused():
    with pytest.raises(ValueError, match="at least one name"):
        issue_serving(CA, [], AT)


def test_a_long_name_fits():
    name = "a" * 60 + "." + "b" * 60 + ".svc"
    pair = issue_serving(CA, [name], AT)
    assert validate(pair.certificate, CA.certificate, name, AT) == []


def test_serving_certificate_has_its_end_time():
    assert SERVING.not_after == AT + timedelta(days=90)


def test_a_real_tls_client_accepts_it(tmp_path):
    now = datetime.now(UTC)
    ca = issue_ca("real", now)
    assert connect(tmp_path, ca, issue_serving(ca, ["localhost"], now)) == "TLSv1.3"


def test_real_tls_client_refuses_a_certificate_of_another_name(tmp_path):
    now = datetime.now(UTC)
    ca = issue_ca("real", now)
    with pytest.raises(ssl.SSLCertVerificationError):
        connect(tmp_path, ca, issue_serving(ca, ["elsewhere"], now))


def connect(folder, ca: KeyPair, pair: KeyPair) -> str | None:
    (folder / "cert").write_bytes(pair.certificate)
    (folder / "key").write_bytes(pair.key)
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(folder / "cert", folder / "key")
    client_side = ssl.create_default_context(cadata=ca.certificate.decode())
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            try:
                with server_side.wrap_socket(connection, server_side=True) as secured:
                    secured.recv(1)
            except (ssl.SSLError, ConnectionError):
                connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            with (
                socket.create_connection(listener.getsockname()) as plain,
                client_side.wrap_socket(plain, server_hostname="localhost") as secured,
            ):
                return secured.version()
        finally:
            thread.join()


def test_certificate_with_unreadable_names_is_for_no_name() -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "odd")])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, AT, AT + timedelta(days=1))
    odd = builder.add_extension(x509.UnrecognizedExtension(ExtensionOID.SUBJECT_ALTERNATIVE_NAME, b"no names"), critical=False)
    chain = odd.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    assert validate(chain, CA.certificate + chain, NAMES[0], AT) == [
        "the certificate is not for topogate.ns.svc",
        "no CA of the bundle signed the certificate",
    ]

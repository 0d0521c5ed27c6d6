"""New handshakes get the newest good pair; a bad one never replaces it; whoever is connected stays connected."""

from __future__ import annotations

import logging
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from certs import pki
from core.runtime.serving.tls import POLL_S, HeldCertificate, ServingCertificate, UnusableCertificate, warn_of_end

NOW = datetime.now(UTC)
CA = pki.issue_ca("test", NOW)
FIRST, SECOND = (pki.issue_serving(CA, ["127.0.0.1", "webhook.topogate-system.svc"], NOW) for _ in range(2))


class Files:
    """The two files as a mounted Secret has them."""

    def __init__(self, folder: Path) -> None:
        self.cert, self.key = folder / "tls.crt", folder / "tls.key"
        self.write(FIRST.certificate, FIRST.key)

    def write(self, certificate: bytes | None = None, key: bytes | None = None) -> None:
        for path, content in ((self.cert, certificate), (self.key, key)):
            if content is not None:
                path.write_bytes(content)

    def serving(self) -> ServingCertificate:
        return ServingCertificate(self.cert, self.key)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


class Connection:
    """A client and a server in memory, wired as asyncio does it."""

    def __init__(
        self,
        server: ssl.SSLContext,
        name: str = "127.0.0.1",
        *,
        newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
        shows: Path | None = None,
    ) -> None:
        client = ssl.create_default_context(cadata=CA.certificate.decode())
        if shows is not None:
            client.load_cert_chain(shows)
        client.maximum_version = newest
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = client.wrap_bio(to_client, to_server, server_hostname=name)
        self.server = server.wrap_bio(to_server, to_client, server_side=True)
        waiting = [self.client, self.server]
        while waiting:
            for side in tuple(waiting):
                try:
                    side.do_handshake()
                    waiting.remove(side)
                except ssl.SSLWantReadError:
                    continue

    @property
    def certificate(self) -> bytes:
        """The server's, as the client checked it."""
        found = self.client.getpeercert(binary_form=True)
        assert found is not None
        return ssl.DER_cert_to_PEM_cert(found).encode()

    def talks(self) -> bool:
        """Whether both directions work."""
        self.client.write(b"ping")
        self.server.write(b"pong")
        return (self.server.read(4), self.client.read(4)) == (b"ping", b"pong")


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("name", ["127.0.0.1", "webhook.topogate-system.svc"], ids=["no server name", "server name"])
def test_clients_are_served_with_and_without_a_server_name(files: Files, name: str, newest: ssl.TLSVersion):
    connection = Connection(files.serving().context, name, newest=newest)
    assert connection.certificate == FIRST.certificate
    assert connection.talks()


def test_a_new_pair_is_served_to_new_handshakes_and_old_connections_go_on(files: Files):
    serving = files.serving()
    old = Connection(serving.context)
    assert not serving.reload(), "nothing has changed"
    files.write(SECOND.certificate, SECOND.key)
    assert Connection(serving.context).certificate == FIRST.certificate, "not before it is looked at"
    assert serving.reload()
    new = Connection(serving.context)
    assert new.certificate == SECOND.certificate
    assert old.talks()
    assert new.talks()
    assert not serving.reload(), "it is taken over once"


def test_serving_certificate_reports_its_end_after_reload(files: Files):
    serving = files.serving()
    assert serving.not_after == FIRST.not_after
    longer = pki.issue_serving(CA, ["127.0.0.1"], NOW, timedelta(days=400))
    files.write(longer.certificate + CA.certificate)
    assert not serving.reload(), "its key is not there yet"
    assert serving.not_after == FIRST.not_after
    files.write(None, longer.key)
    assert serving.reload()
    assert serving.not_after == longer.not_after != FIRST.not_after


def cut(text: bytes) -> bytes:
    return text[: len(text) * 2 // 3]


ENCRYPTED = serialization.load_pem_private_key(SECOND.key, None).private_bytes(
    serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
)
BAD = {
    "the key is still the old one": (SECOND.certificate, None, "the key does not belong to the certificate"),
    "the certificate is still the old one": (None, SECOND.key, "the key does not belong to the certificate"),
    "half a certificate": (cut(SECOND.certificate), SECOND.key, "no complete PEM"),
    "half a chain": (SECOND.certificate + cut(CA.certificate), SECOND.key, "no complete PEM"),
    "half a key": (SECOND.certificate, cut(SECOND.key), "no complete PEM"),
    "empty": (b"", b"", "no complete PEM"),
    "no PEM": (b"\xff" * 100, SECOND.key, "no complete PEM"),
    "an encrypted key": (SECOND.certificate, ENCRYPTED, "unencrypted key"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_certificate_pair_never_replaces_a_good_one_and_is_logged_once(files: Files, name: str, caplog: pytest.LogCaptureFixture):
    certificate, key, why = BAD[name]
    serving = files.serving()
    files.write(certificate, key)
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            assert not serving.reload()
            connection = Connection(serving.context)
            assert connection.certificate == FIRST.certificate
            assert connection.talks()
        (record,) = caplog.records
        assert record.levelno == logging.WARNING
        assert why in vars(record)["error"]
        assert str(files.cert) in vars(record)["error"]
        files.write(SECOND.certificate, SECOND.key)
        assert serving.reload(), "once the pair is whole it is taken over"
    assert Connection(serving.context).certificate == SECOND.certificate
    assert caplog.records[-1].message == "certificate taken over"


def test_missing_certificate_files_keep_the_old_pair_and_are_logged_each_time(files: Files, caplog: pytest.LogCaptureFixture):
    serving = files.serving()
    for _ in range(2):
        files.cert.unlink()
        assert not serving.reload()
        assert not serving.reload()
        assert Connection(serving.context).certificate == FIRST.certificate
        files.write(FIRST.certificate)
        assert not serving.reload(), "the same pair as before"
    assert [record.message for record in caplog.records] == ["certificate not taken over"] * 2


def test_a_pair_that_changes_while_it_is_loaded_is_looked_at_again(files: Files, monkeypatch: pytest.MonkeyPatch):
    serving = files.serving()
    files.write(SECOND.certificate, SECOND.key)
    load = ssl.SSLContext.load_cert_chain

    def interrupted(context: ssl.SSLContext, *args, **options) -> None:
        load(context, *args, **options)
        files.write(FIRST.certificate)  # and the key will follow

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", interrupted)
    assert not serving.reload()
    monkeypatch.undo()
    assert Connection(serving.context).certificate == FIRST.certificate
    files.write(SECOND.certificate)
    assert serving.reload()
    assert Connection(serving.context).certificate == SECOND.certificate


def test_a_secret_that_changes_by_its_symlink_is_noticed(tmp_path: Path):
    """The kubelet puts a new folder beside the old one and moves the link `..data`."""
    for name, pair in (("one", FIRST), ("two", SECOND)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tls.crt").write_bytes(pair.certificate)
        (tmp_path / name / "tls.key").write_bytes(pair.key)
    data = tmp_path / "..data"
    data.symlink_to("one")
    serving = ServingCertificate(data / "tls.crt", data / "tls.key")
    (tmp_path / "next").symlink_to("two")
    (tmp_path / "next").rename(data)
    assert serving.reload()
    assert Connection(serving.context).certificate == SECOND.certificate


@pytest.mark.parametrize("name", BAD)
def test_a_bad_pair_at_the_start_is_an_error_that_names_the_files(files: Files, name: str):
    certificate, key, why = BAD[name]
    files.write(certificate, key)
    with pytest.raises(UnusableCertificate, match=why) as refused:
        files.serving()
    assert str(files.key) in str(refused.value)


def test_nothing_older_than_tls_1_2_is_spoken(files: Files):
    assert files.serving().context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_a_pair_given_as_bytes_is_served_until_the_next_and_old_connections_go_on():
    held = HeldCertificate()
    with pytest.raises(ssl.SSLError):
        Connection(held.context)
    held.use_pair(FIRST.certificate, FIRST.key)
    old = Connection(held.context)
    held.use_pair(SECOND.certificate, SECOND.key)
    assert (old.certificate, Connection(held.context).certificate) == (FIRST.certificate, SECOND.certificate)
    assert old.talks()


@pytest.mark.parametrize("name", BAD)
def test_bytes_that_are_no_good_pair_never_replace_one(name: str):
    certificate, key, why = BAD[name]
    held = HeldCertificate()
    held.use_pair(FIRST.certificate, FIRST.key)
    with pytest.raises(UnusableCertificate, match=why):
        held.use_pair(FIRST.certificate if certificate is None else certificate, FIRST.key if key is None else key)
    assert Connection(held.context).certificate == FIRST.certificate


def test_end_of_a_served_or_held_certificate_is_known_after_reload(files: Files):
    later = NOW + timedelta(days=3)
    newer = pki.issue_serving(CA, ["127.0.0.1"], later)
    serving, held = files.serving(), HeldCertificate()
    assert (serving.not_after, held.not_after) == (_end(FIRST.certificate), None)
    files.write(newer.certificate)
    assert not serving.reload()
    assert serving.not_after == _end(FIRST.certificate), "the key is still the other one's"
    files.write(newer.certificate, newer.key)
    held.use_pair(newer.certificate + CA.certificate, newer.key)
    assert serving.reload()
    assert serving.not_after == held.not_after == _end(newer.certificate) != _end(FIRST.certificate)


def _end(certificate: bytes) -> datetime:
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


class EndOfTest(Exception):
    pass


class TurningClock:
    """Each sleep shows the next state of the files; then the watch is cut off."""

    def __init__(self, *states) -> None:
        self.states = list(states)
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return 0.0

    def read_timer(self) -> float:
        return self.monotonic()

    def now(self) -> datetime:
        return NOW

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if not self.states:
            raise EndOfTest
        self.states.pop(0)()


async def test_the_watch_looks_again_and_again_and_outlives_bad_files(files: Files):
    serving = files.serving()
    clock = TurningClock(
        lambda: files.cert.unlink(), lambda: files.write(SECOND.certificate, FIRST.key), lambda: files.write(None, SECOND.key)
    )
    with pytest.raises(EndOfTest):
        await serving.watch(clock)
    assert clock.slept == [POLL_S] * 4
    assert Connection(serving.context).certificate == SECOND.certificate


async def test_expired_certificate_is_logged_once_for_each_pair(files: Files, caplog: pytest.LogCaptureFixture):
    old = pki.issue_serving(CA, ["127.0.0.1"], NOW - timedelta(days=3650))
    older = pki.issue_serving(CA, ["127.0.0.1"], NOW - timedelta(days=5000))

    def serve(pair: pki.KeyPair) -> None:
        files.write(pair.certificate, pair.key)
        assert serving.reload()

    serving = files.serving()
    clock = TurningClock(lambda: serve(old), lambda: None, lambda: serve(older), lambda: serve(FIRST), lambda: None)
    with pytest.raises(EndOfTest):
        await warn_of_end(serving, clock)
    told = [(record.levelname, record.message, vars(record)["ended"]) for record in caplog.records if "has ended" in record.message]
    assert told == [
        ("ERROR", "the certificate has ended: API servers refuse it", _end(pair.certificate).isoformat()) for pair in (old, older)
    ]

"""Replicas of `certs.rotation` and an API server in memory, one request at a time."""

from __future__ import annotations

import base64
import copy
import types
from collections.abc import Coroutine, Generator, Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

from cryptography import x509
from cryptography.x509 import verification

from certs.pki import KeyPair
from certs.rotation import KINDS, BundleHolder, CertificateTarget, Rotation
from certs.rotation_plan import RotationPolicy
from core.resource import Obj
from core.runtime.http.client import Client
from core.runtime.http.errors import KubeError
from sim.apiserver.server import Request
from sim.harness import DirectTransport, Harness
from tests.runtime.fakes import ManualClock

START = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
NAME = "topogate-webhook.topogate-system.svc"
MUTATING, VALIDATING, CRD = BundleHolder("mutating", "m"), BundleHolder("validating", "v"), BundleHolder("crd", "workloads")
APISERVICE = BundleHolder("apiservice", "v1beta2.visibility")
CONFIGURATIONS = (MUTATING, VALIDATING, CRD, APISERVICE)
TARGET = CertificateTarget("ns", "certs", (NAME,), CONFIGURATIONS, RotationPolicy())


class Clock:
    """A wall clock that is `skew` off the true time; the monotonic one is not."""

    def __init__(self, skew: timedelta = timedelta(0)) -> None:
        self.true, self.skew = START, skew

    def monotonic(self) -> float:
        return (self.true - START).total_seconds()

    def read_timer(self) -> float:
        return self.monotonic()

    def now(self) -> datetime:
        return self.true + self.skew

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("tests look by themselves")


class Server(Harness):
    """Configurations, and perhaps the Secret. `fail` says how requests end, by verb and plural.

    Requests pause before they take effect when `pausing`, so that tests decide whose turn it is.
    """

    def __init__(self, configurations: Iterable[BundleHolder] = CONFIGURATIONS, *, pausing: bool = False) -> None:
        super().__init__(ManualClock())
        self.client = Client(DirectTransport(self.server, self.meet))
        self.pausing = pausing
        self.tried: list[str] = []  # plurals of what was to be written
        self.fail: dict[tuple[str, str], KubeError] = {}
        for one in configurations:
            self.put(build_configuration_object(one))

    async def meet(self, request: Request) -> None:
        if self.pausing:
            await pause()
        if (error := self.fail.get((request.verb, request.kind.plural))) is not None:
            raise error
        if request.verb != "get":
            self.tried.append(request.kind.plural)

    def bundles(self, one: BundleHolder) -> list[bytes]:
        return [base64.b64decode(config.get("caBundle", "")) for config in list_client_configs(one, self.configuration(one))]

    def configuration(self, one: BundleHolder) -> Obj:
        return self.get(KINDS[one.kind].kind, one.name)

    def edit(self, one: BundleHolder, bundle: bytes | None) -> None:
        """By hand, all of its webhooks; None takes the field away."""
        obj = copy.deepcopy(self.configuration(one))
        for config in list_client_configs(one, obj):
            config.pop("caBundle", None)
            if bundle is not None:
                config["caBundle"] = base64.b64encode(bundle).decode()
        self.put(obj)

    @property
    def has_secret(self) -> bool:
        return bool(self.all("Secret"))

    @property
    def secret(self) -> dict[str, bytes]:
        return {key: base64.b64decode(value) for key, value in self.get("Secret", TARGET.secret).get("data", {}).items()}

    def edit_secret(self, **changes: bytes | None) -> None:
        """Keys with `_` for `.`; None takes one away."""
        data = {**self.secret, **{key.replace("_", "."): value for key, value in changes.items()}}
        encoded = {key: base64.b64encode(value).decode() for key, value in data.items() if value is not None}
        self.put({**self.get("Secret", TARGET.secret), "data": encoded})

    def annotate_secret(self, **annotations: str) -> None:
        secret = self.get("Secret", TARGET.secret)
        notes = {key.replace("__", "/"): value for key, value in annotations.items()}
        self.put({**secret, "metadata": {**secret["metadata"], "annotations": notes}})


def list_client_configs(one: BundleHolder, obj: dict[str, Any]) -> list[dict[str, Any]]:
    if one.kind == "apiservice":
        return [obj["spec"]]
    return (
        [obj["spec"]["conversion"]["webhook"]["clientConfig"]] if one.kind == "crd" else [hook["clientConfig"] for hook in obj["webhooks"]]
    )


def build_configuration_object(one: BundleHolder) -> dict[str, Any]:
    head = {"kind": KINDS[one.kind].kind, "metadata": {"name": one.name}}
    if one.kind == "apiservice":
        return {**head, "spec": {"service": {"namespace": "ns", "name": "topogate-visibility"}}}
    if one.kind == "crd":
        spec = {"group": "kueue.x-k8s.io", "names": {"kind": "Workload", "plural": one.name}, "versions": []}
        return {**head, "spec": {**spec, "conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {}}}}}
    return {**head, "webhooks": [{"name": "a", "clientConfig": {}}, {"name": "b", "clientConfig": {"caBundle": ""}}]}


@types.coroutine
def pause() -> Generator[None]:
    yield


class Replica:
    """A rotation that is carried forward request by request."""

    def __init__(self, server: Server, skew: timedelta = timedelta(0), target: CertificateTarget = TARGET) -> None:
        self.clock = Clock(skew)
        self.handed: list[KeyPair] = []
        self.rotation = Rotation(server.client, target, self.handed.append, self.clock)
        self.error: KubeError | None = None
        self.was_ready = False
        self._looking: Coroutine[Any, Any, None] | None = None

    def step(self) -> bool:
        """Lets one request through; whether the look goes on after it."""
        if self._looking is None:
            self._looking = self.rotation.reconcile()
        try:
            self._looking.send(None)
        except StopIteration:
            self._looking = None
        except KubeError as error:
            self._looking, self.error = None, error
        return self._looking is not None

    def look(self) -> None:
        """To the end of the look that is under way, or of a new one."""
        self.error = None
        while self.step():
            pass

    def close(self) -> None:
        if self._looking is not None:
            self._looking.close()
            self._looking = None


@lru_cache(maxsize=1000)
def is_accepted(bundle: bytes, pair: KeyPair | None, at: datetime) -> bool:
    """What a TLS client that trusts the bundle thinks, by the library's own path validation and not by ours."""
    assert pair is not None
    try:
        store = verification.Store(x509.load_pem_x509_certificates(bundle))
        leaf, *between = x509.load_pem_x509_certificates(pair.certificate)
    except ValueError:
        return False
    try:
        verification.PolicyBuilder().store(store).time(at).build_server_verifier(x509.DNSName(NAME)).verify(leaf, between)
    except verification.VerificationError:
        return False
    return True

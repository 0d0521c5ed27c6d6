"""An API server on paper: versions, conflicts and JSON patches as `certs.rotation` relies on them, one request at a time."""

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
from certs.plan import Policy
from certs.rotation import KINDS, SECRETS, Configuration, Rotation, Target
from core.runtime.errors import AlreadyExists, Conflict, KubeError, NotFound

START = datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)
NAME = "topogate-webhook.topogate-system.svc"
MUTATING, VALIDATING, CRD = Configuration("mutating", "m"), Configuration("validating", "v"), Configuration("crd", "workloads")
CONFIGURATIONS = (MUTATING, VALIDATING, CRD)
TARGET = Target("ns", "certs", (NAME,), CONFIGURATIONS, Policy())


class Clock:
    """A wall clock that is `skew` off the true time; the monotonic one is not."""

    def __init__(self, skew: timedelta = timedelta(0)) -> None:
        self.true, self.skew = START, skew

    def monotonic(self) -> float:
        return (self.true - START).total_seconds()

    def now(self) -> datetime:
        return self.true + self.skew

    async def sleep(self, seconds: float) -> None:
        raise AssertionError("tests look by themselves")


class Server:
    """Objects by plural and name. Requests pause before they take effect when `pausing`, so that tests decide whose turn it is."""

    def __init__(self, configurations: Iterable[Configuration] = CONFIGURATIONS, *, pausing: bool = False) -> None:
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.version = 0
        self.pausing = pausing
        self.writes: list[str] = []
        self.fail: dict[tuple[str, str], KubeError] = {}
        for one in configurations:
            self.put(KINDS[one.kind].plural, configuration_object(one))

    def put(self, plural: str, obj: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        obj = copy.deepcopy(obj)
        obj["metadata"]["resourceVersion"] = str(self.version)
        self.objects[plural, obj["metadata"]["name"]] = obj
        return copy.deepcopy(obj)

    async def _turn(self, verb: str, plural: str) -> None:
        if self.pausing:
            await pause()
        if (error := self.fail.get((verb, plural))) is not None:
            raise error

    async def get(self, resource, name, namespace=None):
        await self._turn("get", resource.plural)
        return copy.deepcopy(self._find(resource, name))

    async def create(self, resource, body, namespace=None, *, field_manager):
        await self._turn("create", resource.plural)
        if (resource.plural, body["metadata"]["name"]) in self.objects:
            raise AlreadyExists(409, "AlreadyExists", "it is there")
        self.writes.append(resource.plural)
        return self.put(resource.plural, body)

    async def replace(self, resource, body, *, field_manager):
        await self._turn("update", resource.plural)
        self._check(self._find(resource, body["metadata"]["name"]), body["metadata"]["resourceVersion"])
        self.writes.append(resource.plural)
        return self.put(resource.plural, body)

    async def patch(self, resource, name, namespace, body, *, kind, field_manager):
        await self._turn("patch", resource.plural)
        obj = copy.deepcopy(self._find(resource, name))
        (guard, *changes) = body
        assert (guard["op"], guard["path"]) == ("replace", "/metadata/resourceVersion")
        self._check(obj, guard["value"])
        for change in changes:
            *way, last = change["path"].strip("/").split("/")
            where: Any = obj
            for part in way:
                where = where[int(part)] if isinstance(where, list) else where[part]
            where[last] = change["value"]
        self.writes.append(resource.plural)
        return self.put(resource.plural, obj)

    def _find(self, resource, name):
        try:
            return self.objects[resource.plural, name]
        except KeyError:
            raise NotFound(404, "NotFound", f"{resource.plural} {name} not found") from None

    @staticmethod
    def _check(obj, version) -> None:
        if obj["metadata"]["resourceVersion"] != version:
            raise Conflict(409, "Conflict", "the object has been modified")

    # --- for tests ---------------------------------------------------------------------------------------

    def bundles(self, one: Configuration) -> list[bytes]:
        obj = self.objects[KINDS[one.kind].plural, one.name]
        return [base64.b64decode(config.get("caBundle", "")) for config in client_configs(one, obj)]

    def edit(self, one: Configuration, bundle: bytes | None) -> None:
        """By hand, all of its webhooks; None takes the field away."""
        obj = copy.deepcopy(self.objects[KINDS[one.kind].plural, one.name])
        for config in client_configs(one, obj):
            config.pop("caBundle", None)
            if bundle is not None:
                config["caBundle"] = base64.b64encode(bundle).decode()
        self.put(KINDS[one.kind].plural, obj)

    @property
    def secret(self) -> dict[str, bytes]:
        obj = self.objects[SECRETS.plural, TARGET.secret]
        return {key: base64.b64decode(value) for key, value in obj["data"].items()}

    def edit_secret(self, **changes: bytes | None) -> None:
        """Keys with `_` for `.`; None takes one away."""
        obj = copy.deepcopy(self.objects[SECRETS.plural, TARGET.secret])
        for key, value in changes.items():
            obj["data"].pop(key.replace("_", "."), None)
            if value is not None:
                obj["data"][key.replace("_", ".")] = base64.b64encode(value).decode()
        self.put(SECRETS.plural, obj)

    def annotate_secret(self, **annotations: str) -> None:
        obj = copy.deepcopy(self.objects[SECRETS.plural, TARGET.secret])
        obj["metadata"]["annotations"] = {key.replace("__", "/"): value for key, value in annotations.items()}
        self.put(SECRETS.plural, obj)

    def delete_secret(self) -> None:
        del self.objects[SECRETS.plural, TARGET.secret]


def client_configs(one: Configuration, obj: dict[str, Any]) -> list[dict[str, Any]]:
    return (
        [obj["spec"]["conversion"]["webhook"]["clientConfig"]] if one.kind == "crd" else [hook["clientConfig"] for hook in obj["webhooks"]]
    )


def configuration_object(one: Configuration) -> dict[str, Any]:
    metadata = {"name": one.name}
    if one.kind == "crd":
        return {"metadata": metadata, "spec": {"conversion": {"strategy": "Webhook", "webhook": {"clientConfig": {}}}}}
    return {"metadata": metadata, "webhooks": [{"name": "a", "clientConfig": {}}, {"name": "b", "clientConfig": {"caBundle": ""}}]}


@types.coroutine
def pause() -> Generator[None]:
    yield


class Replica:
    """A rotation that is carried forward request by request."""

    def __init__(self, server: Server, skew: timedelta = timedelta(0), target: Target = TARGET) -> None:
        self.clock = Clock(skew)
        self.handed: list[KeyPair] = []
        self.rotation = Rotation(server, target, self.handed.append, self.clock)
        self.error: KubeError | None = None
        self.was_ready = False
        self._looking: Coroutine[Any, Any, None] | None = None

    def step(self) -> bool:
        """Lets one request through; whether the look goes on after it."""
        if self._looking is None:
            self._looking = self.rotation.look()
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
def accepts(bundle: bytes, pair: KeyPair | None, at: datetime) -> bool:
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

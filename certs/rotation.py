"""Executes `certs.rotation_plan` through the API: one check after the other, at intervals and at once after a step.

A check reads the configurations, then the Secret (in this order, see certs.rotation_plan), publishes, takes one step of
the Secret and passes the chain to the server. Every write is guarded by the version that was read; of replicas that
race one succeeds and the others check again. Polled and not watched: the webhook keeps no informer, and a handful of
single GETs every LOOK_S seconds from two replicas is a small load for an API server.

It is safe to drop the former CA because of a lease in reverse: a replica that could not confirm for `fresh_s` seconds
that it serves the pair of the Secret reports itself as not ready, long before others drop the CA of what it serves.
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Never, Protocol

from certs import pki
from certs.pki import KeyPair
from certs.rotation_plan import RotationPlan, RotationPolicy, Write, decide, is_acceptable, is_accepted, is_settled, list_serving_problems
from certs.secret_data import ABSENT, Early, SecretData, Unusable, from_data, to_data
from core.names import ROTATE_CA
from core.resource import Obj, PatchKind, Resource
from core.runtime.clock import Clock
from core.runtime.http.errors import Conflict, KubeError, NotFound
from core.runtime.serving.tls import PairNotServed

logger = logging.getLogger(__name__)

SECRETS = Resource("", "v1", "secrets", "Secret")
_ADMISSION = "admissionregistration.k8s.io"
KINDS = {
    "mutating": Resource(_ADMISSION, "v1", "mutatingwebhookconfigurations", "MutatingWebhookConfiguration", namespaced=False),
    "validating": Resource(_ADMISSION, "v1", "validatingwebhookconfigurations", "ValidatingWebhookConfiguration", namespaced=False),
    "crd": Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False),
    "apiservice": Resource("apiregistration.k8s.io", "v1", "apiservices", "APIService", namespaced=False),
}
"""The kinds of configuration by the name that settings use."""

FIELD_MANAGER = "topogate-webhook"
LOOK_S = 10.0
"""So soon a hand-edited caBundle is healed."""
MAX_STEPS = 12
"""Steps in one check: from nothing to rest takes four; with more than this, others write against us."""


class Api(Protocol):
    """The verbs needed of core.runtime.http.client."""

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Obj:
        """Returns an object as `Client.get` does. Raises NotFound where there is none, and any other KubeError."""

    async def create(self, resource: Resource, body: Mapping[str, Any], namespace: str | None = None, *, field_manager: str) -> Obj:
        """Creates an object and returns it as stored, as `Client.create` does. Raises AlreadyExists where the name is taken, and any other
        KubeError.
        """

    async def replace(self, resource: Resource, body: Mapping[str, Any], *, field_manager: str) -> Obj:
        """Replaces an object and returns it as stored, as `Client.replace` does. Raises Conflict where it has changed, and any other
        KubeError.
        """

    async def patch(
        self,
        resource: Resource,
        name: str,
        namespace: str | None,
        body: Sequence[Mapping[str, Any]],
        *,
        kind: PatchKind,
        field_manager: str,
    ) -> Obj:
        """Patches an object and returns it as stored, as `Client.patch` does. Raises KubeError."""


@dataclass(frozen=True, slots=True)
class BundleHolder:
    """One object that has our caBundle; `kind` is a key of KINDS."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


@dataclass(frozen=True, slots=True)
class CertificateTarget:
    """Where the certificates are stored, which names they are for, and which configurations get the CA. Readiness is
    checked by the first name."""

    namespace: str
    secret: str
    names: tuple[str, ...]
    configurations: tuple[BundleHolder, ...]
    policy: RotationPolicy = field(default_factory=RotationPolicy)

    @property
    def fresh_s(self) -> float:
        """Returns for how many seconds a replica may serve without having confirmed the Secret's content: a quarter of the overlap."""
        return self.policy.overlap.total_seconds() / 4


class Rotation:
    """`serve` is called with each new pair to serve, at once and before anything else happens. It may raise, which ends `run`."""

    def __init__(self, api: Api, target: CertificateTarget, serve: Callable[[KeyPair], None], clock: Clock) -> None:
        self._api = api
        self._target = target
        self._serve = serve
        self._clock = clock
        self._served: KeyPair | None = None
        self._confirmed_at = float("-inf")
        self._published: dict[str, tuple[bytes, ...] | None] = {}
        self._seen: set[str] = set()
        self._complaint = ""

    @property
    def served(self) -> KeyPair | None:
        """Returns the pair that `serve` was called with last, and took without an error; None before the first."""
        return self._served

    @property
    def not_after(self) -> datetime | None:
        """Returns when the certificate that is served ends, in UTC; None before one is."""
        return None if self._served is None else self._served.not_after

    def find_unready_reason(self) -> str:
        """Returns, as text, why clients may not accept what is served: nothing is served yet, or no check in the last `fresh_s` seconds
        confirmed it by the Secret, or a configuration does not trust it. Empty where all is well by the last check. A configuration
        that was never seen with a webhook is a reason, too; one that was, and has gone, is none. An APIService, which
        other processes serve, is no reason at all."""
        if self._served is None:
            return self._complaint or "no serving certificate yet"
        silent_s = self._clock.monotonic() - self._confirmed_at
        if silent_s > self._target.fresh_s:
            why = self._complaint or "it does not match what is published"
            return f"the serving certificate could not be confirmed for {self._target.fresh_s:.0f} s: {why}"
        # Without a configuration that is gone, the API server sends no request because of it: that must not block
        # requests because of the others.
        of_webhook = {str(one) for one in self._target.configurations if one.kind != "apiservice"}
        there = {
            one: bundles for one, bundles in self._published.items() if one in of_webhook and (bundles is not None or one not in self._seen)
        }
        problems = list_serving_problems(self._served, there, self._target.names[0], self._clock.now())
        return "; ".join([*problems, self._complaint] if problems and self._complaint else problems)

    async def run(self) -> Never:
        """Calls `reconcile` again and again, with pauses of `LOOK_S` seconds or a quarter of the target's `fresh_s`, whichever is shorter.
        Never returns. A KubeError, PairNotServed or OSError, also one of `serve`, is logged once, and it goes on. Raises any other error.
        """
        while True:
            try:
                await self.reconcile()
            except (KubeError, PairNotServed, OSError) as error:
                self._report_problem(str(error))
            await self._clock.sleep(min(LOOK_S, self._target.fresh_s / 4))

    async def reconcile(self) -> None:
        """Reads all, publishes the CA bundle, calls `serve` with a new pair of the Secret, and writes the Secret: again until nothing is to
        be done now, `MAX_STEPS` times at most. Then it logs that another client writes, too. A Conflict is followed by another step. Raises
        any other KubeError that kept the Secret or a configuration from being read or the Secret from being written, and what `serve`
        raises. A configuration that cannot be written is logged."""
        for _ in range(MAX_STEPS):
            try:
                if not await self._execute_step():
                    return
            except Conflict as error:
                logger.debug("another replica was faster", extra={"error": str(error)})
        self._report_problem(f"after {MAX_STEPS} steps something was changed again: another client writes the Secret or the configurations")

    async def _execute_step(self) -> bool:
        """Whether there may be more to do."""
        configurations = await self._read_configurations()
        began = self._clock.monotonic()
        secret, held = await self._read_secret()
        if isinstance(held, Unusable):
            # What has been published until the Secret was lost has to be seen: it may be what others serve.
            configurations = await self._read_configurations()
        self._published = {str(one): _list_bundles(one, obj) for one, obj in configurations.items()}
        self._seen |= {one for one, bundles in self._published.items() if bundles is not None}
        plan = decide(held, self._published, self._target.names, self._clock.now(), self._target.policy)
        failed = await self._publish(plan, configurations)
        if isinstance(held, SecretData):
            self._adopt_pair(held, began)
        if plan.write is not None:
            await self._write(secret, plan.write)
            return True
        self._report(plan, failed, warn=isinstance(held, Early))
        return bool(plan.publish) and not failed

    def _report(self, plan: RotationPlan, failed: Sequence[str], *, warn: bool) -> None:
        gone = [f"{one} is gone" for one, bundles in self._published.items() if bundles is None and one in self._seen]
        if failed or gone or warn:
            self._report_problem("; ".join([*failed, *gone]) or plan.waiting)
        else:
            self._complaint = plan.waiting

    async def _publish(self, plan: RotationPlan, configurations: Mapping[BundleHolder, Obj | None]) -> list[str]:
        """Publishes the bundle; returns failures but for conflicts, as text: one configuration that may not be written
        must not keep the others from the bundle."""
        failed = []
        for one, obj in configurations.items():
            if obj is None or str(one) not in plan.publish:
                continue
            try:
                written = await self._api.patch(
                    KINDS[one.kind], one.name, None, _patch(one, obj, plan.bundle), kind=PatchKind.JSON, field_manager=FIELD_MANAGER
                )
            except (Conflict, NotFound):
                continue  # changed since, or gone: the next look sees
            except KubeError as error:
                failed.append(f"{one} is not written: {error}")
            else:
                self._published[str(one)] = _list_bundles(one, written)
                logger.info("CA published", extra={"configuration": str(one)})
        return failed

    def _adopt_pair(self, held: SecretData, began: float) -> None:
        now, policy = self._clock.now(), self._target.policy
        leaf, name = held.leaf, self._target.names[0]
        if (
            leaf is not None
            and leaf != self._served
            and not pki.validate(leaf.certificate, held.signer.certificate, name, max(now, held.signer.not_before), leaf.key)
            and is_acceptable(leaf, self._served, self._published, name, now)
            and (is_settled(held, now, policy) or not self._is_of_another_ca(held, name, now))
        ):
            self._serve(leaf)
            self._served = leaf
            logger.info("serving certificate taken over", extra={"not_after": leaf.not_after.isoformat()})
        # As long as a new CA is not trusted everywhere, the time for which old ones are kept has not begun.
        stays = not is_settled(held, now, policy) and self._served is not None and is_accepted(held.bundle, self._served, name, now)
        if self._served is not None and (leaf == self._served or stays):
            self._confirmed_at = began

    def _is_of_another_ca(self, held: SecretData, name: str, now: datetime) -> bool:
        """Whether API servers know what is served by a CA that is not the Secret's, and may not have learnt of this yet."""
        served = self._served
        if served is None or is_accepted(held.signer.certificate, served, name, now):
            return False
        return any(is_accepted(bundle, served, name, now) for bundles in self._published.values() for bundle in bundles or ())

    async def _read_configurations(self) -> dict[BundleHolder, Obj | None]:
        return {one: await self._read_configuration(one) for one in self._target.configurations}

    async def _read_configuration(self, one: BundleHolder) -> Obj | None:
        try:
            return await self._find(KINDS[one.kind], one.name)
        except KubeError as error:
            if one.kind != "apiservice":  # jobs are admitted without it
                raise
            self._report_problem(f"{one} is not read: {error}")
            return None

    async def _read_secret(self) -> tuple[Obj | None, SecretData | Unusable | Early]:
        secret = await self._find(SECRETS, self._target.secret, self._target.namespace)
        if secret is None:
            return None, ABSENT
        try:
            data = {key: base64.b64decode(value) for key, value in (secret.get("data") or {}).items()}
        except (binascii.Error, ValueError):  # no API server would have taken it
            return secret, Unusable("the Secret is not base64")
        asked = ROTATE_CA in (secret["metadata"].get("annotations") or {})
        return secret, from_data(data, self._clock.now(), asked=asked)

    async def _find(self, resource: Resource, name: str, namespace: str | None = None) -> Obj | None:
        try:
            return await self._api.get(resource, name, namespace)
        except NotFound:
            return None

    async def _write(self, secret: Obj | None, step: Write) -> None:
        data = {key: base64.b64encode(value).decode() for key, value in to_data(step.held).items()}
        if secret is None:
            metadata: Obj = {"name": self._target.secret, "namespace": self._target.namespace}
            body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": "kubernetes.io/tls", "data": data}
            await self._api.create(SECRETS, body, self._target.namespace, field_manager=FIELD_MANAGER)
        else:
            metadata = {key: value for key, value in secret["metadata"].items() if key != "managedFields"}
            if not step.held.asked and ROTATE_CA in (metadata.get("annotations") or {}):
                metadata["annotations"] = {key: value for key, value in metadata["annotations"].items() if key != ROTATE_CA}
            await self._api.replace(SECRETS, {**secret, "metadata": metadata, "data": data}, field_manager=FIELD_MANAGER)
        logger.info("certificates rotated a step", extra={"secret": self._target.secret, "reason": step.reason})

    def _report_problem(self, text: str) -> None:
        """Logs a problem once, not at every check."""
        if text != self._complaint:
            logger.warning("certificates not in order", extra={"error": text})
        self._complaint = text


def _list_bundles(one: BundleHolder, obj: Obj | None) -> tuple[bytes, ...] | None:
    """Returns the CA bundles of a configuration; None where it sends no requests: no such object, or none of its
    webhooks. Invalid base64 counts as empty."""
    found = [] if obj is None else [config for _, config in _list_client_configs(one, obj)]
    return tuple(_decode(config.get("caBundle")) for config in found) or None


def _list_client_configs(one: BundleHolder, obj: Obj) -> list[tuple[str, Obj]]:
    """Each `clientConfig` with its JSON pointer; of an APIService its `spec`, if a Service serves it and its certificate is verified: the
    API server takes no CA otherwise."""
    if one.kind == "apiservice":
        spec = obj.get("spec") or {}
        return [("/spec", spec)] if spec.get("service") and not spec.get("insecureSkipTLSVerify") else []
    if one.kind != "crd":
        return [(f"/webhooks/{index}/clientConfig", hook.get("clientConfig") or {}) for index, hook in enumerate(obj.get("webhooks") or ())]
    conversion = (obj.get("spec") or {}).get("conversion") or {}
    config = (conversion.get("webhook") or {}).get("clientConfig")
    return [("/spec/conversion/webhook/clientConfig", config)] if conversion.get("strategy") == "Webhook" and config is not None else []


def _patch(one: BundleHolder, obj: Obj, bundle: bytes) -> list[Obj]:
    """Only our fields, by position: the version makes sure that positions are still what they were."""
    value = base64.b64encode(bundle).decode()
    guard: Obj = {"op": "replace", "path": "/metadata/resourceVersion", "value": obj["metadata"]["resourceVersion"]}
    return [guard, *({"op": "add", "path": f"{path}/caBundle", "value": value} for path, _ in _list_client_configs(one, obj))]


def _decode(text: object) -> bytes:
    try:
        return base64.b64decode(text) if isinstance(text, str) else b""
    except ValueError:
        return b""

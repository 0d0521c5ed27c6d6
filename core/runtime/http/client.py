"""The API server's verbs on plain JSON objects.

Credentials are read by kubernetes-asyncio (`core.runtime.http.credential_library`), which does nothing else here: kubeconfig (tokens, exec
plugins, client certificates) or the service account of the pod. `core.runtime.http.kubeconfig` honours or refuses the fields of a user that
the library passes over.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from core.resource import PAGE_LIMIT, Obj, Page, PatchKind, Resource
from core.runtime.http.credential_library import import_credential_readers
from core.runtime.http.errors import Gone, TooManyRequests, Unreachable
from core.runtime.http.kubeconfig import build_unusable_error, find_context, find_kubeconfig, read_impersonation, strip_record
from core.runtime.http.parsing import encode, parse_list, parse_object
from core.runtime.http.rate_limiter import RateLimiter
from core.runtime.http.transport import Endpoint, Fence, Nowhere, Transport

__all__ = ["Client", "Obj", "OnRequest", "Page", "PatchKind", "Resource"]

OnRequest = Callable[[str, Resource, str | None], None]
"""Called with the RBAC verb, the resource and the subresource of every request, so that tests can compare the rights of
the chart with those used."""

OnReply = Callable[[Resource, Obj, str | None], None]
_REPLIES = frozenset({"create", "get", "patch", "update"})  # verbs of which the answer is an object as it is now

THROTTLE_RETRIES = 3
MAX_RETRY_AFTER_S = 10.0
"""A longer wait is the caller's to plan: a worker must not be held for minutes by one key."""


class Client:
    """Verbs raise a `KubeError`; only shed load (429) on verbs that may be repeated is retried here, everything else is the work queue's
    business."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.on_request: OnRequest | None = None
        self.fence: Fence | None = None  # of all writes
        self.on_reply: OnReply | None = None  # called at once with each object that the server answers with, and its field manager
        self.pace: RateLimiter | None = None  # of single requests; watches stay open and are not counted

    @classmethod
    async def connect(
        cls, kubeconfig: str | None = None, *, context: str | None = None, user_agent: str, timeout_s: float = 30.0
    ) -> Client:
        """Returns a client that connects by the kubeconfig given, else $KUBECONFIG or ~/.kube/config where it exists, else as a pod inside
        the cluster. `context` None: the current one. `timeout_s` bounds each request. Sends nothing yet, but may run the exec plugin of the
        user. Raises UnusableKubeconfig."""
        os.environ.setdefault("HOME", "/")  # the library asks for a home when it is imported, and a pod's user may have none
        readers = import_credential_readers()
        logging.getLogger("kubernetes_asyncio.config.kube_config").addFilter(strip_record)
        path = find_kubeconfig(kubeconfig)

        async def load() -> Endpoint:
            headers: tuple[tuple[str, str], ...] = ()
            configuration: Any = type.__call__(readers.configuration)  # a new one, since the library never removes a token

            async def authorize() -> str | None:
                try:
                    token = await configuration.get_api_key_with_prefix("BearerToken")
                except Exception as error:  # the service account's token file, which is read again every minute
                    raise Unreachable(f"the credentials cannot be read: {error}") from error
                return token.strip() if token else None

            try:
                if path is None:
                    readers.load_incluster_config(client_configuration=configuration)
                else:
                    meant = context or find_context(path)
                    headers = read_impersonation(path, meant)
                    await readers.load_kube_config(
                        config_file=path, context=meant, client_configuration=configuration, persist_config=False
                    )
                return replace(await asyncio.to_thread(_read_endpoint, configuration), headers=headers, authorize=authorize)
            except Exception as error:
                raise build_unusable_error(path, error) from error

        transport = Transport(await load(), user_agent=user_agent, reload=load, timeout_s=timeout_s)
        return cls(transport)

    @classmethod
    def make_offline(cls) -> Client:
        """Returns a client without an API server, for state that is filled from files: every verb raises Unreachable."""
        return cls(Nowhere())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.aclose()

    @property
    def address(self) -> str:
        """Returns the URL of the API server, without credentials, to name it to people."""
        return self._transport.address

    async def aclose(self) -> None:
        """Closes all connections; the client cannot be used afterwards."""
        await self._transport.aclose()

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Obj:
        """Returns an object as the API server has it now. Raises NotFound where there is none, and any other KubeError; TooManyRequests
        only after `THROTTLE_RETRIES` more tries, or where the server asks for more than `MAX_RETRY_AFTER_S`."""
        return await self._send("get", "GET", resource, resource.build_path(namespace, name), repeatable=True)

    async def list_page(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        limit: int | None = None,
        continue_token: str = "",
        field_selector: str | None = None,
    ) -> Page:
        """Returns one page of a list; with `limit` None the whole list. Items are given the apiVersion and kind that the server leaves out
        in lists of built-in types. Repeats on 429 as `get`. Raises Gone where `continue_token` is too old, and any other KubeError."""
        params = _build_params(limit=limit, fieldSelector=field_selector, **{"continue": continue_token})
        answer = await self._send("list", "GET", resource, resource.build_path(namespace), params=params, repeatable=True)
        metadata = answer.get("metadata") or {}
        items: list[Obj] = answer.get("items") or []
        for item in items:
            item.setdefault("apiVersion", resource.api_version)
            item.setdefault("kind", resource.kind)
        return Page(items, str(metadata.get("resourceVersion") or ""), str(metadata.get("continue") or ""))

    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        field_selector: str | None = None,
        limit: int = PAGE_LIMIT,
    ) -> Page:
        """Returns all pages as one consistent list, read in pages of `limit` objects; it has the version of the list and no continue token.
        Raises KubeError. When the continue token has become too old (410) the pages read so far are thrown away and everything is asked for
        at once: the server's offer to go on from a newer state would mix two moments."""
        items: list[Obj] = []
        token = ""
        while True:
            try:
                page = await self.list_page(resource, namespace, limit=limit, continue_token=token, field_selector=field_selector)
            except Gone:
                if not token:
                    raise
                return await self.list_page(resource, namespace, field_selector=field_selector)
            items += page.items
            token = page.continue_token
            if not token:
                return Page(items, page.resource_version)

    async def create(
        self, resource: Resource, body: Mapping[str, Any], namespace: str | None = None, *, field_manager: str | None = None
    ) -> Obj:
        """Creates an object and returns it as the server has stored it. The namespace is the body's when not given. Raises AlreadyExists
        where the name is taken, and any other KubeError; never repeats it."""
        path = resource.build_path(namespace or body.get("metadata", {}).get("namespace"))
        return await self._send("create", "POST", resource, path, params=_build_params(fieldManager=field_manager), body=body)

    async def replace(self, resource: Resource, body: Mapping[str, Any], *, field_manager: str | None = None) -> Obj:
        """Replaces the object that the body names, and returns it as stored; never repeats it. Raises Conflict where the body has a
        resourceVersion that is not the present one. Raises NotFound where there is no such object, and any other KubeError."""
        metadata = body["metadata"]
        path = resource.build_path(metadata.get("namespace"), metadata["name"])
        return await self._send("update", "PUT", resource, path, params=_build_params(fieldManager=field_manager), body=body)

    async def patch(
        self,
        resource: Resource,
        name: str,
        namespace: str | None,
        body: Mapping[str, Any] | Sequence[Mapping[str, Any]],
        *,
        kind: PatchKind,
        subresource: str | None = None,
        field_manager: str | None = None,
    ) -> Obj:
        """Patches an object and returns it as stored. Of all kinds only an apply is repeated on 429, as `get`, since it describes the
        result and not the change; it takes over fields of other managers. Raises KubeError, of which NotFound where there is no such
        object, which an apply creates."""
        is_apply = kind is PatchKind.APPLY
        return await self._send(
            "patch",
            "PATCH",
            resource,
            resource.build_path(namespace, name, subresource),
            params=_build_params(fieldManager=field_manager, force="true" if is_apply else None),
            body=body,
            content_type=kind.value,
            subresource=subresource,
            repeatable=is_apply,
        )

    async def apply(
        self,
        resource: Resource,
        name: str,
        namespace: str | None,
        body: Mapping[str, Any],
        *,
        field_manager: str,
        subresource: str | None = None,
    ) -> Obj:
        """Applies fields to an object (server-side apply) and returns it as stored: exactly the fields of `body` are this manager's from
        now on, also those that another manager owned. Creates it where it does not exist. JSON is valid YAML, so the body goes as it is.

        It is repeated on 429, as `get`. Raises Conflict where a uid or resourceVersion in `body` is not the present one, and any other
        KubeError.
        """
        whole = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        whole["metadata"] = {**body.get("metadata", {}), "name": name}
        return await self.patch(
            resource, name, namespace, whole, kind=PatchKind.APPLY, subresource=subresource, field_manager=field_manager
        )

    async def delete(
        self,
        resource: Resource,
        name: str,
        namespace: str | None = None,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
    ) -> Obj:
        """Deletes an object and returns the server's answer: a Status, or the object while something holds it. Raises Conflict where the
        object has another `uid` or `resource_version`, NotFound where it is gone, and any other KubeError."""
        preconditions = {key: value for key, value in (("uid", uid), ("resourceVersion", resource_version)) if value is not None}
        options: Obj = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if preconditions:
            options["preconditions"] = preconditions
        return await self._send("delete", "DELETE", resource, resource.build_path(namespace, name), body=options)

    async def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        resource_version: str,
        field_selector: str | None = None,
        timeout_seconds: int,
    ) -> AsyncGenerator[Obj, None]:
        """Yields raw events `{"type", "object"}` after `resource_version`, bookmarks and ERROR events included, until the server closes the
        stream, after `timeout_seconds` at the latest. Raises KubeError where it is refused, breaks off, or sends a line that is no JSON
        object. To be closed with `contextlib.aclosing`. Only the opening is bounded in time: the reader must give up on silence."""
        params = _build_params(
            watch="true",
            allowWatchBookmarks="true",
            resourceVersion=resource_version,
            fieldSelector=field_selector,
            timeoutSeconds=timeout_seconds,
        )
        self._report_request("watch", resource, None)
        lines = self._transport.read_lines(resource.build_path(namespace), params=params)
        try:
            async for line in lines:
                yield parse_object(line)
        finally:
            await lines.aclose()

    async def request_raw(self, method: str, path: str) -> bytes:
        """Requests any path once, for discovery, probes and versions; returns the body of the answer. Answers of 300 and above raise
        KubeErrors as in other methods. `pace`, `fence` and `on_request` do not apply."""
        return await self._transport.request(method, path)

    async def _send(
        self,
        verb: str,
        method: str,
        resource: Resource,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        subresource: str | None = None,
        repeatable: bool = False,
    ) -> Obj:
        data = None if body is None else encode(body)
        retries = THROTTLE_RETRIES if repeatable else 0
        while True:
            self._report_request(verb, resource, subresource)
            if self.pace is not None:
                await self.pace.wait_turn()
            try:
                fence = self.fence if method != "GET" else None
                answer = await self._transport.request(method, path, params=params, body=data, content_type=content_type, fence=fence)
                if verb == "list":
                    return await parse_list(answer)
                found = parse_object(answer)
                if self.on_reply is not None and verb in _REPLIES and found.get("kind") == resource.kind:
                    self.on_reply(resource, found, (params or {}).get("fieldManager"))
                return found
            except TooManyRequests as error:
                wait_s = 1.0 if error.retry_after is None else error.retry_after
                if retries == 0 or wait_s > MAX_RETRY_AFTER_S:
                    raise
                retries -= 1
                await asyncio.sleep(wait_s)

    def _report_request(self, verb: str, resource: Resource, subresource: str | None) -> None:
        if self.on_request is not None:
            self.on_request(verb, resource, subresource)


def _build_params(**values: str | int | None) -> dict[str, str]:
    return {key: str(value) for key, value in values.items() if value not in (None, "")}


def _read_endpoint(configuration: Any) -> Endpoint:
    """Returns the address and the trust settings of kubernetes-asyncio's configuration. Reads files, and so runs on a thread."""
    url = str(configuration.host).rstrip("/")
    tls: ssl.SSLContext | None = None
    if url.startswith("https"):
        tls = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
        if configuration.cert_file:
            tls.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
        if not configuration.verify_ssl:
            tls.check_hostname = False
            tls.verify_mode = ssl.CERT_NONE
        if getattr(configuration, "disable_strict_ssl_verification", False):
            tls.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return Endpoint(url, tls, configuration.tls_server_name or None, configuration.proxy or _find_environment_proxy(url))


def _find_environment_proxy(url: str) -> str | None:
    """As other Kubernetes clients: the environment's proxy, but never to this machine itself."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if host == "localhost" or host.startswith("127.") or host == "::1" or proxy_bypass(host):
        return None
    return getproxies().get(parts.scheme)

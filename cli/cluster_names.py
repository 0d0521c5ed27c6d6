"""Names for shell completion, from the cluster: within a short time, and none where anything is wrong."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import typer

_LISTED_S = 1.2  # the shell waits for it
_MOST = 500  # objects of one kind that are listed


def complete_explained(ctx: typer.Context, incomplete: str) -> list[str]:
    """Returns what may follow in `topogate explain`: a kind, a name of the kind before it, or KIND/NAME. With the first letters of a name
    it returns Workloads, Jobs and LocalQueues, too."""
    given = list(ctx.params.get("what") or ())
    kind, slash, _ = incomplete.partition("/")
    if given:
        names = _list_names(ctx, _find_resources(given[0])) if len(given) == 1 and "/" not in given[0] else []
        return _filter(names, incomplete)
    if slash:
        return _filter((f"{kind}/{name}" for name in _list_names(ctx, _find_resources(kind))), incomplete)
    names = _list_names(ctx, _find_resources("")) if incomplete else []
    kinds = (resources[0].kind.lower() for resources in _index_kinds().values())
    return _filter([*kinds, *names], incomplete)


def complete_queue(ctx: typer.Context, incomplete: str) -> list[str]:
    """Returns the names of ClusterQueues and LocalQueues, or KIND/NAME where a kind is given, as `topogate queue` accepts them."""
    kind, slash, _ = incomplete.partition("/")
    if slash:
        return _filter((f"{kind}/{name}" for name in _list_names(ctx, _find_resources(kind))), incomplete)
    return _filter(_list_names(ctx, [*_find_resources("clusterqueue"), *_find_resources("localqueue")]), incomplete)


def complete_topology(ctx: typer.Context, incomplete: str) -> list[str]:
    """Returns the names of Topologies."""
    from core.plan.steps import api_resources as r

    return _filter(_list_names(ctx, [r.TOPOLOGIES]), incomplete)


def complete_namespace(ctx: typer.Context, incomplete: str) -> list[str]:
    """Returns the names of Namespaces."""
    from core.plan.steps import api_resources as r

    return _filter(_list_names(ctx, [r.NAMESPACES]), incomplete)


def _filter(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted({name for name in names if name.startswith(incomplete)})


def _find_resources(kind: str) -> Sequence[Any]:
    """The resources of a kind as people write it; for no kind those of which a name alone is given most."""
    from core.plan.steps import api_resources as r

    called = _index_kinds()
    if not kind:
        return [*called["job"], r.WORKLOADS, r.LOCAL_QUEUES]
    return called.get(kind.lower(), [])


def _index_kinds() -> dict[str, list[Any]]:
    from cli.kind_names import BESIDE, SHORT, WORKLOAD, list_kind_names
    from core.jobs.kinds.pod_kinds import POD_SETS
    from core.jobs.kinds.registry import KINDS
    from core.plan.steps import api_resources as r

    of_jobs, of_pods = map(r.get_resource, KINDS), map(r.get_resource, POD_SETS)
    resources = [*of_jobs, *of_pods, r.PODS, r.POD_GROUPS, *BESIDE.values()]
    called = {name: [resource] for resource in resources for name in list_kind_names(resource)}
    called |= {short: called[kind] for short, kind in SHORT.items()} | {short: [resource] for short, resource in BESIDE.items()}
    return called | {name: [r.WORKLOADS] for name in WORKLOAD}


def _list_names(ctx: typer.Context, resources: Sequence[Any]) -> list[str]:
    """The names of the first 500 objects of each resource; empty where the cluster does not answer in time or permit it."""
    try:
        with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
            return runner.run(_list_in_time(ctx.params, resources))
    except Exception:  # whatever it is: a shell that waits for a completion shows no error
        return []


async def _list_in_time(options: dict[str, Any], resources: Sequence[Any]) -> list[str]:
    from cli.shell_completion import limit_wait
    from core.runtime.http.client import Client
    from core.runtime.http.errors import KubeError
    from core.runtime.http.kubeconfig import find_namespace

    limit_wait()
    kubeconfig, context = options.get("kubeconfig"), options.get("context")
    namespace = options.get("namespace") or find_namespace(kubeconfig, context) or "default"
    found: list[str] = []
    async with asyncio.timeout(_LISTED_S):
        async with await Client.connect(kubeconfig, context=context, user_agent="topogate-completion", timeout_s=_LISTED_S) as client:
            for resource in resources:
                try:
                    page = await client.list_page(resource, namespace if resource.namespaced else None, limit=_MOST)
                except KubeError:  # of another kind there may be names
                    continue
                found += [obj["metadata"]["name"] for obj in page.items]
    return found

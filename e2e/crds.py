"""Install the generated CRDs, and wait until the API server serves them; remove definitions, and wait until they are gone."""

from __future__ import annotations

import json
from collections.abc import Collection
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

import yaml

from e2e.api import APPLY_PATCH, JSON_PATCH, Api, wait_for

CRD_DIR = Path(__file__).parent.parent / "charts" / "topogate" / "files" / "crds"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def load_crds(folder: Path = CRD_DIR, *, serves_old: bool = True) -> list[dict[str, Any]]:
    """The CRDs of a folder. `serves_old`: v1beta1 is served, too, as with `crds.servesOldVersions` of the chart, since tests of it share
    their control plane with others; False: as they are generated."""
    crds = [_load(path.read_text()) for path in sorted(folder.glob("*.yaml"))]
    for version in (version for crd in crds if serves_old for version in crd["spec"]["versions"]):
        version["served"] = True
    return crds


def _load(text: str) -> dict[str, Any]:
    return cast(dict[str, Any], json.loads(_to_json(text)))


@cache
def _to_json(text: str) -> str:
    # Most of the time that a contract test takes in memory was that of reading the same 200 kB of YAML.
    return json.dumps(yaml.load(text, yaml.CSafeLoader))


def install_crds(api: Api, folder: Path = CRD_DIR) -> list[str]:
    """Apply all CRDs of the folder and wait until each is established; their names. Repeating it changes nothing.

    No webhook has to run yet: as they are generated they name one that only v1beta1 needs. One that is registered stays.
    """
    crds = load_crds(folder)
    for crd in crds:
        name = crd["metadata"]["name"]
        registered = ((api.find(f"{CRDS}/{name}") or {}).get("spec") or {}).get("conversion") or {}
        if (registered.get("webhook") or {}).get("clientConfig", {}).get("caBundle"):
            crd["spec"]["conversion"] = registered
        api.patch(f"{CRDS}/{name}?fieldManager=e2e&force=true", crd, APPLY_PATCH)
    names = [crd["metadata"]["name"] for crd in crds]
    for name in names:
        wait_for(f"CRD {name} to be established", partial(is_established, api, name))
    for crd in crds:
        # Established comes a moment before every path answers; a list that succeeds is what a test can rely on.
        spec = crd["spec"]
        version = next(version["name"] for version in spec["versions"] if version["storage"])
        path = f"/apis/{spec['group']}/{version}/{spec['names']['plural']}"
        wait_for(f"{path} to be served", partial(api.find, path))
    return names


def register_conversion(api: Api, conversion: dict[str, Any] | None, folder: Path = CRD_DIR) -> None:
    """Have the API server ask this webhook about kinds that need one; with None the one that their CRDs were generated with."""
    for crd in load_crds(folder):
        spec = crd["spec"]
        if spec["conversion"]["strategy"] == "Webhook":
            # JSON Patch: where a webhook was said by its service and is now by its URL, nothing of the service may be left.
            operation = {"op": "replace", "path": "/spec/conversion", "value": conversion or spec["conversion"]}
            api.patch(f"{CRDS}/{crd['metadata']['name']}", [operation], JSON_PATCH)


def remove_crds(api: Api, names: Collection[str]) -> None:
    """Takes definitions and all of their objects away. Returns when none is left: one that is on its way out is still established, and
    whoever applies it then has it for a moment only."""
    for name in names:
        api.delete(f"{CRDS}/{name}")
    wait_for(f"{', '.join(names)} to be gone", lambda: not {crd["metadata"]["name"] for crd in api.list(CRDS)}.intersection(names))


def is_established(api: Api, name: str) -> bool:
    """Whether the API server serves that CRD."""
    conditions = api.get(f"{CRDS}/{name}").get("status", {}).get("conditions") or []
    return any(condition["type"] == "Established" and condition["status"] == "True" for condition in conditions)

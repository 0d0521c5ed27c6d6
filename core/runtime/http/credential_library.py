"""The part of kubernetes-asyncio that reads credentials, without the classes of all objects of the API.

Imported as a whole the library costs a process 34 MB and 0.3 s. So its packages are put in place without what they
import themselves, and removed again: whatever imports the library later gets the whole.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

_NAME = "kubernetes_asyncio"


class CredentialReaders(NamedTuple):
    """The class of a configuration, and the functions that fill one: from a pod's service account, and from a kubeconfig."""

    configuration: Any
    load_incluster_config: Any
    load_kube_config: Any


@cache
def import_credential_readers() -> CredentialReaders:
    """Returns what reads credentials. Imports the whole library where another module has done so, or where a version of it cannot be
    imported in part. Raises ImportError where there is none."""
    spec = find_spec(_NAME) if _NAME not in sys.modules else None
    if spec is None or not spec.submodule_search_locations:
        return _import_readers()
    bare = [ModuleType(_NAME), ModuleType(f"{_NAME}.client")]
    for module, folder in zip(bare, ("", "client"), strict=True):
        module.__path__ = [str(Path(location, folder)) for location in spec.submodule_search_locations]
        sys.modules[module.__name__] = module
    try:
        with _import_when_used("urllib3"):  # which encodes passwords
            from kubernetes_asyncio.client.configuration import Configuration

        bare[1].__dict__.update(Configuration=Configuration, ApiClient=object)  # the latter for a function that is not called here
        return _import_readers()
    except (ImportError, AttributeError):
        _remove_modules()
        return _import_readers()
    finally:
        if sys.modules.get(_NAME) is bare[0]:
            _remove_modules()


@contextmanager
def _import_when_used(name: str) -> Iterator[None]:
    """What imports a module meanwhile imports it when it first asks for one of its attributes."""
    if name in sys.modules:
        yield
        return
    later = ModuleType(name)
    vars(later)["__getattr__"] = lambda attribute: getattr(import_module(name), attribute)
    sys.modules[name] = later
    try:
        yield
    finally:
        if sys.modules.get(name) is later:
            del sys.modules[name]


def _import_readers() -> CredentialReaders:
    from kubernetes_asyncio.client import Configuration
    from kubernetes_asyncio.config import load_incluster_config, load_kube_config

    return CredentialReaders(Configuration, load_incluster_config, load_kube_config)


def _remove_modules() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == _NAME]:
        del sys.modules[name]

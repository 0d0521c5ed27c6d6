"""What reads credentials comes without the rest of its library, and leaves that whole for others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
IN_PART = """
import sys
from core.runtime.http.credential_library import import_credential_readers
readers = import_credential_readers()
assert readers is import_credential_readers()
assert readers.configuration.__name__ == "Configuration"
assert [name for name in sys.modules if name.startswith("kubernetes_asyncio")] == []
import kubernetes_asyncio
assert kubernetes_asyncio.client.CoreV1Api and kubernetes_asyncio.client.ApiClient is not object
"""
PASSWORD_LATER = """
import sys
from core.runtime.http.credential_library import import_credential_readers
configuration = import_credential_readers().configuration()
assert "urllib3" not in sys.modules
configuration.username, configuration.password = "ann", "secret"
assert configuration.get_basic_auth_token() == "Basic YW5uOnNlY3JldA=="
import urllib3
assert urllib3.util.make_headers
"""
ALREADY_THERE = """
import kubernetes_asyncio
from core.runtime.http.credential_library import import_credential_readers
assert import_credential_readers().configuration is kubernetes_asyncio.client.Configuration
"""
OTHER_VERSION = """
import sys
from importlib.abc import MetaPathFinder
class Refusing(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "kubernetes_asyncio.config" and not hasattr(sys.modules["kubernetes_asyncio.client"], "CoreV1Api"):
            raise ImportError("it needs the whole client")
sys.meta_path.insert(0, Refusing())
from core.runtime.http.credential_library import import_credential_readers
readers = import_credential_readers()
import kubernetes_asyncio
assert readers.configuration is kubernetes_asyncio.client.Configuration
"""


@pytest.mark.parametrize("program", [IN_PART, PASSWORD_LATER, ALREADY_THERE, OTHER_VERSION])
def test_readers_of_credentials_are_imported_in_part_where_that_is_possible(program: str):
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)

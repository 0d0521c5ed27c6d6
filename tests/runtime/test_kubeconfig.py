"""A kubeconfig that cannot be used is said to be so in one line that names it, whatever is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from certs import pki
from core.runtime.client import Client
from core.runtime.kubeconfig import UnusableKubeconfig, find_kubeconfig

ROOT = Path(__file__).parents[2]
NO_CONTEXT = {"current-context": "x", "contexts": []}
NO_CA = {
    "current-context": "x",
    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1", "certificate-authority": "/nowhere/ca.crt"}}],
    "users": [{"name": "u", "user": {"token": "t"}}],
}


async def refusal(path: str | None) -> str:
    with pytest.raises(UnusableKubeconfig) as caught:
        await Client.connect(path, user_agent="test")
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"a: [b", "while parsing a flow sequence"),
        (b"", "it is not a kubeconfig"),
        (b"- 1", "it is not a kubeconfig"),
        (b"\xff\xfe\x00", "it is not a kubeconfig"),
        (json.dumps(NO_CONTEXT).encode(), "name x"),
        (json.dumps(NO_CA).encode(), "/nowhere/ca.crt"),
    ],
    ids=["broken YAML", "empty", "a list", "binary", "no context", "no certificate"],
)
async def test_a_file_that_cannot_be_used_is_named_with_what_is_wrong(content: bytes, told: str, tmp_path: Path):
    path = tmp_path / "config"
    path.write_bytes(content)
    text = await refusal(str(path))
    assert text.startswith(f"kubeconfig {path}: ")
    assert told in text
    assert "Error" not in text
    assert "NoneType" not in text


async def test_a_file_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch):
    assert await refusal("/nowhere/config") == "kubeconfig /nowhere/config: there is no such file"
    monkeypatch.setenv("KUBECONFIG", "/nowhere/a:/nowhere/b")
    assert await refusal(None) == "kubeconfig /nowhere/a:/nowhere/b: there is no such file ($KUBECONFIG names it)"


async def test_no_kubeconfig_outside_a_pod_says_where_one_was_looked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert (await refusal(None)).startswith("there is no kubeconfig (neither --kubeconfig nor $KUBECONFIG names one")


def test_of_several_files_one_that_is_there_is_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    path = tmp_path / "config"
    path.write_text("{}")
    monkeypatch.setenv("KUBECONFIG", f"/nowhere/config{os.pathsep}{path}")
    assert find_kubeconfig(None) == f"/nowhere/config{os.pathsep}{path}"
    assert find_kubeconfig(str(path)) == str(path)


@pytest.mark.parametrize("process", ["reconciler", "webhook"])
def test_each_process_says_so_in_one_line_and_ends_with_status_2(process: str, tmp_path: Path):
    command = [sys.executable, "-m", process, "--kubeconfig", "/nowhere/config"]
    if process == "webhook":
        now = datetime.now(UTC)
        serving = pki.issue_serving(pki.issue_ca("test", now), ["localhost"], now)
        files = {"--cert-file": serving.certificate, "--key-file": serving.key}
        for option, content in files.items():
            path = tmp_path / option.strip("-")
            path.write_bytes(content)
            command += [option, str(path)]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 2
    assert ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    assert json.loads(line)["error"] == "kubeconfig /nowhere/config: there is no such file"

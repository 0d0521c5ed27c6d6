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
from core.runtime.kubeconfig import UnusableKubeconfig, find_kubeconfig, read_impersonation

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
        (json.dumps(NO_CONTEXT).encode(), "there is no context x"),
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


def config_of(user: object, context: object = None) -> dict[str, object]:
    return {
        "current-context": "c",
        "contexts": [{"name": "c", "context": context or {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": user}],
    }


@pytest.mark.parametrize(
    ("user", "headers"),
    [
        ({"token": "t"}, ()),
        ({"token": "t", "as": "dev"}, (("Impersonate-User", "dev"),)),
        (
            {
                "as": "system:serviceaccount:team-a:dev",
                "as-uid": "17",
                "as-groups": ["developers", "team-a"],
                "as-user-extra": {"example.com/Reason (new)": ["a", "b"], "scopes": ["view"]},
            },
            (
                ("Impersonate-User", "system:serviceaccount:team-a:dev"),
                ("Impersonate-Uid", "17"),
                ("Impersonate-Group", "developers"),
                ("Impersonate-Group", "team-a"),
                ("Impersonate-Extra-example.com%2FReason%20%28new%29", "a"),
                ("Impersonate-Extra-example.com%2FReason%20%28new%29", "b"),
                ("Impersonate-Extra-scopes", "view"),
            ),
        ),
    ],
    ids=["itself", "a user", "all fields"],
)
def test_impersonation_of_a_user_entry_becomes_the_headers_of_client_go(user: object, headers: object, tmp_path: Path):
    path = tmp_path / "config"
    path.write_text(json.dumps(config_of(user)))
    assert read_impersonation(str(path), "c") == headers


@pytest.mark.parametrize(
    ("user", "says"),
    [
        ({"token": "t", "impersonate": "dev"}, "user u: impersonate: not supported; accepted are as, as-groups, "),
        ({"as-groups": ["a"]}, "user u: as-groups without as; set as to the name of the user to impersonate"),
        ({"as": ["dev"]}, "user u: as: ['dev'] is not accepted; a string of printable characters is expected"),
        ({"as": "dev\nImpersonate-Group: x"}, "user u: as: 'dev\\nImpersonate-Group: x' is not accepted"),
        ({"as": "dev", "as-groups": "a"}, "user u: as-groups: 'a' is not accepted; a list of names is expected"),
        ({"as": "dev", "as-user-extra": {"a": "b"}}, "user u: as-user-extra: {'a': 'b'} is not accepted; an object of names and lists"),
        ({"token": "t", "tokenFile": "/t"}, "user u: token and tokenFile are set; only one way to authenticate is accepted"),
        ({"token": "t", "exec": {"command": "x"}}, "user u: token and exec are set; only one way to authenticate is accepted"),
        ({"as": False}, "user u: as: False is not accepted; a string of printable characters is expected"),
        ({"as": []}, "user u: as: [] is not accepted"),
        ({"as": "dev", "as-uid": 0}, "user u: as-uid: 0 is not accepted"),
        ({"as": "dev", "as-groups": False}, "user u: as-groups: False is not accepted; a list of names is expected"),
        ({"token": "t", "impersonate": False}, "user u: impersonate: not supported"),
        ({"auth-provider": ["secret"]}, "user u: auth-provider.name: a list is not supported"),
        ({"username": "a"}, "user u: username is set without password; set both, or none"),
        ({"auth-provider": {"name": "azure"}}, "user u: auth-provider.name: 'azure' is not supported; accepted are gcp, oidc"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
async def test_field_of_a_user_entry_that_cannot_be_honoured_is_refused_by_name(user: object, says: str, tmp_path: Path):
    path = tmp_path / "config"
    path.write_text(json.dumps(config_of(user)))
    assert f"kubeconfig {path}: {says}" in await refusal(str(path))


async def test_user_of_a_context_that_is_missing_is_refused(tmp_path: Path):
    path = tmp_path / "config"
    path.write_text(json.dumps(config_of({}, {"cluster": "c", "user": "other"})))
    assert await refusal(str(path)) == f"kubeconfig {path}: context c names user other, which is not in users"


async def test_current_context_of_several_files_is_the_first_one(tmp_path: Path):
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text(json.dumps(config_of({"token": "t"})))
    other.write_text(
        json.dumps(
            {
                "current-context": "d",
                "contexts": [{"name": "d", "context": {"cluster": "d"}}],
                "clusters": [{"name": "d", "cluster": {"server": "http://127.0.0.1:2"}}],
            }
        )
    )
    async with await Client.connect(f"{one}{os.pathsep}{other}", user_agent="test") as client:
        assert client.address == "http://127.0.0.1:1"


async def test_error_in_yaml_of_a_kubeconfig_quotes_no_credential(tmp_path: Path):
    path = tmp_path / "config"
    path.write_text("users:\n- name: u\n  user:\n    token: s3cr3t-abcdef: oops\n")
    says = await refusal(str(path))
    assert "line 4, column" in says
    assert "s3cr3t" not in says


def test_impersonation_of_a_file_below_the_home_folder_is_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "config").write_text(json.dumps(config_of({"token": "t", "as": "weak"})))
    assert read_impersonation(os.pathsep.join(("/missing", "~/config")), "c") == (("Impersonate-User", "weak"),)


def test_context_that_no_file_has_is_refused(tmp_path: Path):
    path = tmp_path / "config"
    path.write_text(json.dumps(config_of({"token": "t", "as": "weak"})))
    with pytest.raises(ValueError, match="there is no context other"):
        read_impersonation(str(path), "other")

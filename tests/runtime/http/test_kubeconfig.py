"""A kubeconfig that cannot be used is said to be so in one line that names it, whatever is wrong."""

from __future__ import annotations

import json
import logging
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from certs import pki
from core.runtime.http.client import Client
from core.runtime.http.kubeconfig import UnusableKubeconfig, find_kubeconfig, find_namespace, read_impersonation, strip_record
from e2e.warm import run_to_its_end

NO_CONTEXT = {"current-context": "x", "contexts": []}
NO_CA = {
    "current-context": "x",
    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
    "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1", "certificate-authority": "/nowhere/ca.crt"}}],
    "users": [{"name": "u", "user": {"token": "t"}}],
}


async def get_refusal(path: str | None) -> str:
    with pytest.raises(UnusableKubeconfig) as caught:
        await Client.connect(path, user_agent="test")
    text = str(caught.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"a: [b", "it is not a kubeconfig: {path} is broken YAML (line 1, column 6)"),
        (b"", "it is not a kubeconfig"),
        (b"- 1", "it is not a kubeconfig"),
        (b"\xff\xfe\x00", "it is not a kubeconfig"),
        (json.dumps(NO_CONTEXT).encode(), "context x is not in contexts"),
        (json.dumps(NO_CA).encode(), "/nowhere/ca.crt"),
    ],
    ids=["broken YAML", "empty", "a list", "binary", "no context", "no certificate"],
)
async def test_unusable_kubeconfig_is_reported_with_its_path_and_cause(content: bytes, told: str, tmp_path: Path):
    path = tmp_path / "config"
    path.write_bytes(content)
    text = await get_refusal(str(path))
    assert text.startswith(f"kubeconfig {path}: ")
    assert told.format(path=path) in text
    assert "Error" not in text
    assert "NoneType" not in text


async def test_a_file_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch):
    assert await get_refusal("/nowhere/config") == "kubeconfig /nowhere/config: there is no such file"
    monkeypatch.setenv("KUBECONFIG", "/nowhere/a:/nowhere/b")
    assert await get_refusal(None) == "kubeconfig /nowhere/a:/nowhere/b: there is no such file ($KUBECONFIG names it)"


async def test_missing_kubeconfig_outside_a_pod_is_reported_with_the_searched_places(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert (await get_refusal(None)).startswith("there is no kubeconfig (neither --kubeconfig nor $KUBECONFIG names one")


def test_of_several_files_one_that_is_there_is_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    path = tmp_path / "config"
    path.write_text("{}")
    monkeypatch.setenv("KUBECONFIG", f"/nowhere/config{os.pathsep}{path}")
    assert find_kubeconfig(None) == f"/nowhere/config{os.pathsep}{path}"
    assert find_kubeconfig(str(path)) == str(path)


@pytest.mark.parametrize("process", ["reconciler", "webhook"])
def test_each_process_with_a_missing_kubeconfig_exits_with_status_two_and_one_line(process: str, tmp_path: Path):
    arguments = ["--kubeconfig", "/nowhere/config"]
    if process == "webhook":
        now = datetime.now(UTC)
        serving = pki.issue_serving(pki.issue_ca("test", now), ["localhost"], now)
        files = {"--cert-file": serving.certificate, "--key-file": serving.key}
        for option, content in files.items():
            path = tmp_path / option.strip("-")
            path.write_bytes(content)
            arguments += [option, str(path)]
    code, (line,) = run_to_its_end(process, arguments, tmp_path)
    assert code == 2
    assert json.loads(line)["error"] == "kubeconfig /nowhere/config: there is no such file"


def get_config(user: object, context: object = None) -> dict[str, object]:
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
        ({"token": "t", "as": "", "as-uid": None, "as-groups": [], "other": None}, ()),
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
    ids=["itself", "unset fields", "a user", "all fields"],
)
def test_impersonation_of_a_user_entry_becomes_the_headers_of_client_go(user: object, headers: object, tmp_path: Path):
    path = tmp_path / "config"
    path.write_text(json.dumps(get_config(user)))
    assert read_impersonation(str(path), "c") == headers


@pytest.mark.parametrize(
    ("user", "says"),
    [
        ({"token": "t", "as": False}, "user u: as: value of type bool is not accepted; a string of printable characters is expected"),
        ({"token": "t", "as": 0}, "user u: as: value of type int is not accepted"),
        ({"token": "t", "as": []}, "user u: as: value of type list is not accepted"),
        ({"token": "t", "as": {}}, "user u: as: value of type dict is not accepted"),
        ({"as": "dev", "as-uid": 0}, "user u: as-uid: value of type int is not accepted"),
        ({"as": "dev", "as-groups": False}, "user u: as-groups: value of type bool is not accepted; a list of names is expected"),
        ({"as": "dev", "as-user-extra": 0}, "user u: as-user-extra: value of type int is not accepted"),
        ({"token": "t", "as-groups": False}, "user u: as-groups: value of type bool is not accepted"),
        ({"token": "t", "impersonate": False}, "user u: impersonate: not supported"),
        ({"auth-provider": {}}, "user u: auth-provider.name: value of type NoneType is not supported"),
        ({"token": "t", "impersonate": "dev"}, "user u: impersonate: not supported; accepted are as, as-groups, "),
        ({"as-groups": ["a"]}, "user u: as-groups without as; set as to the name of the user to impersonate"),
        ({"as": ["dev"]}, "user u: as: value of type list is not accepted; a string of printable characters is expected"),
        ({"as": "dev\nImpersonate-Group: x"}, "user u: as: 'dev\\nImpersonate-Group: x' is not accepted"),
        ({"as": "dev", "as-groups": "a"}, "user u: as-groups: 'a' is not accepted; a list of names is expected"),
        ({"as": "dev", "as-user-extra": {"a": "b"}}, "user u: as-user-extra: value of type dict is not accepted; an object of"),
        ({"token": "t", "tokenFile": "/t"}, "user u: token and tokenFile are set; only one way to authenticate is accepted"),
        ({"token": "t", "exec": {"command": "x"}}, "user u: token and exec are set; only one way to authenticate is accepted"),
        ({"username": "a"}, "user u: username is set without password; set both, or none"),
        ({"auth-provider": {"name": "azure"}}, "user u: auth-provider.name: 'azure' is not supported; accepted are gcp, oidc"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
async def test_field_of_a_user_entry_that_cannot_be_honoured_is_refused_by_name(user: object, says: str, tmp_path: Path):
    path = tmp_path / "config"
    path.write_text(json.dumps(get_config(user)))
    assert f"kubeconfig {path}: {says}" in await get_refusal(str(path))


SECRET = "s3cr3t-abcdef"


@pytest.mark.parametrize(
    "entry",
    [
        f"token: {SECRET}: oops",
        f"password: !{SECRET}",
        f"password: *{SECRET}",
        f"token: !!int {SECRET}",
        f"token: !!bool {SECRET}",
        f"auth-provider: {SECRET}",
        f"auth-provider: {{name: {{a: {SECRET}}}}}",
        f"auth-provider: {{name: oidc, config: {{client-secret: {SECRET}, refresh-token: {SECRET}}}}}",
        f"exec: {{command: x, apiVersion: null, env: [{{name: a, value: {SECRET}}}]}}",
        f"as: {{token: {SECRET}}}",
        f"{{as: dev, as-groups: {{token: {SECRET}}}}}",
        f"{{as: dev, as-groups: [{{token: {SECRET}}}]}}",
        f"{{as: dev, as-user-extra: {{token: {SECRET}}}}}",
    ],
)
async def test_kubeconfig_credentials_are_never_shown_or_logged(entry: str, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    path = tmp_path / "config"
    lines = [f"{key}: {json.dumps(value)}" for key, value in get_config(None).items() if key != "users"]
    path.write_text("\n".join([*lines, "users:", "- name: u", "  user:", f"    {entry}", ""]))
    assert SECRET not in await get_refusal(str(path))
    assert SECRET not in caplog.text
    find_namespace(str(path))  # raises nothing


async def test_user_of_a_context_that_is_missing_is_refused(tmp_path: Path):
    path = tmp_path / "config"
    path.write_text(json.dumps(get_config({}, {"cluster": "c", "user": "other"})))
    assert await get_refusal(str(path)) == f"kubeconfig {path}: context c names user other, which is not in users"


def test_impersonation_in_a_file_below_the_home_directory_becomes_headers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "base").write_text(json.dumps({"current-context": "c"}))
    (tmp_path / "a").write_text(json.dumps(get_config({"token": "t", "as": "weak"})))
    named = f"{tmp_path / 'base'}{os.pathsep}~/a"
    assert read_impersonation(named, "c") == (("Impersonate-User", "weak"),)
    assert find_kubeconfig("~/a") == "~/a"


@pytest.mark.parametrize("context", ["other", None])
def test_impersonation_of_a_context_that_is_missing_is_refused(context: str | None, tmp_path: Path):
    path = tmp_path / "config"
    path.write_text(json.dumps(get_config({"as": "weak"})))
    with pytest.raises(ValueError, match="context"):
        read_impersonation(str(path), context)


async def test_current_context_of_several_files_is_the_first_one(tmp_path: Path):
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text(json.dumps(get_config({"token": "t"})))
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


def test_credentials_among_the_arguments_of_a_log_record_are_removed():
    record = logging.LogRecord("n", logging.WARNING, "p", 1, "bad entry %s", ("users/{'token': 'abc'}",), None)
    assert strip_record(record)
    assert record.getMessage() == "bad entry users"

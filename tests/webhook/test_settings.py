"""The webhook's settings: from flags, the environment and the configuration file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from core.model.gates import DEVICES, GROUPED_SLICES, PARTIAL_SLICES, POD_GROUPS
from e2e.warm import run_to_its_end
from webhook.settings import parse

HEAD = "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
OWN = {
    "TOPOGATE_CERT_MODE": "own",
    "TOPOGATE_CERT_SECRET": "certs",
    "TOPOGATE_CERT_NAMESPACE": "ns",
    "TOPOGATE_CERT_DNS_NAME": "webhook.ns.svc, 127.0.0.1",
    "TOPOGATE_CERT_CONFIGURATION": "mutating/m,crd/w.x-k8s.io",
}


@pytest.fixture
def config(tmp_path: Path) -> Callable[[str], str]:
    """The path of a file of this content."""

    def write(text: str) -> str:
        path = tmp_path / "config.yaml"
        path.write_text(HEAD + text)
        return str(path)

    return write


def test_webhook_configuration_file_applies_without_flag_or_variable(config: Callable[[str], str]):
    path = config("webhook: {port: 1, host: 127.0.0.2, certDir: /certs}\nmetrics: {bindAddress: ':2'}\nwaitForPodsReady: {timeout: 1m}\n")
    settings = parse(["--config", path], environ={})
    assert (settings.host, settings.port, settings.metrics_host, settings.metrics_port) == ("127.0.0.2", 1, "127.0.0.2", 2)
    assert (settings.cert_file, settings.key_file) == (Path("/certs/tls.crt"), Path("/certs/tls.key"))
    settings = parse(["--port=3", "--host=::"], environ={"TOPOGATE_CONFIG": path, "TOPOGATE_METRICS_PORT": "0", "TOPOGATE_PORT": "9"})
    assert (settings.host, settings.port, settings.metrics_host, settings.metrics_port) == ("::", 3, "::", 0)
    settings = parse([], environ={"TOPOGATE_CONFIG": path, "TOPOGATE_CERT_FILE": "a", "TOPOGATE_KEY_FILE": "b"})
    assert (settings.cert_file, settings.key_file) == (Path("a"), Path("b"))


def test_metrics_may_have_an_address_of_their_own(config: Callable[[str], str]):
    path = config("webhook: {certDir: /certs}\nmetrics: {bindAddress: '127.0.0.1:2'}\n")
    settings = parse(["--config", path], environ={})
    assert (settings.host, settings.metrics_host, settings.metrics_port) == ("0.0.0.0", "127.0.0.1", 2)


def test_its_own_certificate_can_be_asked_for_by_variables_alone(config: Callable[[str], str]):
    settings = parse([], environ={**OWN, "TOPOGATE_CONFIG": config("webhook: {certDir: /certs}\n")})
    own = settings.own
    assert own is not None
    assert (own.secret, own.namespace, own.names) == ("certs", "ns", ("webhook.ns.svc", "127.0.0.1"))
    assert [(one.kind, one.name) for one in own.configurations] == [("mutating", "m"), ("crd", "w.x-k8s.io")]
    assert (settings.cert_file, settings.key_file) == (None, None)


def test_all_mistakes_of_webhook_flags_variables_and_file_are_reported_at_once(config: Callable[[str], str], tmp_path: Path):
    path = config("metrics: {bindAddress: '8080'}\nwebhook: {prot: 1}\n")
    environ = {**os.environ, **OWN, "TOPOGATE_CONFIG": path, "TOPOGATE_CERT_CONFIGURATION": "crd/a,deployment/b", "TOPOGATE_PORT": "0"}
    code, (first, *lines) = run_to_its_end("webhook", ["--otlp-endpoint=collector:4317"], tmp_path, environ)
    assert code == 2
    assert first.startswith("python -m webhook: 5 mistakes")
    named = [
        "  environment variable TOPOGATE_PORT: '0' ",
        "  environment variable TOPOGATE_CERT_CONFIGURATION: 'deployment/b' ",
        "  argument --otlp-endpoint: 'collector:4317' ",
        f"  environment variable TOPOGATE_CONFIG: {path}: webhook.prot: ",
        f'  environment variable TOPOGATE_CONFIG: {path}: metrics.bindAddress: "8080" ',
    ]
    assert len(lines) == len(named)
    assert all(line.startswith(name) for line, name in zip(lines, named, strict=True))


def test_missing_webhook_flag_is_reported_unless_the_command_line_cannot_be_parsed(capsys: pytest.CaptureFixture[str]):
    for arguments, said in (
        (["--cert-file=a"], ": --key-file;"),
        (["--cert-file"], ": argument --cert-file: "),
    ):
        with pytest.raises(SystemExit):
            parse(arguments, environ={})
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("python -m webhook: ")
        assert said in line


def test_a_file_that_cannot_be_read_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    for path, why in ((tmp_path / "none.yaml", "No such file or directory"), (tmp_path, "Is a directory"), ("a\0b", "embedded null byte")):
        with pytest.raises(SystemExit) as end:
            parse(["--config", str(path), "--cert-file=a", "--key-file=b"], environ={})
        assert end.value.code == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith("python -m webhook: argument --config: ")
        assert line.endswith(why)


def test_gates_of_the_webhook_come_from_the_file_the_environment_or_a_flag_as_the_reconcilers(config: Callable[[str], str]):
    files = ["--cert-file=a", "--key-file=b"]
    assert not parse(files, environ={}).gates.is_on(POD_GROUPS)
    path = config(f"featureGates: {{{POD_GROUPS}: true, TASBalancedPlacement: true}}\n")
    assert parse([*files, "--config", path], environ={}).gates.values == {POD_GROUPS: True}, "TASBalancedPlacement changes anything here"
    assert not parse([*files, "--config", path], environ={"TOPOGATE_FEATURE_GATES": f"{POD_GROUPS}=false"}).gates.is_on(POD_GROUPS)
    for name in (PARTIAL_SLICES, GROUPED_SLICES):
        sliced = parse([*files, "--config", config(f"featureGates: {{{name}: true}}\n")], environ={})
        assert sliced.gates.values == {name: True}
    both = [*files, "--feature-gates", f"TASBalancedPlacement=true,{POD_GROUPS}=true"]
    assert parse(both, environ={"TOPOGATE_FEATURE_GATES": f"{POD_GROUPS}=false"}).gates.is_on(POD_GROUPS)


def test_devices_are_counted_where_the_file_maps_classes(config: Callable[[str], str]):
    files = ["--cert-file=a", "--key-file=b"]
    text = "resources: {deviceClassMappings: [{name: example.com/gpus, deviceClassNames: [gpu.example.com]}]}\n"
    mapped = [*files, "--config", config(text)]
    assert parse(mapped, environ={}).gates.values == {DEVICES: True}
    assert parse([*mapped, "--feature-gates", f"{DEVICES}=false"], environ={}).gates.values == {DEVICES: False}
    assert parse([*files, "--feature-gates", f"{DEVICES}=true"], environ={}).gates.values == {}
    assert parse([*files, "--count-devices"], environ={}).gates.values == {DEVICES: True}
    assert parse([*mapped, "--no-count-devices"], environ={}).gates.values == {}


@pytest.mark.parametrize(
    ("flags", "text", "seconds"),
    [
        ([], "", 7200.0),
        ([], "waitForPodsReady: {maxTimeoutOnWorkload: 3h}\n", 10800.0),
        (["--max-timeout-on-workload=30m"], "waitForPodsReady: {maxTimeoutOnWorkload: 3h}\n", 1800.0),
    ],
)
def test_longest_time_of_a_job_comes_from_the_flag_or_the_file(config: Callable[[str], str], flags: list[str], text: str, seconds: float):
    assert parse(["--cert-file=a", "--key-file=b", "--config", config(text), *flags], environ={}).most_ready_s == seconds


def test_unknown_feature_gate_is_reported_with_other_mistakes(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        parse(["--feature-gates=Nonsense=true", "--port=x"], environ={})
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert "argument --feature-gates: " in told
    assert "'Nonsense'" in told
    assert "argument --port: " in told


def test_certificate_file_alone_is_not_paired_with_the_key_of_a_folder(config: Callable[[str], str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        parse(["--cert-file", "a"], environ={"TOPOGATE_CONFIG": config("webhook: {certDir: /certs}\n")})
    assert ": --key-file;" in capsys.readouterr().err

"""The catalogue of sentences, processes: mistakes of flags and files, and what keeps the reconciler from work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from core.runtime.http.errors import ServerError, Unauthorized, Unreachable
from reconciler.settings import parse as parse_of_reconciler
from tests.reconciler.observe.test_sync_errors import LISTED, MISSING, Scene
from tests.reconciler.workloads.test_priority_classes import get_message
from tests.webhook.test_settings import HEAD
from webhook.settings import parse as parse_of_webhook

FILES = ["--cert-file=tls.crt", "--key-file=tls.key"]

FLAGS: dict[str, tuple[Callable[..., object], list[str], str]] = {
    "unknown": (parse_of_webhook, [*FILES, "--prot", "1"], "python -m webhook: unrecognized arguments: --prot 1; --help lists all flags"),
    "no files": (
        parse_of_webhook,
        [],
        "python -m webhook: the following arguments are required: --cert-file, --key-file; --help lists all flags",
    ),
    "no value": (
        parse_of_webhook,
        ["--cert-file"],
        "python -m webhook: argument --cert-file: expected one argument; --help lists all flags",
    ),
    "no port": (
        parse_of_webhook,
        [*FILES, "--port", "https"],
        "python -m webhook: argument --port: 'https' is no port; a number from 1 to 65535 is expected; --help lists all flags",
    ),
    "no level": (
        parse_of_webhook,
        [*FILES, "--log-level", "LOUD"],
        "python -m webhook: argument --log-level: 'LOUD' is not accepted; use DEBUG, INFO, WARNING or ERROR; --help lists all flags",
    ),
    "no address": (
        parse_of_webhook,
        [*FILES, "--otlp-endpoint", "collector:4318"],
        "python -m webhook: argument --otlp-endpoint: 'collector:4318' is no address; a URL such as http://collector:4318 is "
        "expected; --help lists all flags",
    ),
    "no share": (
        parse_of_webhook,
        [*FILES, "--trace-ratio", "2"],
        "python -m webhook: argument --trace-ratio: '2' is no share; a number from 0 (none) to 1 (all) is expected; --help lists all flags",
    ),
    "no time": (
        parse_of_webhook,
        [*FILES, "--trace-slow", "-1"],
        "python -m webhook: argument --trace-slow: '-1' is no time; a number of seconds such as 0.25 is expected; --help lists all flags",
    ),
    "several": (
        parse_of_webhook,
        [*FILES, "--port", "0", "--log-level", "LOUD"],
        "python -m webhook: 2 mistakes; --help lists all flags\n  argument --port: '0' is no port; a number from 1 to 65535 is "
        "expected\n  argument --log-level: 'LOUD' is not accepted; use DEBUG, INFO, WARNING or ERROR",
    ),
    "no file": (
        parse_of_webhook,
        [*FILES, "--config", "/none.yaml"],
        "python -m webhook: argument --config: /none.yaml: No such file or directory",
    ),
    "a port of the reconciler": (
        parse_of_reconciler,
        ["--health-port", "65536"],
        "python -m reconciler: argument --health-port: '65536' is no port; a number from 0 (none) to 65535 is expected; --help "
        "lists all flags",
    ),
    "a feature gate without a value": (
        parse_of_reconciler,
        ["--feature-gates=TASProfileMixed"],
        "python -m reconciler: argument --feature-gates: feature gate TASProfileMixed=: true or false is expected; --help lists all flags",
    ),
    "a feature gate against the profile": (
        parse_of_reconciler,
        ["--placement-profile=compact", "--feature-gates=TASProfileBestFit=true"],
        "python -m reconciler: argument --feature-gates, with argument --placement-profile: TASProfileBestFit=true and the placement "
        "profile compact each say how pods are placed; leave one out (annotation topogate.dev/placement-profile chooses compact for a "
        "job, a queue or a topology); --help lists all flags",
    ),
}


@pytest.mark.parametrize(("parse", "arguments", "sentence"), FLAGS.values(), ids=FLAGS)
def test_wrong_flag_has_its_sentence(parse: Callable[..., object], arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        parse(arguments, environ={})
    assert capsys.readouterr().err.rstrip("\n") == sentence


FILE_MISTAKES = {
    "unknown key": ("webhook: {prot: 1}\n", "python -m webhook: argument --config: FILE: webhook.prot: unknown key; did you mean port?"),
    "no address": (
        "metrics: {bindAddress: '8080'}\n",
        'python -m webhook: argument --config: FILE: metrics.bindAddress: "8080" is not accepted; an address such as ":8080" '
        'or "127.0.0.1:8080" is expected, or "0" for none',
    ),
    "no syntax": (
        "webhook: [\n",
        "python -m webhook: argument --config: FILE: YAML syntax error: expected the node content, but found '<stream end>' in "
        "line 4, column 1",
    ),
}


@pytest.mark.parametrize(("text", "sentence"), FILE_MISTAKES.values(), ids=FILE_MISTAKES)
def test_wrong_configuration_file_has_its_sentence(text: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "config.yaml"
    path.write_text(HEAD + text)
    with pytest.raises(SystemExit):
        parse_of_webhook([*FILES, f"--config={path}"], environ={})
    assert capsys.readouterr().err.rstrip("\n").replace(str(path), "FILE") == sentence


# --- the reconciler ---------------------------------------------------------------------------------------


def describe(fail: Callable[[Scene], None]) -> str:
    scene = Scene()
    fail(scene)
    return scene.troubles.describe_errors()


ERRORS: dict[str, tuple[Callable[[], str], str]] = {
    "no definitions": (
        lambda: describe(lambda scene: scene.fail(MISSING, scene.observed.workloads, scene.observed.topologies)),
        "the API server does not serve topologies.kueue.x-k8s.io, workloads.kueue.x-k8s.io in kueue.x-k8s.io/v1beta2; install "
        "their CustomResourceDefinitions: the chart does (crds.install: true)",
    ),
    "no right": (
        lambda: describe(lambda scene: scene.fail(LISTED, scene.observed.nodes, scene.observed.pods)),
        'no right to list and watch nodes, pods (the chart\'s ClusterRole has it): nodes is forbidden: User "u" cannot list '
        'resource "nodes" in API group "" at the cluster scope',
    ),
    "an error of the API server": (
        lambda: describe(lambda scene: scene.fail(ServerError(500, "InternalError", "no leader"), scene.observed.pods)),
        "pods cannot be listed: 500 InternalError: no leader",
    ),
    "no credentials": (
        lambda: describe(lambda scene: scene.fail(Unauthorized(401, "Unauthorized", "Unauthorized"), scene.observed.namespaces)),
        "the API server https://api.example:6443 does not accept our credentials: Unauthorized",
    ),
    "no API server": (
        lambda: describe(lambda scene: scene.fail(Unreachable("GET /api/v1/pods: no answer within 30 s"), scene.observed.pods)),
        "the API server https://api.example:6443 cannot be reached: GET /api/v1/pods: no answer within 30 s",
    ),
    "a class that is almost there": (
        lambda: get_message("high", "urgent"),
        'WorkloadPriorityClass "urgnt" does not exist; there are urgent, high. The job waits until it does, or names another',
    ),
}


@pytest.mark.parametrize(("build", "sentence"), ERRORS.values(), ids=ERRORS)
def test_error_of_the_reconciler_has_its_sentence(build: Callable[[], str], sentence: str):
    assert build() == sentence

"""The command itself: words, exit codes, one line for what is wrong; and the two processes that it runs."""

from __future__ import annotations

import json
import logging
import tomllib
from importlib.metadata import version

import pytest
from rich.text import Text
from rich.tree import Tree

from cli import commands, given, stopping
from cli.failures import Failure
from cli.inputs import ClusterSource
from cli.program import main
from cli.reporting.draw import make_console
from core.runtime.report.logs import LineFormatter
from tests.cli.commands import EXAMPLES, RACK, ROOT, Commands, build_job, build_nodes, build_queues, run_process
from tests.cli.test_api_answers import serve_answers, write_kubeconfig


@pytest.mark.parametrize("process", ["webhook", "reconciler"])
def test_a_process_gets_its_arguments_as_they_are(topogate: Commands, process: str):
    files = ["--cert-file", "x", "--key-file", "y"] if process == "webhook" else []
    ran = topogate.run(process, "--log-level", "LOUD", *files)
    assert ran.code == 2
    assert ran.err.startswith(f"python -m {process}: argument --log-level: 'LOUD'")
    helped = topogate.run(process, "--help")
    assert helped.code == 0
    assert helped.out.startswith(f"usage: python -m {process}")


@pytest.mark.parametrize("process", ["webhook", "reconciler"])
def test_a_process_ends_with_its_own_exit_code(process: str, tmp_path):
    missing = tmp_path / "missing"
    files = ["--cert-file", "x", "--key-file", "y"] if process == "webhook" else []
    done = run_process("cli", process, "--kubeconfig", str(missing), *files)
    alone = run_process(process, "--kubeconfig", str(missing), *files)
    assert done.returncode == alone.returncode == (2 if process == "reconciler" else 1)
    assert "Traceback" not in done.stderr
    assert json.loads(done.stderr.splitlines()[-1])["error"] == json.loads(alone.stderr.splitlines()[-1])["error"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["plann"], "'plann'"),
        (["plan"], "'--filename'"),
        (["plan", "-f", "x", "--speed", "9"], "--speed"),
        (["plan", "-f", "there-is-no-such-file"], "there-is-no-such-file: "),
        (["plan", "-f", "x", "-o", "xml"], "'xml'"),
        (["pause", "admisions"], "'what': 'admisions'"),
        (["plan", "-f", "x", "--nodes", "y", "--context", "z"], "--context"),
        (["plan", "-f", "x", "--placement-profile", "tidy"], "argument --placement-profile: 'tidy'"),
        (["plan", "-f", "x", "--feature-gates", "Nonsense=true"], "argument --feature-gates"),
        (["plan", "-f", str(EXAMPLES / "job-one-rack.yaml"), "--nodes", str(EXAMPLES / "queues.yaml")], "--nodes"),
        (["plan", "-f", str(EXAMPLES / "queues.yaml")], "Job of batch/v1, JobSet of "),
    ],
)
def test_wrong_command_line_is_named_in_one_line(topogate: Commands, arguments: list[str], named: str):
    ran = topogate.run(*arguments)
    assert ran.code == 2
    assert ran.out == ""
    assert named in ran.err
    assert ran.err.startswith("topogate: ")
    assert ran.err.count("\n") == 1


def test_a_bare_command_shows_its_words(topogate: Commands):
    ran = topogate.run()
    assert ran.code == 2
    assert ran.err.startswith("Usage: ")
    assert ran.err.count("\n") > 10
    assert all(word in ran.out + ran.err for word in ("webhook", "reconciler", "plan", "completion"))


def test_without_a_way_to_a_cluster_the_kubeconfig_is_named(topogate: Commands, tmp_path):
    ran = topogate.run("plan", "-f", topogate.write("job.yaml", build_job("a", 1)), "--kubeconfig", tmp_path / "none")
    assert ran.code == 2
    assert ran.err.startswith(f"topogate: kubeconfig {tmp_path / 'none'}: ")


def test_an_api_server_that_is_not_there_is_an_error_and_no_bad_input(topogate: Commands):
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
        "users": [{"name": "u", "user": {}}],
    }
    ran = topogate.run("plan", "-f", topogate.write("job.yaml", build_job("a", 1)), "--kubeconfig", topogate.write("config", config))
    assert ran.code == 1
    assert ran.err.startswith("topogate: cannot list customresourcedefinitions.apiextensions.k8s.io: the API server cannot be reached: ")
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_ask_the_command_by_the_variable_that_it_answers(topogate: Commands, shell: str):
    ran = topogate.run("completion", shell)
    assert ran.code == 0
    assert f"_TOPOGATE_COMPLETE=complete_{shell}" in ran.out


def test_the_command_completes_its_words():
    asked = [("_TOPOGATE_COMPLETE", "complete_bash"), ("COMP_WORDS", "topogate pl"), ("COMP_CWORD", "1")]
    assert run_process("cli", environment=asked).stdout.split() == ["plan"]


def test_both_names_of_the_command_are_installed():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    completion = {"kubectl_complete-topogate": "cli.program:complete_for_kubectl"}
    assert scripts == {"topogate": "cli.__main__:run_process", "kubectl-topogate": "cli.__main__:run_process", **completion}


def test_the_namespace_is_kubectls(tmp_path):
    def write(name: str, **content: object) -> str:
        (tmp_path / name).write_text(json.dumps(content))
        return str(tmp_path / name)

    contexts = [{"name": "a", "context": {"namespace": "team-a"}}, {"name": "b", "context": {}}]
    one = write("one", **{"current-context": "a"})
    other = write("other", **{"current-context": "b"}, contexts=contexts)
    assert given.choose_namespace(ClusterSource(kubeconfig=other, namespace="mine")) == "mine"
    assert given.choose_namespace(ClusterSource(kubeconfig=f"{one}:{other}")) == "team-a"
    assert given.choose_namespace(ClusterSource(kubeconfig=other)) == "default"
    assert given.choose_namespace(ClusterSource(kubeconfig=other, context="a")) == "team-a"
    assert given.choose_namespace(ClusterSource(kubeconfig=str(tmp_path / "none"))) == "default"
    for broken in ("[", "- a", "contexts: 5", "contexts: [5]", "contexts: [{name: a, context: x}]\ncurrent-context: a"):
        (tmp_path / "broken").write_text(broken)
        assert given.choose_namespace(ClusterSource(kubeconfig=str(tmp_path / "broken"))) == "default"


def test_unexpected_error_is_one_line_and_a_traceback_on_request(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def fail(*_: object, **options: object) -> None:
        raise KeyError("odd\nthing")

    monkeypatch.setattr(commands, "explain", fail)
    assert main(["explain", "a"]) == 1
    assert capsys.readouterr().err == ("topogate: this is a bug of topogate's: KeyError: 'odd\\nthing'; TOPOGATE_TRACEBACK=1 shows where\n")
    monkeypatch.setenv("TOPOGATE_TRACEBACK", "1")
    with pytest.raises(KeyError):
        main(["explain", "a"])


def test_an_object_that_cannot_be_read_is_warned_of_and_passed_over(topogate: Commands):
    metadata = {"name": "p", "namespace": "default", "uid": "p", "resourceVersion": "1"}
    broken = {"metadata": metadata, "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "many"}}}]}}

    def answer(path: str) -> tuple[int, dict[str, object]]:
        return 200, {"items": [broken] if path.startswith("/api/v1/pods") else [], "metadata": {"resourceVersion": "1"}}

    with serve_answers(answer) as url:
        ran = topogate.run("topology", "--kubeconfig", write_kubeconfig(topogate, url))
    assert ran.code == 1
    assert ran.err.splitlines()[1].startswith("topogate: there is no Topology")
    assert ran.err.startswith("topogate: warning: object set aside: resource pods, object default/p, error ")


def test_as_a_plugin_of_kubectl_it_is_called_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr("sys.argv", ["/usr/local/bin/kubectl-topogate", "plan", "--help"])
    assert main() == 0
    assert "kubectl topogate plan" in capsys.readouterr().out


def test_the_version_is_that_of_the_package(topogate: Commands):
    ran = topogate.run("--version")
    assert (ran.code, ran.out, ran.err) == (0, f"topogate {version('topogate')}\n", "")


@pytest.mark.parametrize("words", [[], ["plan"], ["topology"], ["topology", "suggest"], ["pause"]], ids=" ".join)
def test_short_option_of_help_prints_the_same_as_the_long_one(topogate: Commands, words: list[str]):
    short, long = topogate.run(*words, "-h"), topogate.run(*words, "--help")
    assert (short.code, short.out, short.err) == (0, long.out, "")
    assert "--help" in short.out


def test_failure_with_control_characters_is_one_line_without_them(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def fail(*_: object, **__: object) -> None:
        raise Failure("its last warning: Failed: \x1b[2J\x9b1mgone\ntopogate: all is well")

    monkeypatch.setattr(commands, "explain", fail)
    assert main(["explain", "job", "a"]) == 1
    assert capsys.readouterr().err == "topogate: its last warning: Failed: ?[2J?1mgone topogate: all is well\n"


ESCAPES, SHOWN = "\x1b]0;owned\x07\x9b2J", "?]0;owned??2J"


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "-f", "x", "-o", ESCAPES],
        [ESCAPES],
        ["pause", ESCAPES],
        ["plan", "-f", "x", f"--{ESCAPES}"],
        ["plan", "-f", ESCAPES],
        ["plan", "-f", "x", "--feature-gates", ESCAPES],
    ],
    ids=("value", "word", "target", "option", "file", "gate"),
)
def test_usage_error_with_control_characters_is_printed_without_them(topogate: Commands, arguments: list[str]):
    ran = topogate.run(*arguments)
    assert ran.code == 2
    assert "owned" in ran.err
    assert ran.err.removesuffix("\n").isprintable()


def test_bug_with_control_characters_is_reported_without_them(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    def fail(*_: object, **__: object) -> None:
        raise ValueError(ESCAPES)

    monkeypatch.setattr(commands, "explain", fail)
    assert main(["explain", "job", "a"]) == 1
    assert f"ValueError: {SHOWN};" in capsys.readouterr().err


def test_warning_of_plan_with_control_characters_is_printed_without_them(topogate: Commands):
    job = build_job("a", 1, required=RACK)
    job["metadata"]["annotations"] = {f"kueue.x-k8s.io/podset-required-topology{ESCAPES}": "x"}
    jobs, cluster = topogate.write("jobs.yaml", job), topogate.write("cluster.yaml", *build_nodes(), *build_queues())
    ran = topogate.run("plan", "-f", jobs, "--nodes", cluster)
    assert SHOWN in ran.err
    assert ran.err.replace("\n", "").isprintable()


def test_console_prints_no_control_character_of_a_text_or_a_tree(capsys: pytest.CaptureFixture[str]):
    console = make_console()
    for found in (Text(f"one\n{ESCAPES}"), Tree(Text(ESCAPES))):
        console.print(found)
    out = capsys.readouterr().out
    without_bell = SHOWN.replace("owned??", "owned?")  # the library itself removes that character
    assert out.split("\n") == ["one", without_bell, without_bell, ""]


def test_lines_of_pause_with_control_characters_are_printed_without_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(stopping, "run", lambda *_: [f"admissions are paused: {ESCAPES}"])
    assert main(["pause", "status"]) == 0
    assert capsys.readouterr().out == f"admissions are paused: {SHOWN}\n"


def test_warning_with_control_characters_is_printed_without_them():
    record = logging.LogRecord("x", logging.WARNING, "", 0, "object is unreadable", None, None)
    record.why = "label \x1b]0;owned\x07 \x9b2J"
    assert LineFormatter("topogate: ").format(record) == "topogate: object is unreadable: why label ?]0;owned? ?2J"

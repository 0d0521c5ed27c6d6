"""Flags and the variables that stand for them: what holds, and what is told when one is wrong."""

from __future__ import annotations

import argparse

import pytest

from core.runtime.arguments import Given, OneLineParser, parse_at_least_one, parse_port


def make_parser() -> OneLineParser:
    parser = OneLineParser("prog", "Does something.", "X_")
    parser.add_argument("--port", type=parse_port, default=1)
    parser.add_argument("--word", choices=("a", "b"))
    group = parser.add_argument_group("more")
    group.add_argument("--many", type=parse_port, action="append")
    group.add_argument("--is-on", action=argparse.BooleanOptionalAction)
    return parser


def read(*arguments: str, **environ: str) -> Given:
    return make_parser().read(arguments, environ)


def test_argument_with_an_empty_variable_has_its_default():
    given = read(X_PORT="", X_WORD="  ", X_OTHER="1", WORD="b")
    assert (given.get("port"), given.get("word"), given.get("many"), given.get("is_on")) == (1, None, None, None)
    assert given.get("port", in_file=7) == 7
    assert not any(map(given.has, ("port", "word", "many", "is_on")))
    assert given.mistakes == []


def test_environment_variable_sets_the_value_of_its_flag():
    given = read(X_PORT=" 2 ", X_WORD="b", X_MANY="3, 4,", X_IS_ON="true")
    assert (given.get("port"), given.get("word"), given.get("many"), given.get("is_on")) == (2, "b", [3, 4], True)
    assert given.get("port", in_file=7) == 2
    assert given.describe_places("port") == "environment variable X_PORT"


def test_a_flag_is_stronger_and_the_last_of_several_holds():
    given = read("--port=5", "--port", "6", "--many=7", "--many=8", "--no-is-on", X_PORT="2", X_MANY="3", X_IS_ON="true")
    assert (given.get("port"), given.get("many"), given.get("is_on")) == (6, [7, 8], False)
    assert given.layers["many"] == [("environment variable X_MANY", [3]), ("argument --many", [7, 8])]
    assert given.describe_places("port") == "argument --port, with environment variable X_PORT"


def test_port_variable_that_kubernetes_sets_for_a_service_is_ignored():
    assert read(X_PORT="tcp://10.96.0.12:443").get("port") == 1
    (mistake,) = read(X_WORD="tcp://10.96.0.12:443").mistakes
    assert "environment variable X_WORD" in mistake


def test_invalid_variable_is_reported_although_a_flag_overrides_it():
    given = read("--port=5", X_PORT="0")
    assert given.mistakes == ["environment variable X_PORT: '0' is no port; a number from 1 to 65535 is expected"]


def test_all_mistakes_of_arguments_and_variables_are_reported_at_once():
    given = read("--port=x", "--many=1", "--many=y", "--wrod", "z", X_WORD="c", X_IS_ON="1", X_MANY="1;2")
    assert given.mistakes == [
        "environment variable X_WORD: 'c' is not accepted; use a or b",
        "environment variable X_MANY: '1;2' is no port; a number from 1 to 65535 is expected",
        "environment variable X_IS_ON: '1' is not accepted; true or false is expected",
        "unrecognized arguments: --wrod z",
        "argument --port: 'x' is no port; a number from 1 to 65535 is expected",
        "argument --many: 'y' is no port; a number from 1 to 65535 is expected",
    ]
    assert given.is_whole


@pytest.mark.parametrize(
    ("arguments", "mistake"),
    [
        (["--port"], "argument --port: expected one argument"),
        (["--is-on=true"], "argument --is-on/--no-is-on: ignored explicit argument 'true'"),
    ],
)
def test_command_line_that_cannot_be_parsed_is_reported_with_invalid_variables(arguments: list[str], mistake: str):
    given = read(*arguments, X_WORD="c")
    assert given.mistakes == ["environment variable X_WORD: 'c' is not accepted; use a or b", mistake]
    assert not given.is_whole


def test_numbers_that_python_would_not_read_are_refused_like_others():
    for text in ("9" * 5000, "\u0663"):
        with pytest.raises(argparse.ArgumentTypeError):
            parse_port(text)
    with pytest.raises(argparse.ArgumentTypeError):
        parse_at_least_one("nan")


def test_help_output_names_flags_and_variables(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        read("--port=nonsense", "--help")
    assert ended.value.code == 0
    out = capsys.readouterr().out
    assert "--many MANY" in out
    assert "X_METRICS_PORT" in out


def test_one_mistake_is_one_line_and_several_are_listed(capsys: pytest.CaptureFixture[str]):
    for mistakes, in_file, said in (
        (["a"], [], "prog: a; --help lists all flags\n"),
        ([], ["f: b"], "prog: f: b\n"),
        (["a"], ["f: b"], "prog: 2 mistakes; --help lists all flags\n  a\n  f: b\n"),
        ([], ["f: b", "f: c"], "prog: 2 mistakes\n  f: b\n  f: c\n"),
    ):
        with pytest.raises(SystemExit) as ended:
            make_parser().refuse(mistakes, in_file)
        assert ended.value.code == 2
        assert capsys.readouterr().err == said

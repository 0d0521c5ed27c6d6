"""Command lines of processes and what stands for them in the environment: every mistake at once, each with where it stands, exit code 2."""

from __future__ import annotations

import argparse
import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn
from urllib.parse import urlsplit

from core.runtime.http.errors import remove_credentials
from core.runtime.report.sampling import SLOW_S

OTLP_PROTOCOLS = ("grpc", "http/protobuf")
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")
BAD_INPUT = 2
_BOOLEANS = {"true": True, "false": False}
# Kubernetes sets the address of each Service `some-name` as SOME_NAME_PORT in a container, also where that name has
# another use.
_OF_A_SERVICE = re.compile(r"(tcp|udp|sctp)://\S+")


class OneLineParser(argparse.ArgumentParser):
    """A parser that complains in a line for each mistake: in the log of a pod a usage text hides them.

    Each flag may be given as an environment variable: `prefix` and the flag's name.
    """

    def __init__(self, prog: str, description: str, prefix: str) -> None:
        example = f"{prefix}METRICS_PORT"
        super().__init__(
            prog,
            description=description,
            epilog=f"Each flag may be given in the environment, as --metrics-port by {example}; of both the flag holds.",
            allow_abbrev=False,
        )
        self._prefix = prefix

    def error(self, message: str) -> NoReturn:
        """Ends the process (SystemExit) with status 2 and one line about a mistake on stderr; see `refuse`."""
        self.refuse([message])

    def refuse(self, mistakes: Sequence[str], in_file: Sequence[str] = ()) -> NoReturn:
        """Ends the process (SystemExit) with status 2 and prints on stderr a line for each mistake: those of the command line or the
        environment, and those `in_file`, where --help does not help."""
        lines, hint = [*mistakes, *in_file], "; --help lists all flags" if mistakes else ""
        first, *more = lines if len(lines) == 1 else [f"{len(lines)} mistakes", *lines]
        self.exit(BAD_INPUT, "".join([f"{self.prog}: {first}{hint}\n", *(f"  {line}\n" for line in more)]))

    def read(self, arguments: Sequence[str] | None, environ: Mapping[str, str] | None = None) -> Given:
        """Returns the given values, with all mistakes in them (`Given.mistakes`); ends the process only for --help, which it prints. None:
        the process's own command line and environment. Where the command line cannot be taken apart, only variables are in it, and
        `is_whole` is False. An empty variable counts as not given, and so does one `..._PORT` with the address of a Service (tcp://...)."""
        given = Given({action.dest: action.default for action in self.flags})
        for action in self.flags:
            self._read_variable(given, action, os.environ if environ is None else environ)
        try:
            texts, unknown = _split(self, arguments)
        except _CannotSplit as error:
            given.mistakes.append(str(error))
            return given
        if unknown:
            given.mistakes.append(f"unrecognized arguments: {' '.join(unknown)}")
        for action in self.flags:
            if action.dest in texts:
                given.add_layer(action, f"argument {action.option_strings[0]}", texts[action.dest])
        given.is_whole = True
        return given

    @property
    def flags(self) -> list[argparse.Action]:
        """Returns the actions of all flags but --help, in the order in which they were added."""
        return [action for action in self._actions if action.dest != "help"]

    def get_variable(self, action: argparse.Action) -> str:
        """Returns the name of the environment variable that stands for a flag: the prefix, then the flag's name in capitals with `_` for
        `-`."""
        return self._prefix + action.option_strings[0].lstrip("-").replace("-", "_").upper()

    def _read_variable(self, given: Given, action: argparse.Action, environ: Mapping[str, str]) -> None:
        name = self.get_variable(action)
        text = environ.get(name, "").strip()
        if not text or (name.endswith("_PORT") and _OF_A_SERVICE.fullmatch(text)):
            return
        where = f"environment variable {name}"
        if not isinstance(action, argparse.BooleanOptionalAction):
            given.add_layer(action, where, [part.strip() for part in text.split(",") if part.strip()] if is_repeatable(action) else [text])
        elif text in _BOOLEANS:
            given.add_layer(action, where, _BOOLEANS[text])
        else:
            given.refuse(action, f"{where}: {text!r} is not accepted; true or false is expected")


def is_repeatable(action: argparse.Action) -> bool:
    """Whether a flag may be given several times; its variable then holds values with commas between them."""
    return isinstance(action, argparse._AppendAction)


@dataclass(eq=False)
class Given:
    """The values given as flags, variables or a file, and the mistakes in them. `get` and the like use the names of argparse."""

    defaults: Mapping[str, Any]
    mistakes: list[str] = field(default_factory=list)
    layers: dict[str, list[tuple[str, Any]]] = field(default_factory=dict)
    """Per flag: each place where it is given, and the value; the last one holds."""
    is_whole: bool = False
    """Whether the command line could be taken apart: else what seems to be missing may be there."""
    _refused: set[str] = field(default_factory=set)

    def get(self, name: str, in_file: object = None) -> Any:
        """Returns the strongest value of a flag: as a flag, in the environment, in the file (`in_file`; None: it is not there), else the
        default. That of a repeatable flag is a list. Refused values do not count. Raises KeyError for a name that is no flag's where it
        needs the default."""
        if name in self.layers:
            return self.layers[name][-1][1]
        return self.defaults[name] if in_file is None else in_file

    def has(self, name: str) -> bool:
        """Whether a flag or its variable is given at all, right or wrong."""
        return name in self.layers or name in self._refused

    def describe_places(self, name: str) -> str:
        """Returns the places where a flag is given, the strongest first, as text: for a message about a conflict with another value. Raises
        KeyError where it is not given, or its values were refused.
        """
        return ", with ".join(where for where, _ in reversed(self.layers[name]))

    def refuse(self, action: argparse.Action, mistake: str) -> None:
        """Adds a mistake about a flag, and records that the flag is given (`has`); values that it has from other places stay."""
        self.mistakes.append(mistake)
        self._refused.add(action.dest)

    def add_layer(self, action: argparse.Action, where: str, said: bool | list[str]) -> None:
        """Adds the value that a place (`where`) has for a flag, stronger than those before. `said`: that of an on/off flag, else texts. All
        count, as a list, for a repeatable flag, else the last. Adds a mistake instead where one that counts is not accepted."""
        if isinstance(said, bool):
            self.layers.setdefault(action.dest, []).append((where, said))
            return
        try:
            values = [_parse_value(action, text) for text in (said if is_repeatable(action) else said[-1:])]
        except argparse.ArgumentTypeError as error:
            self.refuse(action, f"{where}: {error}")
            return
        self.layers.setdefault(action.dest, []).append((where, values if is_repeatable(action) else values[0]))


def _parse_value(action: argparse.Action, text: str) -> Any:
    if action.choices is not None and text not in action.choices:
        *some, last = map(str, action.choices)
        raise argparse.ArgumentTypeError(f"{text!r} is not accepted; use {', '.join(some)} or {last}")
    return action.type(text) if callable(action.type) else text


class _CannotSplit(Exception):
    pass


class _Splitter(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _CannotSplit(message)


def _split(parser: OneLineParser, arguments: Sequence[str] | None) -> tuple[dict[str, Any], list[str]]:
    """Returns the texts of each given flag, and arguments that are none: argparse itself would stop at the first bad value."""
    splitter = _Splitter(parser.prog, add_help=False, allow_abbrev=False, argument_default=argparse.SUPPRESS)
    splitter.add_argument("-h", "--help", action="store_true")
    for action in parser.flags:
        if isinstance(action, argparse.BooleanOptionalAction):
            splitter.add_argument(action.option_strings[0], dest=action.dest, action=argparse.BooleanOptionalAction)
        else:
            splitter.add_argument(*action.option_strings, dest=action.dest, action="append")
    found, unknown = splitter.parse_known_args(arguments)
    texts = vars(found)
    if texts.pop("help", False):
        parser.print_help()
        parser.exit()
    return texts, unknown


# --- values -----------------------------------------------------------------------------------------


def parse_port(text: str) -> int:
    """Returns a port to listen on, from 1 to 65535. Raises ArgumentTypeError for any other text."""
    if not _is_number(text) or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; a number from 1 to 65535 is expected")
    return int(text)


def parse_port_or_none(text: str) -> int:
    """Returns a port to listen on, from 1 to 65535, or 0 for none. Raises ArgumentTypeError for any other text."""
    if text == "0":
        return 0
    try:
        return parse_port(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; a number from 0 (none) to 65535 is expected") from None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9  # Python refuses to read thousands of digits


def parse_at_least_one(text: str) -> float:
    """Returns a finite number of at least 1. Raises ArgumentTypeError for any other text."""
    return _number(text, 1, math.inf, "is not accepted; a number of at least 1 is expected")


def parse_share(text: str) -> float:
    """Returns a share, from 0 (none) to 1 (all). Raises ArgumentTypeError for any other text."""
    return _number(text, 0, 1, "is no share; a number from 0 (none) to 1 (all) is expected")


def parse_seconds(text: str) -> float:
    """Returns a finite number of seconds, at least 0. Raises ArgumentTypeError for any other text."""
    return _number(text, 0, math.inf, "is no time; a number of seconds such as 0.25 is expected")


def _number(text: str, least: float, most: float, complaint: str) -> float:
    """Returns a number from `least` to `most`. Raises ArgumentTypeError with the text and an explanation for any other text."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value <= most or math.isinf(value):
        raise argparse.ArgumentTypeError(f"{text!r} {complaint}")
    return value


def parse_url(text: str) -> str:
    """Returns the text if it is an HTTP or HTTPS URL with a host and no port 0. Raises ArgumentTypeError, without credentials, for any
    other text."""
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0  # reading the port judges it
    except ValueError:
        good = False
    if not good:
        raise argparse.ArgumentTypeError(f"{remove_credentials(text)!r} is no address; a URL such as http://collector:4318 is expected")
    return text


# --- flags of both processes ------------------------------------------------------------------------

METRICS_PORT = 8080


def add_config(parser: argparse.ArgumentParser) -> None:
    """Adds the flag --config: the path of the file with the configuration, by default None (no file)."""
    parser.add_argument("--config", metavar="FILE", help="a Configuration of Kueue's, with our block `topogate`; flags are stronger")


def add_metrics_port(parser: argparse.ArgumentParser) -> None:
    """Adds the flag --metrics-port: the port on which metrics are scraped (plain HTTP), by default `METRICS_PORT`; 0: metrics are not
    served."""
    parser.add_argument(
        "--metrics-port", type=parse_port_or_none, default=METRICS_PORT, help="plain HTTP with /metrics; 0: none (default: %(default)s)"
    )


def add_common(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that both processes have: --kubeconfig, --otlp-endpoint, --otlp-protocol, --trace-ratio, --trace-slow (seconds, by
    default `SLOW_S`) and --log-level (by default INFO). The others are None by default."""
    parser.add_argument("--kubeconfig", metavar="FILE", help="default: $KUBECONFIG, then the service account of the pod")
    parser.add_argument(
        "--otlp-endpoint",
        type=parse_url,
        metavar="URL",
        help="OTLP collector of traces and metrics; default: OTEL_EXPORTER_OTLP_ENDPOINT, else nothing is sent",
    )
    parser.add_argument(
        "--otlp-protocol", choices=OTLP_PROTOCOLS, help=f"default: as OTEL_EXPORTER_OTLP_PROTOCOL says, else {OTLP_PROTOCOLS[1]}"
    )
    parser.add_argument(
        "--trace-ratio",
        type=parse_share,
        metavar="SHARE",
        help="how many of the traces are sent, from 0 to 1, beside all with a refusal, an error or a slow step; "
        "default: as OTEL_TRACES_SAMPLER says, else 1",
    )
    parser.add_argument(
        "--trace-slow",
        type=parse_seconds,
        default=SLOW_S,
        metavar="SECONDS",
        help="a step of ours that takes so long has its trace sent (default: %(default)s)",
    )
    parser.add_argument("--log-level", default="INFO", choices=LOG_LEVELS, help="of the logs (default: %(default)s)")

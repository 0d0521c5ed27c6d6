"""Command lines of processes: a mistake gives one line and exit code 2, and the flags that both processes share."""

import argparse
from typing import NoReturn
from urllib.parse import urlsplit

LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


class OneLineParser(argparse.ArgumentParser):
    """A parser that complains in one line: in the log of a pod a usage text hides the mistake."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; --help lists all flags\n")


def port(text: str) -> int:
    """A port to listen on."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; a number from 1 to 65535 is expected")
    return int(text)


def port_or_none(text: str) -> int:
    """A port to listen on, or 0."""
    if text == "0":
        return 0
    try:
        return port(text)
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; a number from 0 (none) to 65535 is expected") from None


def at_least_one(text: str) -> float:
    """So many of something."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not accepted; a number of at least 1 is expected")
    return value


def url(text: str) -> str:
    """An HTTP address."""
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0  # reading the port judges it
    except ValueError:
        good = False
    if not good:
        raise argparse.ArgumentTypeError(f"{text!r} is no address; a URL such as http://collector:4318 is expected")
    return text


METRICS_PORT = 8080


def add_metrics_port(parser: argparse.ArgumentParser) -> None:
    """Where metrics are scraped."""
    parser.add_argument(
        "--metrics-port", type=port_or_none, default=METRICS_PORT, help="plain HTTP with /metrics; 0: none (default: %(default)s)"
    )


def add_common(parser: argparse.ArgumentParser) -> None:
    """Where to connect, where to send traces, how much to log."""
    parser.add_argument("--kubeconfig", metavar="FILE", help="default: $KUBECONFIG, then the service account of the pod")
    parser.add_argument(
        "--otlp-endpoint",
        type=url,
        metavar="URL",
        help="OTLP/HTTP collector of traces and metrics; default: OTEL_EXPORTER_OTLP_ENDPOINT, else nothing is sent",
    )
    parser.add_argument("--log-level", default="INFO", choices=LOG_LEVELS)

"""Settings of the webhook, from its command line."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Settings:
    """Where to listen and with what certificate."""

    host: str
    port: int
    cert_file: Path
    key_file: Path
    kubeconfig: str | None
    otlp_endpoint: str | None
    log_level: str


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line: in the log of a pod a usage text hides the mistake."""
        self.exit(2, f"{self.prog}: {message}; --help lists all flags\n")


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port; a number from 1 to 65535 is expected")
    return int(text)


def _url(text: str) -> str:
    try:
        parts = urlsplit(text)
        good = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0  # reading the port judges it
    except ValueError:
        good = False
    if not good:
        raise argparse.ArgumentTypeError(f"{text!r} is no address; a URL such as http://collector:4318 is expected")
    return text


def parse(arguments: list[str] | None = None) -> Settings:
    """Settings of a command line; ends the process with a message if it is wrong."""
    parser = _Parser(prog="topogate webhook", description="Defaults and validates jobs and queues at admission.", allow_abbrev=False)
    parser.add_argument("--host", default="0.0.0.0", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=_port, default=9443, help="port to listen on (default: %(default)s)")
    parser.add_argument("--cert-file", type=Path, required=True, metavar="FILE", help="certificate chain, PEM; reloaded when it changes")
    parser.add_argument("--key-file", type=Path, required=True, metavar="FILE", help="its private key, PEM")
    parser.add_argument("--kubeconfig", metavar="FILE", help="default: $KUBECONFIG, then the service account of the pod")
    parser.add_argument(
        "--otlp-endpoint", type=_url, metavar="URL", help="OTLP/HTTP collector; default: OTEL_EXPORTER_OTLP_ENDPOINT, else no traces"
    )
    parser.add_argument("--log-level", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR"])
    o = parser.parse_args(arguments)
    return Settings(o.host, o.port, o.cert_file, o.key_file, o.kubeconfig, o.otlp_endpoint, o.log_level)

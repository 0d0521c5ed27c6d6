"""Settings of the webhook, from its command line."""

from dataclasses import dataclass
from pathlib import Path

from core.runtime.arguments import OneLineParser, add_common, port


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


def parse(arguments: list[str] | None = None) -> Settings:
    """Settings of a command line; ends the process with a message if it is wrong."""
    parser = OneLineParser(prog="python -m webhook", description="Defaults and validates jobs and queues at admission.", allow_abbrev=False)
    parser.add_argument("--host", default="0.0.0.0", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=port, default=9443, help="port to listen on (default: %(default)s)")
    parser.add_argument("--cert-file", type=Path, required=True, metavar="FILE", help="certificate chain, PEM; reloaded when it changes")
    parser.add_argument("--key-file", type=Path, required=True, metavar="FILE", help="its private key, PEM")
    add_common(parser)
    o = parser.parse_args(arguments)
    return Settings(o.host, o.port, o.cert_file, o.key_file, o.kubeconfig, o.otlp_endpoint, o.log_level)

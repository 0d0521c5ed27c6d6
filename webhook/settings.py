"""Settings of the webhook, from its command line."""

import argparse
import ipaddress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from certs.plan import Policy
from certs.rotation import KINDS, Configuration, Target
from core.runtime.arguments import METRICS_PORT, OneLineParser, add_common, add_metrics_port, port

FILES = {"cert_file": "--cert-file", "key_file": "--key-file"}
OWN = {
    "cert_secret": "--cert-secret",
    "cert_namespace": "--cert-namespace",
    "cert_dns_name": "--cert-dns-name",
    "cert_configuration": "--cert-configuration",
}
# What may be left out.
OWN_TIMES = {"cert_overlap": "--cert-overlap", "cert_settle": "--cert-settle"}


@dataclass(frozen=True, slots=True)
class Settings:
    """Where to listen and with what certificate: either both files, or `own`."""

    host: str
    port: int
    cert_file: Path | None
    key_file: Path | None
    kubeconfig: str | None
    otlp_endpoint: str | None
    log_level: str
    own: Target | None = None
    metrics_port: int = METRICS_PORT  # 0: none


def make_parser() -> OneLineParser:
    """All flags."""
    parser = OneLineParser(prog="python -m webhook", description="Defaults and validates jobs and queues at admission.", allow_abbrev=False)
    parser.add_argument("--host", default="0.0.0.0", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=port, default=9443, help="port to listen on (default: %(default)s)")
    parser.add_argument(
        "--cert-mode",
        choices=("files", "own"),
        default="files",
        help="certificate from files, or our own (default: %(default)s)",
    )
    files = parser.add_argument_group("certificate from files (--cert-mode files)")
    files.add_argument("--cert-file", type=Path, metavar="FILE", help="certificate chain, PEM; reloaded when it changes")
    files.add_argument("--key-file", type=Path, metavar="FILE", help="its private key, PEM")
    own = parser.add_argument_group("own certificate (--cert-mode own)")
    own.add_argument("--cert-secret", type=_name, metavar="NAME", help="Secret that holds CA and certificate; made when there is none")
    own.add_argument("--cert-namespace", type=_name, metavar="NAMESPACE", help="where it is")
    own.add_argument(
        "--cert-dns-name",
        type=_host,
        action="append",
        metavar="NAME",
        help="of the service, as clients call it, or an IP address of its own; repeatable",
    )
    own.add_argument(
        "--cert-configuration",
        type=_configuration,
        action="append",
        metavar="KIND/NAME",
        help=f"whose caBundle is kept right; KIND is one of {', '.join(KINDS)}; repeatable",
    )
    policy = Policy()
    own.add_argument(
        "--cert-overlap",
        type=_seconds,
        metavar="SECONDS",
        help=f"how long a former CA stays trusted (default: {policy.overlap.total_seconds():.0f})",
    )
    own.add_argument(
        "--cert-settle",
        type=_seconds,
        metavar="SECONDS",
        help=f"how long a new CA is published before it is used (default: {policy.settle.total_seconds():.0f})",
    )
    add_metrics_port(parser)
    add_common(parser)
    return parser


def parse(arguments: list[str] | None = None) -> Settings:
    """Settings of a command line; ends the process with a message if it is wrong."""
    parser, policy = make_parser(), Policy()
    o = parser.parse_args(arguments)
    needed, unwanted = (FILES, OWN | OWN_TIMES) if o.cert_mode == "files" else (OWN, FILES)
    if missing := [flag for name, flag in needed.items() if not getattr(o, name)]:
        parser.error(f"the following arguments are required: {', '.join(missing)}")
    if given := [flag for name, flag in unwanted.items() if getattr(o, name) is not None]:
        parser.error(f"not allowed with --cert-mode {o.cert_mode}: {', '.join(given)}")
    target = None
    if o.cert_mode == "own":
        settle, overlap = o.cert_settle or policy.settle, o.cert_overlap or policy.overlap
        times = Policy(settle=settle, overlap=overlap)
        configurations = tuple(dict.fromkeys(o.cert_configuration))
        target = Target(o.cert_namespace, o.cert_secret, tuple(dict.fromkeys(o.cert_dns_name)), configurations, times)
    return Settings(o.host, o.port, o.cert_file, o.key_file, o.kubeconfig, o.otlp_endpoint, o.log_level, target, o.metrics_port)


def _name(text: str) -> str:
    """Of an object, or in DNS."""
    labels = text.split(".")
    if len(text) > 253 or not all(label.replace("-", "").isalnum() and label.isascii() and label == label.strip("-") for label in labels):
        raise argparse.ArgumentTypeError(f"{text!r} is no name; letters, digits, '-' and '.' are expected")
    return text


def _host(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return _name(text)


def _configuration(text: str) -> Configuration:
    kind, _, name = text.partition("/")
    if kind not in KINDS or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not accepted; KIND/NAME with one of {', '.join(KINDS)} as KIND is expected")
    return Configuration(kind, _name(name))


def _seconds(text: str) -> timedelta:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 366 * 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is not accepted; whole seconds, from 1 to a year, are expected")
    return timedelta(seconds=int(text))

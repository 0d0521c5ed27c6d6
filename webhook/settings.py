"""Settings of the webhook: from its command line, the environment and the file that one of them names, in this order of strength."""

import argparse
import ipaddress
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from certs.rotation import KINDS, BundleHolder, CertificateTarget
from certs.rotation_plan import RotationPolicy
from core.api.files.configuration_file import read_configuration_file
from core.api.files.mistakes import InvalidFile
from core.model.configuration import Address
from core.model.configuration import Configuration as ConfigurationFile
from core.model.duration import InvalidDuration, parse_duration, show_duration
from core.model.gates import DEVICES, GATES, NO_GATES, OF_THE_WEBHOOK, BadGates, ChosenGates, read_gates
from core.model.own_pods_ready import MOST_READY_S
from core.names import VARIABLE_PREFIX
from core.runtime.arguments import (
    METRICS_PORT,
    Given,
    OneLineParser,
    add_common,
    add_config,
    add_metrics_port,
    parse_port,
    parse_port_or_none,
)
from core.runtime.report.sampling import SLOW_S

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
    own: CertificateTarget | None = None
    metrics_host: str = "0.0.0.0"
    metrics_port: int = METRICS_PORT  # 0: none
    otlp_protocol: str | None = None  # None: by the environment
    trace_ratio: float | None = None  # None: by the environment
    trace_slow_s: float = SLOW_S
    gates: ChosenGates = NO_GATES
    most_ready_s: float = MOST_READY_S
    client_ca_file: Path | None = None  # None: every client that reaches the port may ask
    health_port: int = 0  # 0: none


def make_parser() -> OneLineParser:
    """Returns the parser with all flags of the webhook."""
    parser = OneLineParser("python -m webhook", "Defaults and validates jobs and queues at admission.", VARIABLE_PREFIX)
    add_config(parser)
    parser.add_argument("--host", default="0.0.0.0", help="address to listen on, for metrics and probes, too (default: %(default)s)")
    parser.add_argument("--port", type=parse_port, default=9443, help="port to listen on (default: %(default)s)")
    _add_rules_of_jobs(parser)
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
        type=_parse_host,
        action="append",
        metavar="NAME",
        help="of the service, as clients call it, or an IP address of its own; repeatable",
    )
    own.add_argument(
        "--cert-configuration",
        type=_parse_configuration,
        action="append",
        metavar="KIND/NAME",
        help=f"a configuration with a caBundle that is kept right; KIND is one of {', '.join(KINDS)}; repeatable",
    )
    parser.add_argument(
        "--client-ca-file",
        type=Path,
        metavar="FILE",
        help="CA of the API servers' client certificates, PEM; reviews are answered to clients with one only (default: to all)",
    )
    policy = RotationPolicy()
    own.add_argument(
        "--cert-overlap",
        type=_parse_seconds,
        metavar="SECONDS",
        help=f"how long a former CA stays trusted (default: {policy.overlap.total_seconds():.0f})",
    )
    own.add_argument(
        "--cert-settle",
        type=_parse_seconds,
        metavar="SECONDS",
        help=f"how long a new CA is published before it is used (default: {policy.settle.total_seconds():.0f})",
    )
    _add_health_port(parser)
    add_metrics_port(parser)
    add_common(parser)
    return parser


def _add_health_port(parser: OneLineParser) -> None:
    parser.add_argument(
        "--health-port",
        type=parse_port_or_none,
        default=0,
        help="plain HTTP with /healthz and /readyz, on which probes wait for no TLS handshake of others; 0: none (default: %(default)s)",
    )


def _add_rules_of_jobs(parser: OneLineParser) -> None:
    parser.add_argument(
        "--feature-gates",
        action="append",
        metavar="NAME=BOOL,...",
        help=f"as the reconciler's, of which these change something here: {', '.join(sorted(OF_THE_WEBHOOK))} (default of each: "
        f"false, but {DEVICES}: true)",
    )
    parser.add_argument(
        "--count-devices",
        action=argparse.BooleanOptionalAction,
        help="accept jobs with claims of devices, since the reconciler's file has `resources.deviceClassMappings` "
        "(default: whether the file of --config has; docs/queues.md)",
    )
    parser.add_argument(
        "--max-timeout-on-workload",
        type=_parse_duration,
        metavar="DURATION",
        help="the longest time that a job may ask for by kueue.x-k8s.io/wait-for-pods-ready "
        f"(default: `waitForPodsReady.maxTimeoutOnWorkload` of the file, else {show_duration(MOST_READY_S)})",
    )


def parse(arguments: list[str] | None = None, *, environ: Mapping[str, str] | None = None) -> Settings:
    """Returns the settings of a command line and an environment (None: of this process), and of the file that they name. Of the gates it
    has `OF_THE_WEBHOOK` alone. Ends the process with a message and status 2 if any of that is wrong, missing or not meant for the chosen
    certificate; whether certificate files exist is not looked at."""
    parser = make_parser()
    given = parser.read(arguments, environ)
    file, in_file = ConfigurationFile(), list[str]()
    try:
        file = read_configuration_file(given.get("config")) if given.has("config") else file
    except InvalidFile as error:
        in_file = [f"{given.describe_places('config')}: {mistake}" for mistake in error.mistakes]
    given.mistakes += _list_wrong_gates(given)
    if given.is_whole and not in_file:
        given.mistakes += _list_misfits(given, file)
    if given.mistakes or in_file:
        parser.refuse(given.mistakes, in_file)
    return _build_settings(given, file)


def _list_misfits(given: Given, file: ConfigurationFile) -> Iterator[str]:
    """What is missing, and what is not meant for a certificate of this kind."""
    mode = given.get("cert_mode")
    if given.has("cert_mode") and not given.layers.get("cert_mode"):
        return  # an unknown kind
    needed, unwanted = (FILES, OWN | OWN_TIMES) if mode == "files" else (OWN, FILES)
    has_folder = mode == "files" and file.webhook.certificates is not None
    named = [name for name in needed if given.has(name)]
    if missing := [flag for name, flag in needed.items() if name not in named and (not has_folder or named)]:
        yield f"the following arguments are required: {', '.join(missing)}"
    if extra := [flag for name, flag in unwanted.items() if given.has(name)]:
        yield f"not allowed with --cert-mode {mode}: {', '.join(extra)}"


def _list_wrong_gates(given: Given) -> Iterator[str]:
    for where, texts in given.layers.get("feature_gates", ()):
        try:
            read_gates(texts)
        except BadGates as error:
            yield f"{where}: {error}"


def _read_gates(given: Given, file: ConfigurationFile) -> ChosenGates:
    """Returns the gates that change something here; the reconciler checks whether all gates together make sense. The gate DEVICES is there
    only if quota counts any devices: if the file maps a DeviceClass, unless `--count-devices` decides otherwise."""
    values = {DEVICES: GATES[DEVICES].default, **file.gates}
    for _, texts in given.layers.get("feature_gates", ()):
        values |= read_gates(texts).values
    if not given.get("count_devices", bool(file.resources.device_classes)):
        del values[DEVICES]
    return ChosenGates({name: value for name, value in values.items() if name in OF_THE_WEBHOOK})


def _build_settings(given: Given, file: ConfigurationFile) -> Settings:
    own = given.get("cert_mode") == "own"
    folder = Path(file.webhook.certificates) if file.webhook.certificates is not None and not own else None
    metrics = file.metrics or Address(None, METRICS_PORT)
    host = given.get("host", file.webhook.host)
    return Settings(
        host,
        given.get("port", file.webhook.port),
        given.get("cert_file", folder and folder / "tls.crt"),
        given.get("key_file", folder and folder / "tls.key"),
        given.get("kubeconfig"),
        given.get("otlp_endpoint"),
        given.get("log_level"),
        _read_own(given) if own else None,
        host if given.has("host") else metrics.host or host,
        given.get("metrics_port", metrics.port),
        given.get("otlp_protocol"),
        given.get("trace_ratio"),
        given.get("trace_slow"),
        _read_gates(given, file),
        given.get("max_timeout_on_workload", file.most_ready_s or MOST_READY_S),
        given.get("client_ca_file"),
        given.get("health_port"),
    )


def _read_own(given: Given) -> CertificateTarget:
    usual = RotationPolicy()
    times = RotationPolicy(settle=given.get("cert_settle", usual.settle), overlap=given.get("cert_overlap", usual.overlap))
    names, configurations = (tuple(dict.fromkeys(given.get(name))) for name in ("cert_dns_name", "cert_configuration"))
    return CertificateTarget(given.get("cert_namespace"), given.get("cert_secret"), names, configurations, times)


def _name(text: str) -> str:
    """Of an object, or in DNS."""
    labels = text.split(".")
    if len(text) > 253 or not all(label.replace("-", "").isalnum() and label.isascii() and label == label.strip("-") for label in labels):
        raise argparse.ArgumentTypeError(f"{text!r} is no name; letters, digits, '-' and '.' are expected")
    return text


def _parse_host(text: str) -> str:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return _name(text)


def _parse_configuration(text: str) -> BundleHolder:
    kind, _, name = text.partition("/")
    if kind not in KINDS or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not accepted; KIND/NAME with one of {', '.join(KINDS)} as KIND is expected")
    return BundleHolder(kind, _name(name))


def _parse_duration(text: str) -> float:
    try:
        if (seconds := parse_duration(text)) > 0:
            return seconds
    except InvalidDuration:
        pass
    raise argparse.ArgumentTypeError(f"{text[:60]!r} is not accepted; a duration of more than 0s such as 30m or 2h is expected")


def _parse_seconds(text: str) -> timedelta:
    if not re.fullmatch("[0-9]{1,8}", text) or not 1 <= int(text) <= 366 * 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is not accepted; whole seconds, from 1 to a year, are expected")
    return timedelta(seconds=int(text))

"""The reconciler alone, by the arguments of the peer's performance rig (reference/performance-rig.md F.1).

The rig installs CRDs, makes queues, nodes and workloads, pretends to run what is admitted, may scrape metrics, and ends this
process with SIGINT. What is of no use here (profiles, its logger's settings) is accepted and named once.
"""

from __future__ import annotations

import argparse
import resource
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from reconciler.__main__ import main as reconcile

BEGAN = time.time()


def parse(arguments: list[str] | None = None) -> tuple[argparse.Namespace, list[str]]:
    """What is of use, and the rest."""
    parser = argparse.ArgumentParser(prog="perf-rig", description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--enableTAS", nargs="?", const="true", help="placement by topology is always on")  # Go says --flag=true, too
    parser.add_argument("--metricsPort", type=int, default=0, help="answer /metrics there, with what the process takes; 0: nowhere")
    parser.add_argument("--kube-api-qps", help="as the peer's own limit of 50; none by default")
    return parser.parse_known_args(arguments)


class _Metrics(BaseHTTPRequestHandler):
    """What Go's own client libraries tell of a process, under the same names."""

    def do_GET(self) -> None:
        used = resource.getrusage(resource.RUSAGE_SELF)
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        told = {
            "process_cpu_seconds_total": used.ru_utime + used.ru_stime,
            "process_resident_memory_bytes": pages * resource.getpagesize(),
            "process_start_time_seconds": BEGAN,
        }
        body = "".join(f"{name} {value:g}\n" for name, value in told.items()).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """A scrape is not worth a line."""


def main() -> int:
    options, rest = parse()
    if rest:
        print(f"perf-rig: of no use here: {' '.join(rest)}", file=sys.stderr)
    if options.metricsPort > 0:
        server = ThreadingHTTPServer(("", options.metricsPort), _Metrics)
        threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    sys.argv = ["reconciler", "--kubeconfig", options.kubeconfig, "--no-leader-election", "--log-level", "WARNING"]
    sys.argv += ["--kube-api-qps", options.kube_api_qps] if options.kube_api_qps else []
    return reconcile()


if __name__ == "__main__":
    sys.exit(main())

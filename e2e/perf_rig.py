"""The reconciler alone, by the arguments of the peer's performance rig (reference/performance-rig.md F.1).

The rig installs CRDs, makes queues, nodes and workloads, pretends to run what is admitted, may scrape metrics, and ends this
process with SIGINT. What is of no use here (profiles, its logger's settings) is accepted and named once.
"""

from __future__ import annotations

import argparse
import sys

from reconciler.__main__ import main as reconcile


def parse(arguments: list[str] | None = None) -> tuple[argparse.Namespace, list[str]]:
    """What is of use, and the rest."""
    parser = argparse.ArgumentParser(prog="perf-rig", description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--enableTAS", nargs="?", const="true", help="placement by topology is always on")  # Go says --flag=true, too
    parser.add_argument("--metricsPort", type=int, default=0, help="answer /metrics there; 0: nowhere")
    parser.add_argument("--kube-api-qps", help="as the peer's own limit of 50; none by default")
    return parser.parse_known_args(arguments)


def main() -> int:
    options, rest = parse()
    if rest:
        print(f"perf-rig: of no use here: {' '.join(rest)}", file=sys.stderr)
    sys.argv = ["reconciler", "--kubeconfig", options.kubeconfig, "--no-leader-election", "--log-level", "WARNING"]
    sys.argv += ["--metrics-port", str(options.metricsPort), "--health-port", "0"]
    sys.argv += ["--kube-api-qps", options.kube_api_qps] if options.kube_api_qps else []
    return reconcile()


if __name__ == "__main__":
    sys.exit(main())

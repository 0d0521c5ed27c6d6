"""Processor time and memory of processes, read from proc(5)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Used:
    cpu_s: float
    peak_mb: int


@dataclass(frozen=True)
class Meter:
    """Processor time and memory of processes, from when it was made."""

    pids: dict[str, int]
    began: dict[str, float]

    @staticmethod
    def of(pids: dict[str, int]) -> Meter:
        return Meter(pids, {name: _cpu_s(pid) for name, pid in pids.items()})

    def read(self) -> dict[str, Used]:
        return {name: Used(round(_cpu_s(pid) - self.began[name], 1), _peak_mb(pid)) for name, pid in self.pids.items()}


def _cpu_s(pid: int) -> float:
    """Processor time of a process so far, its children not included (proc(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak_mb(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) // 1024

"""Longer turns on the processor for tests and all that they start: they use all processors for minutes, and nobody waits for one of them.

With six processes and four control planes on two processors the kernel switched ten thousand times a second, each time to another working
set: a fifth of the CPU (`docs/testing.md`).
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct

SLICE_NS = 20_000_000
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
"""Numbers of the system call, which neither Python nor the C library has a name for."""


def use_long_slices() -> bool:
    """Whether this process has SCHED_BATCH from now on, and with it all that it starts: what wakes does not interrupt it. A kernel from
    6.12 on gives it `SLICE_NS` at a time, an older one its own measure (sched(7))."""
    number = _SCHED_SETATTR.get(platform.machine())
    if number is None or platform.system() != "Linux":
        return False
    # struct sched_attr: size, policy, flags, nice, priority, runtime, deadline, period
    attributes = struct.pack("=IIQiIQQQ", 48, os.SCHED_BATCH, 0, os.nice(0), 0, SLICE_NS, 0, 0)
    return bool(ctypes.CDLL(None).syscall(ctypes.c_long(number), 0, attributes, 0) == 0)

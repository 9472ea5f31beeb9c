"""Measure the peak memory of this process."""

import resource
import sys
from pathlib import Path

_CLEAR = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")


def reset_peak() -> None:
    """Reset the peak (on Linux), so that it does not include the imports."""
    if _CLEAR.exists():
        _CLEAR.write_text("5")  # proc(5): resets VmHWM to the current resident size


def peak_bytes() -> int:
    """Return the largest resident size, since the last reset if there was one."""
    if _STATUS.exists():  # on Linux, ru_maxrss would include the parent's size
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024

"""How much memory this process has needed."""

import resource
import sys
from pathlib import Path

_CLEAR = Path("/proc/self/clear_refs")
_STATUS = Path("/proc/self/status")


def reset_peak() -> None:
    """Forget the peak so far (on Linux), so that the imports do not hide what follows."""
    if _CLEAR.exists():
        _CLEAR.write_text("5")  # proc(5): resets VmHWM to the current resident size


def peak_bytes() -> int:
    """The largest resident size, since the last reset where there is one."""
    if _STATUS.exists():  # ru_maxrss is inherited through exec on Linux: the parent's would count
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024

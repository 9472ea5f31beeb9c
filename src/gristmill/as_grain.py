"""Run a program that is written for Grain: `python -m gristmill.as_grain train.py`."""

import sys as _sys

from gristmill._as_grain.run import main as _main
from gristmill._as_grain.switch import CallableModule as _CallableModule

if __name__ == "__main__":
    raise SystemExit(_main())

_sys.modules[__name__].__class__ = _CallableModule

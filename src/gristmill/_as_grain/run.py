"""`python -m gristmill.as_grain`: run a program that is written for Grain."""

import os
import runpy
import sys

from gristmill._as_grain.switch import as_grain

_USAGE = """\
usage: python -m gristmill.as_grain program.py [argument ...]
       python -m gristmill.as_grain -m module [argument ...]

Run a Python program or module with gristmill instead of Grain: `import grain` imports gristmill,
in the program, in what it imports and in worker processes.
"""


def main() -> int:
    """Run the program that the command line names, as `python` itself would."""
    arguments = sys.argv[1:]
    is_module = arguments[:1] == ["-m"]
    program = arguments[is_module : is_module + 1]
    if not program or program[0].startswith("-"):
        asked = arguments[:1] in (["-h"], ["--help"])
        print(_USAGE, end="", file=sys.stdout if asked else sys.stderr)
        return 0 if asked else 2
    if not is_module and not _can_open(program[0]):
        return 2
    as_grain()
    sys.argv = arguments[is_module:]
    if is_module:
        runpy.run_module(program[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(program[0]))
        runpy.run_path(program[0], run_name="__main__")
    return 0


def _can_open(program: str) -> bool:
    """Return whether a program can be read. If not, print the reason as `python` itself would."""
    if os.path.isdir(program):  # a folder with `__main__.py`
        return True
    try:
        open(program, "rb").close()
    except OSError as error:
        path = os.path.abspath(program)
        sys.stderr.write(
            f"{sys.executable}: can't open file {path!r}: [Errno {error.errno}] {error.strerror}\n"
        )
        return False
    return True

"""The command line: `gristmill inspect` and `gristmill convert`."""

from gristmill.command._main import main

__all__ = ["main"]

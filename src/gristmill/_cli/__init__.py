"""The command line: `gristmill inspect`, `gristmill convert` and `gristmill demo`."""

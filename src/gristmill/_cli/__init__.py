"""The command line: one module for each command, such as `gristmill inspect`."""

"""How fast gristmill and its peers are, measured side by side: `python -m benchmarks --help`."""

"""Compare the speed of gristmill and other data loaders: `python -m benchmarks --help`."""

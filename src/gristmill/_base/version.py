"""The version of gristmill, the same as in `pyproject.toml`."""

VERSION = "0.1.0"
VERSION_INFO = tuple(int(part) for part in VERSION.split(".") if part.isdigit())

"""The version of gristmill: the only place where it is written."""

VERSION = "0.2.0"
VERSION_INFO = tuple(int(part) for part in VERSION.split(".") if part.isdigit())

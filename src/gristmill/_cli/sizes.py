"""Parse sizes in bytes, such as 256MB."""

import argparse
import re

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def parse_size(string: str) -> int:
    """Return the number of bytes that a size stands for.

    >>> parse_size("256MB"), parse_size("1.5 g"), parse_size("700")
    (256000000, 1500000000, 700)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)B?\s*", string.upper())
    if match is None or not float(match[1]):
        raise argparse.ArgumentTypeError(f"must be a size such as 256MB or 2GB, got {string!r}")
    return int(float(match[1]) * _UNITS[match[2]])

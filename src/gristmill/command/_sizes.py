"""Sizes as people write and read them."""

import argparse
import re

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def as_bytes(text: str) -> int:
    """Read a size.

    >>> as_bytes("256MB"), as_bytes("1.5 g"), as_bytes("700")
    (256000000, 1500000000, 700)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]?)B?\s*", text.upper())
    if match is None or not float(match[1]):
        raise argparse.ArgumentTypeError(f"a size looks like 256MB or 2GB, not {text!r}")
    return int(float(match[1]) * _UNITS[match[2]])


def size_text(count: float) -> str:
    """Write a size.

    >>> size_text(12), size_text(1_234_567)
    ('12 B', '1.2 MB')
    """
    for unit in "TGM":
        if count >= _UNITS[unit]:
            return f"{count / _UNITS[unit]:.1f} {unit}B"
    return f"{count / 1000:.1f} kB" if count >= 1000 else f"{count:.0f} B"

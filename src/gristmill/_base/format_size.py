"""Format sizes in bytes."""


def format_size(num_bytes: float) -> str:
    """Return a size with a unit.

    >>> format_size(12), format_size(1_234_567)
    ('12 B', '1.2 MB')
    """
    for size, unit in ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if num_bytes >= size:
            return f"{num_bytes / size:.1f} {unit}"
    return f"{num_bytes:.0f} B"

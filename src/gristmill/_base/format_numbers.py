"""Format times, rates and counts with as many digits as a reader needs."""


def format_seconds(seconds: float) -> str:
    """Return a time with a unit.

    >>> [format_seconds(seconds) for seconds in (0.0, 0.000012, 0.0172, 0.45, 12.34, 750.0, 1e4)]
    ['0 s', '0.012 ms', '17.2 ms', '0.45 s', '12.3 s', '12.5 min', '2.8 h']
    """
    if seconds >= 7200:
        return f"{seconds / 3600:,.1f} h"
    if seconds >= 120:
        return f"{seconds / 60:.1f} min"
    if seconds >= 0.0995 or seconds <= 0:
        return f"{_three_digits(max(0.0, seconds), most_decimals=2)} s"
    return f"{_three_digits(1e3 * seconds, most_decimals=3)} ms"


def format_rate(per_s: float) -> str:
    """Return a number per second.

    >>> [format_rate(rate) for rate in (0.0, 0.034, 4.83, 61.4, 1234.5)]
    ['0/s', '0.034/s', '4.83/s', '61.4/s', '1,234/s']
    """
    return f"{_three_digits(per_s, most_decimals=3)}/s"


def count_of(number: int, noun: str) -> str:
    """Return a number and a noun, which is in the plural unless the number is 1.

    >>> count_of(1, "element"), count_of(1234, "element")
    ('1 element', '1,234 elements')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _three_digits(number: float, *, most_decimals: int) -> str:
    if not number:
        return "0"
    decimals = min(most_decimals, 0 if number >= 99.95 else 1 if number >= 9.995 else 2)
    if number < 0.995:
        decimals = most_decimals
    return f"{number:,.{decimals}f}"

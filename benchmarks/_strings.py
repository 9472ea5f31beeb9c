"""A Python list of strings, 128 MiB of objects."""

import random

NUM_STRINGS = 1_000_000
STRING_BYTES = 77  # and 49 bytes of the object and 8 of the list: 128 MiB together


def make_strings(count: int = NUM_STRINGS) -> list[str]:
    """Return strings that differ, each of which begins with its number."""
    ending = "".join(random.Random(0).choices("abcdefgh", k=STRING_BYTES))
    return [f"{number:08d}{ending[8:]}" for number in range(count)]

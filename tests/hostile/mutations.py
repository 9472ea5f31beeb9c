"""Seeded mutations of files: what disks, networks and attackers do to them."""

import random

_EDGES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Return a copy of `data` with one to three mutations."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        data = rng.choice(_MUTATIONS)(data, rng)
    return data


def _flip_bit(data: bytes, rng: random.Random) -> bytes:
    if not data:
        return data
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]


def _set_byte(data: bytes, rng: random.Random) -> bytes:
    if not data:
        return data
    at = rng.randrange(len(data))
    return (
        data[:at] + bytes([rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))]) + data[at + 1 :]
    )


def _set_number(data: bytes, rng: random.Random) -> bytes:
    size = rng.choice((1, 2, 4, 8))
    if len(data) < size:
        return data
    at = rng.randrange(len(data) - size + 1)
    number = (rng.choice(_EDGES) % 256**size).to_bytes(size, rng.choice(("little", "big")))
    return data[:at] + number + data[at + size :]


def _truncate(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data) + 1)]


def _zero(data: bytes, rng: random.Random) -> bytes:
    at, count = rng.randrange(len(data) + 1), rng.choice((1, 8, 64, 512, 1024))
    return data[:at] + bytes(len(data[at : at + count])) + data[at + count :]


def _delete(data: bytes, rng: random.Random) -> bytes:
    at, count = rng.randrange(len(data) + 1), rng.choice((1, 2, 8, 64, 512))
    return data[:at] + data[at + count :]


def _repeat(data: bytes, rng: random.Random) -> bytes:
    at, count = rng.randrange(len(data) + 1), rng.choice((1, 2, 8, 64, 512))
    return data[: at + count] + data[at:]


def _insert(data: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(data) + 1)
    token = rng.choice(
        (b"\0", b"\n", b'"', b",", b"{", b"[", b"\xef\xbb\xbf", b"\xff\xfe", b"\x1b")
    )
    return data[:at] + token + data[at:]


_MUTATIONS = (
    _flip_bit,
    _flip_bit,
    _set_byte,
    _set_number,
    _truncate,
    _zero,
    _delete,
    _repeat,
    _insert,
)

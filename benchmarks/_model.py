"""What a benchmark is made of, as data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any


class Role(StrEnum):
    """What a contender stands for in its row."""

    OURS = "ours"
    """gristmill, judged against the target."""
    PEER = "peer"
    """Another loader as its documentation has it; the fastest one is the best peer."""
    TUNED = "tuned"
    """A peer with parts of the loader's own work written by hand: compared with, not a target."""
    LIMIT = "limit"
    """A bare loop without a loader; the fastest one is the limit."""
    INFO = "info"
    """Shown, but not judged and not compared with: other work than the row's."""


@dataclass(frozen=True, kw_only=True)
class Contender:
    """One way of doing the work of a row, run in a process of its own."""

    family: str
    how: str
    role: Role
    package: str
    """The package it needs, under the name it is imported by."""
    program: str
    """`module:function` under `benchmarks.contenders`."""
    arguments: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.family}, {self.how}"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What one process is told."""

    data: Path
    """A folder with `images.npy` and `labels.npy`."""
    max_seconds: float
    verify: bool
    """Also run a second, untimed epoch, of which every byte is compared."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """What one process found."""

    metrics: Mapping[str, float]
    records: int
    complete: bool
    """False where the time limit cut the epoch short."""
    fingerprint: int | None = None
    """A checksum of the content, for rows where all contenders deliver the same."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """What gristmill must reach, from section 7 of the design."""

    times: float
    of: str | None = None
    """`best peer`, `limit`, a family, or None for records per second."""

    def __str__(self) -> str:
        return f"{self.times:,.0f} records/s" if self.of is None else f"{self.times:g}x {self.of}"


@dataclass(frozen=True, kw_only=True)
class Row:
    """One kind of work, and everyone who does it."""

    name: str
    title: str
    measure: Callable[[Callable[..., Any], Contender, Settings], Measurement]
    contenders: tuple[Contender, ...]
    targets: tuple[Target, ...] = ()
    metrics: Mapping[str, str] = field(default_factory=lambda: {"records_per_s": "records/s"})
    """Name of each metric, and the heading it is shown under."""

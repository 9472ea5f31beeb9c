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
    BASE = "base"
    """gristmill run another way, which a target of `base` compares it with."""
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
    streams: int = 1
    """In how many strides of the records batches are formed: Grain's workers take one each."""

    @property
    def name(self) -> str:
        return f"{self.family}, {self.how}"

    @property
    def worker_count(self) -> int:
        """How many worker processes it is to have."""
        return self.arguments.get("worker_count", 0)


def contender(
    family: str,
    how: str,
    role: Role,
    package: str,
    program: str,
    *,
    streams: int = 1,
    **arguments: Any,
) -> Contender:
    """A contender, in one line."""
    return Contender(
        family=family,
        how=how,
        role=role,
        package=package,
        program=program,
        streams=streams,
        arguments=arguments,
    )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What one process is told."""

    data: Path
    """A folder with what the row's data prepared."""
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
class Score:
    """The metric of a row by which contenders are compared."""

    metric: str
    unit: str
    lower_is_better: bool = False

    def speed(self, figure: float) -> float:
        """The figure, or its inverse where lower is better: more is faster."""
        return 1 / figure if self.lower_is_better else figure


RECORDS_PER_S = Score(metric="records_per_s", unit="records/s")
SECONDS = Score(metric="seconds", unit="s", lower_is_better=True)


@dataclass(frozen=True, kw_only=True)
class Target:
    """What gristmill must reach, from section 7 of the design."""

    times: float
    of: str | None = None
    """`best peer`, `limit`, `base`, a family, or None for a figure in the row's own unit."""


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
    score: Score | None = RECORDS_PER_S
    """None where contenders are shown side by side and not compared."""
    data: str | None = None
    """What is prepared before the first round: `mnist`, `tfds`, `jpeg`, `records` or `table`."""
    note: str = ""
    """What a reader must know about how it is measured."""

    def wording(self, target: Target) -> str:
        """A target in words."""
        if target.of == "base":
            base = next(other for other in self.contenders if other.role is Role.BASE)
            return f"{target.times:g}x {base.how}"
        if target.of is not None:
            return f"{target.times:g}x {target.of}"
        if self.score is None:
            raise ValueError(f"Row {self.name!r} has a target, but no score to judge it by.")
        bound = "at most " if self.score.lower_is_better else ""
        return f"{bound}{target.times:,} {self.score.unit}"

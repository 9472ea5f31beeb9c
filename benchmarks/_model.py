"""The definition of a benchmark row as data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any


class Role(StrEnum):
    """The role of a contender in its row."""

    OURS = "ours"
    """gristmill, compared with the targets."""
    BASE = "base"
    """gristmill with other options, for targets relative to `base`."""
    PEER = "peer"
    """Another loader, used as in its documentation. The fastest one is the best peer."""
    TUNED = "tuned"
    """A peer for which the user wrote a part of the loader: compared, but not a target."""
    LIMIT = "limit"
    """A plain loop without a loader. The fastest one is the limit."""
    INFO = "info"
    """Other work than that of the row: shown, but not compared."""


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A program that does the work of a row, in its own process."""

    family: str
    how: str
    role: Role
    package: str
    """The name under which the package that it needs is imported."""
    program: str
    """`module:function` under `benchmarks.contenders`."""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    streams: int = 1
    """The number of streams that batches are formed in: one for each worker of Grain."""

    @property
    def name(self) -> str:
        return f"{self.family}, {self.how}"

    @property
    def worker_count(self) -> int:
        """The number of worker processes that it must have."""
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
    """Return a contender. Further keywords are the arguments of its program."""
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
    """The settings of one process."""

    data: Path
    """The folder with the prepared data of the row."""
    max_seconds: float
    verify: bool
    """Whether to run a second epoch, which is not timed, and compare every byte."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The result of one process."""

    metrics: Mapping[str, float]
    records: int
    complete: bool
    """False if the epoch was stopped by the time limit."""
    fingerprint: int | None = None
    """A checksum of the content, for rows in which all contenders deliver the same."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """The metric of a row by which contenders are compared."""

    metric: str
    unit: str
    lower_is_better: bool = False

    def speed(self, figure: float) -> float:
        """Return a number that is larger for a faster contender."""
        return 1 / figure if self.lower_is_better else figure


RECORDS_PER_S = Score(metric="records_per_s", unit="records/s")
SECONDS = Score(metric="seconds", unit="s", lower_is_better=True)


@dataclass(frozen=True, kw_only=True)
class Target:
    """A figure that gristmill should reach."""

    times: float
    of: str | None = None
    """`best peer`, `limit`, `base`, a family, or the name of one contender (`Grain, default
    threads`); None for a figure in the unit of the row."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """A workload, and the contenders that run it."""

    name: str
    title: str
    measure: Callable[[Callable[..., Any], Contender, Settings], Measurement]
    contenders: tuple[Contender, ...]
    targets: tuple[Target, ...] = ()
    metrics: Mapping[str, str] = field(default_factory=lambda: {"records_per_s": "records/s"})
    """The heading of each metric by its name."""
    score: Score | None = RECORDS_PER_S
    """None if the contenders are not compared."""
    data: str | None = None
    """The data to prepare before the first round: `mnist`, `tfds`, `jpeg`, `records`, `table` or
    `corpus`."""
    note: str = ""
    """What a reader must know about the measurement."""

    def wording(self, target: Target) -> str:
        """Return a description of a target."""
        if target.of == "base":
            base = next(other for other in self.contenders if other.role is Role.BASE)
            return f"{target.times:g}x {base.how}"
        if target.of is not None:
            return f"{target.times:g}x {target.of}"
        if self.score is None:
            raise ValueError(f"Row {self.name!r} has a target but no score.")
        bound = "at most " if self.score.lower_is_better else ""
        return f"{bound}{target.times:,} {self.score.unit}"

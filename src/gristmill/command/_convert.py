"""Write the records of a source anew, shard by shard.

DST.partial/plan.json       what is being done, and how many shards are
DST.partial/.part/          the shard that is being written
DST.partial/DST-00000-of-00003.parquet
DST/                        the folder renamed, once all is there
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO, final

from gristmill._progress import progress
from gristmill.command._records import read_records, some_indices, weigh
from gristmill.command._sizes import size_text
from gristmill.command._targets import TARGETS, Target
from gristmill.errors import PlanError, SourceError
from gristmill.sources import files_of, open_source
from gristmill.types import Element

__all__ = ["TARGETS", "Conversion", "convert"]

_SAMPLE = 256
_BLOCK_BYTES = 4 * 10**6
_DEFAULT = "array_record"


@final
@dataclass(frozen=True, kw_only=True)
class Conversion:
    """What is to be done."""

    source: str
    target: str
    to: str | None = None
    shard_bytes: int = 256 * 10**6
    records_per_shard: int | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """How the source is opened."""

    def __post_init__(self) -> None:
        if self.records_per_shard is not None and self.records_per_shard < 1:
            raise PlanError(
                f"`--records-per-shard` must be at least 1, got {self.records_per_shard}."
            )

    @property
    def format(self) -> str:
        """The format to write."""
        ending = Path(self.target).suffix.removeprefix(".")
        return self.to or (ending if ending in TARGETS else _DEFAULT)

    @property
    def folder(self) -> Path:
        """Where all is in the end."""
        return Path(os.path.expanduser(self.target))

    @property
    def partial(self) -> Path:
        """Where it is until then."""
        return self.folder.with_name(f"{self.folder.name}.partial")


def convert(conversion: Conversion, *, output: TextIO) -> None:
    """Write all records of a source; go on where an earlier attempt was interrupted."""
    if conversion.folder.exists() or conversion.folder.is_symlink():
        raise PlanError(
            f"{conversion.folder} exists, and nothing is overwritten. Remove it, or choose another "
            "DST."
        )
    source = open_source(conversion.source, **conversion.options)
    length = len(source)
    if not length:
        raise SourceError(f"{conversion.source} holds no records, so there is nothing to write.")
    sample = read_records(source, some_indices(length, _SAMPLE))
    target = TARGETS[conversion.format](read_records(source, range(min(length, _SAMPLE))))
    record_bytes = max(1, sum(map(weigh, sample)) // len(sample))
    per_shard = conversion.records_per_shard or max(1, conversion.shard_bytes // record_bytes)
    shards = [range(first, min(first + per_shard, length)) for first in range(0, length, per_shard)]
    started = time.monotonic()
    with _alone(conversion.partial) as folder:
        job = _Job(folder, _words(conversion, source, per_shard))
        if job.done:
            output.write(f"Going on: {job.done} of {len(shards)} shards are there.\n")
        with progress("Converting", total=length, unit="records") as advance:
            advance(sum(map(len, shards[: job.done])))
            try:
                for number in range(job.done, len(shards)):
                    name = f"{_stem(conversion)}-{number:05d}-of-{len(shards):05d}"
                    blocks = _blocks(source, shards[number], record_bytes, advance)
                    job.write(target, name, len(shards[number]), blocks)
            except KeyboardInterrupt:
                output.write(
                    f"Interrupted: {job.done} of {len(shards)} shards are done. Run the same "
                    "command again to go on.\n"
                )
                raise
            except Exception as error:
                if job.done:
                    error.add_note(
                        f"{job.done} of {len(shards)} shards are done and in {folder}: mend the "
                        "cause and run the same command again, or remove the folder."
                    )
                raise
            finally:
                job.tidy()
        target.finish(folder)
        job.end()
        os.rename(folder, conversion.folder)
    size = sum(path.stat().st_size for path in conversion.folder.iterdir())
    plural = "s" if len(shards) > 1 else ""
    output.write(
        f"{length:,} records in {len(shards)} shard{plural}, {size_text(size)}, "
        f"{time.monotonic() - started:.1f} s.\n"
        f"Read them with {target.reading(str(conversion.folder), _stem(conversion))}\n"
    )


def _stem(conversion: Conversion) -> str:
    name = conversion.folder.name
    return name.removesuffix(f".{conversion.format}") or conversion.format


def _blocks(
    source: Any, records: range, record_bytes: int, advance: Callable[[int], None]
) -> Iterator[tuple[int, list[Element]]]:
    step = max(1, min(4096, _BLOCK_BYTES // record_bytes))
    for first in range(records.start, records.stop, step):
        block = read_records(source, range(first, min(first + step, records.stop)))
        yield first, block
        advance(len(block))


def _words(conversion: Conversion, source: Any, per_shard: int) -> dict[str, Any]:
    """Say what is being done, to tell another conversion from this one."""
    refs = files_of(conversion.source)
    versions = hashlib.sha256(
        "\n".join(f"{ref.path} {ref.size} {ref.version}" for ref in refs).encode()
    )
    return {
        "source": conversion.source,
        "options": {name: str(value) for name, value in conversion.options.items()},
        "files": versions.hexdigest()[:32],
        "records": len(source),
        "format": conversion.format,
        "records_per_shard": per_shard,
    }


@contextlib.contextmanager
def _alone(folder: Path) -> Generator[Path]:
    """Keep other processes from writing there at the same time."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise PlanError(f"Another process is writing to {folder}. Wait for it.") from None
        yield folder
    except BaseException:
        with contextlib.suppress(OSError):
            os.rmdir(folder)  # only if nothing is in it
        raise
    finally:
        os.close(descriptor)


@final
class _Job:
    """What is done of a conversion, and what is not."""

    def __init__(self, folder: Path, words: dict[str, Any]) -> None:
        self._folder = folder
        self._plan = folder / "plan.json"
        self._part = folder / ".part"
        self._words = words
        self.done = 0
        """How many shards are written."""
        shutil.rmtree(self._part, ignore_errors=True)  # of a process that was killed
        if self._plan.exists():
            self._go_on()
        elif any(folder.iterdir()):
            raise PlanError(f"{folder} holds files of something else. Remove it.")
        else:
            self._keep(0)

    def _go_on(self) -> None:
        try:
            kept: dict[str, Any] = json.loads(self._plan.read_text(encoding="utf-8"))
            self.done = int(kept.pop("done"))
        except (ValueError, KeyError) as error:
            raise PlanError(f"{self._plan} cannot be read. Remove {self._folder}.") from error
        differing = [name for name in self._words if kept.get(name) != self._words[name]]
        if differing:
            told = ", ".join(
                f"{name} was {kept.get(name)!r} and is {self._words[name]!r}" for name in differing
            )
            raise PlanError(
                f"{self._folder} is of another conversion: {told}. Run that one again, or remove "
                "the folder."
            )

    def write(
        self, target: Target, name: str, count: int, blocks: Iterator[tuple[int, list[Element]]]
    ) -> None:
        """Write one shard: all of it, or nothing that `tidy` does not remove."""
        self._part.mkdir()
        target.write(self._part, name, count, blocks)
        for path in sorted(self._part.iterdir()):
            os.replace(path, self._folder / path.name)
        self._part.rmdir()
        self._keep(self.done + 1)
        self.done += 1

    def _keep(self, done: int) -> None:
        written = self._folder / ".plan.json"
        text = json.dumps({**self._words, "done": done}, indent=2)
        written.write_text(text, encoding="utf-8")
        os.replace(written, self._plan)

    def tidy(self) -> None:
        """Remove what going on does not need: the shard that is half written."""
        shutil.rmtree(self._part if self.done else self._folder, ignore_errors=True)

    def end(self) -> None:
        """Remove what only going on needs."""
        self._plan.unlink()

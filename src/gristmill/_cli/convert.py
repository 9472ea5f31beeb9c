"""`gristmill convert`: write the records of a source to new files, shard by shard.

DST.partial/plan.json       a description of the conversion, and the files of complete shards
DST.partial/.part/          the shard that is being written
DST.partial/DST-00000-of-00003.parquet
DST/                        DST.partial, renamed once all shards are complete
"""

import argparse
import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO, TypeAlias, cast, final

from gristmill._addresses import strip_credentials
from gristmill._base.progress import progress
from gristmill._cli.records import estimate_bytes, read_records, sample_indices
from gristmill._cli.shard_files import ShardFiles, is_intact, seal_files, sync_folder
from gristmill._cli.sizes import format_size, parse_size
from gristmill._cli.source_flags import PATH_HELP, SourceOptions, add_source_flags, source_options
from gristmill._cli.targets import TARGETS, Target
from gristmill._data.sources.detect import files_of, open_source
from gristmill.errors import PlanError, SourceError
from gristmill.types import Element, JsonObject, RandomAccessDataSource

Source: TypeAlias = RandomAccessDataSource[Element]

_SAMPLE_SIZE = 256
_BLOCK_BYTES = 4 * 10**6
_MAX_BLOCK_RECORDS = 4096
_DEFAULT_FORMAT = "array_record"
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@final
@dataclass(frozen=True, kw_only=True)
class Conversion:
    """The arguments of `gristmill convert`.

    Attributes:
        source: The path of the files to read.
        target: The folder to create.
        to: The format to write; `None` to use the suffix of `target`, or ArrayRecord.
        shard_bytes: The approximate size of a shard.
        records_per_shard: The number of records in a shard, instead of `shard_bytes`.
        options: Arguments for `open_source`.
    """

    source: str
    target: str
    to: str | None = None
    shard_bytes: int = 256 * 10**6
    records_per_shard: int | None = None
    options: SourceOptions = field(default_factory=SourceOptions)

    def __post_init__(self) -> None:
        if self.records_per_shard is not None and self.records_per_shard < 1:
            raise PlanError(
                f"`--records-per-shard` must be at least 1, got {self.records_per_shard}."
            )

    @property
    def format(self) -> str:
        """The format to write."""
        suffix = Path(self.target).suffix.removeprefix(".")
        return self.to or (suffix if suffix in TARGETS else _DEFAULT_FORMAT)

    @property
    def folder(self) -> Path:
        """The folder of the complete output."""
        return Path(os.path.expanduser(self.target))

    @property
    def partial_folder(self) -> Path:
        """The folder of the output until it is complete."""
        return self.folder.with_name(f"{self.folder.name}.partial")

    @property
    def stem(self) -> str:
        """The start of the name of each shard."""
        return self.folder.name.removesuffix(f".{self.format}") or self.format


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command `convert` to its parser."""
    parser.description = (
        "Write the records of SRC as shards to the folder DST. If interrupted, run the same "
        "command again to resume. DST appears once it is complete. Existing files are never "
        "overwritten."
    )
    parser.add_argument("source", metavar="SRC", help=PATH_HELP)
    parser.add_argument("target", metavar="DST", help="a folder that does not exist yet")
    parser.add_argument(
        "--to",
        choices=sorted(TARGETS),
        help="the format to write (default: the suffix of DST, or array_record)",
    )
    parser.add_argument(
        "--shard-size",
        type=parse_size,
        default=parse_size("256MB"),
        metavar="SIZE",
        help="the approximate size of each shard (default: 256MB)",
    )
    parser.add_argument(
        "--records-per-shard",
        type=int,
        metavar="N",
        help="the number of records in each shard, instead of --shard-size",
    )
    add_source_flags(parser, path_metavar="SRC")
    parser.set_defaults(run=_run)


def _run(parsed: argparse.Namespace) -> None:
    conversion = Conversion(
        source=parsed.source,
        target=parsed.target,
        to=parsed.to,
        shard_bytes=parsed.shard_size,
        records_per_shard=parsed.records_per_shard,
        options=source_options(parsed),
    )
    convert(conversion, output=sys.stdout)


def convert(conversion: Conversion, *, output: TextIO) -> None:
    """Write all records of a source, and resume if an earlier attempt was interrupted.

    Args:
        conversion: What to read and what to write.
        output: The stream for messages.

    Raises:
        PlanError: If the output folder exists, or holds the shards of another conversion.
        SourceError: If the source has no records.
    """
    _check_absent(conversion.folder)
    source = open_source(conversion.source, **conversion.options)
    length = len(source)
    if not length:
        raise SourceError(f"{conversion.source} has no records, so there is nothing to write.")
    sample = read_records(source, sample_indices(length, _SAMPLE_SIZE))
    target = TARGETS[conversion.format](read_records(source, range(min(length, _SAMPLE_SIZE))))
    record_bytes = max(1, sum(map(estimate_bytes, sample)) // len(sample))
    per_shard = conversion.records_per_shard or max(1, conversion.shard_bytes // record_bytes)
    shards = [range(first, min(first + per_shard, length)) for first in range(0, length, per_shard)]
    started = time.monotonic()
    with _lock_folder(conversion.partial_folder) as folder:
        _check_absent(conversion.folder)  # another process may have completed it
        partial = _PartialOutput(folder, _describe(conversion, source, per_shard))
        if partial.num_done:
            output.write(f"Resuming: {partial.num_done} of {len(shards)} shards are complete.\n")
        with progress("Converting", total=length, unit="records") as advance:
            advance(sum(len(shards[number]) for number in partial.done if number < len(shards)))
            try:
                for number in range(len(shards)):
                    if number in partial.done:
                        continue
                    name = f"{conversion.stem}-{number:05d}-of-{len(shards):05d}"
                    blocks = _read_blocks(source, shards[number], record_bytes, advance)
                    partial.write_shard(target, number, name, len(shards[number]), blocks)
            except KeyboardInterrupt:
                output.write(
                    f"Interrupted: {partial.num_done} of {len(shards)} shards are complete. Run "
                    "the same command again to resume.\n"
                )
                raise
            except Exception as error:
                if isinstance(error, OSError) and error.errno in _NO_SPACE:
                    error.add_note(f"Free some space on the disk of {folder}.")
                if partial.num_done:
                    error.add_note(
                        f"{partial.num_done} of {len(shards)} shards are complete, in {folder}. "
                        "Fix the cause and run the same command again, or remove the folder."
                    )
                raise
            finally:
                partial.remove_incomplete()
        target.finish(folder)
        seal_files(path for path in folder.iterdir() if path.name not in partial.file_names)
        partial.remove_plan()
        os.rename(folder, conversion.folder)
        sync_folder(conversion.folder.parent)
    size = sum(path.stat().st_size for path in conversion.folder.iterdir())
    plural = "s" if len(shards) > 1 else ""
    output.write(
        f"{length:,} records in {len(shards)} shard{plural}, {format_size(size)}, "
        f"{time.monotonic() - started:.1f} s.\n"
        f"Read them with {target.reading_code(str(conversion.folder))}\n"
    )


def _read_blocks(
    source: Source, records: range, record_bytes: int, advance: Callable[[int], None]
) -> Iterator[tuple[int, list[Element]]]:
    """Yield blocks of records, each after the index of its first record."""
    step = max(1, min(_MAX_BLOCK_RECORDS, _BLOCK_BYTES // record_bytes))
    for first in range(records.start, records.stop, step):
        block = read_records(source, range(first, min(first + step, records.stop)))
        yield first, block
        advance(len(block))


def _describe(conversion: Conversion, source: Source, per_shard: int) -> JsonObject:
    """Return a description of a conversion that differs from those of other conversions."""
    refs = files_of(conversion.source)
    versions = hashlib.sha256(
        "\n".join(f"{ref.path} {ref.size} {ref.version}" for ref in refs).encode(
            errors="surrogateescape"
        )
    )
    return {
        "source": strip_credentials(conversion.source),
        "options": {name: str(value) for name, value in conversion.options.items()},
        "files": versions.hexdigest()[:32],
        "records": len(source),
        "format": conversion.format,
        "records_per_shard": per_shard,
    }


_LABELS = {
    "source": "SRC",
    "options": "the options",
    "records": "the number of records",
    "format": "the format",
    "records_per_shard": "the number of records per shard",
}


def _describe_difference(name: str, saved: object, now: object) -> str:
    if name == "files":  # a hash
        return "the files of SRC have changed"
    return f"{_LABELS[name]} was {saved!r} and is {now!r}"


def _check_absent(folder: Path) -> None:
    if folder.exists() or folder.is_symlink():
        raise PlanError(
            f"{folder} already exists, and nothing is overwritten. Remove it, or choose another "
            "DST."
        )


@contextlib.contextmanager
def _lock_folder(folder: Path) -> Generator[Path]:
    """Create a folder and keep other processes from writing to it while the block runs."""
    descriptor = _open_locked(folder)
    try:
        yield folder
    except BaseException:
        with contextlib.suppress(OSError):
            os.rmdir(folder)  # only succeeds if it is empty
        raise
    finally:
        os.close(descriptor)


def _open_locked(folder: Path) -> int:
    """Create a folder if it does not exist, lock it, and return its descriptor."""
    while True:
        with contextlib.suppress(FileExistsError):
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir()
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue  # another process has just completed or removed it
        except OSError as error:
            if error.errno not in (errno.ELOOP, errno.ENOTDIR):
                raise
            raise PlanError(
                f"{folder} is a link or a file, but the shards are written to a folder of this "
                "name first. Remove it, or choose another DST."
            ) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            locked = os.fstat(descriptor)
            if locked.st_uid != os.geteuid():
                raise PlanError(
                    f"{folder} belongs to another user. Remove it, or choose another DST."
                )
            if os.path.samestat(locked, os.lstat(folder)):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            raise PlanError(f"Another process is writing to {folder}. Wait for it.") from None
        except FileNotFoundError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # renamed by another process before it was locked: try again


@final
class _PartialOutput:
    """The output folder of a conversion that is not complete yet."""

    def __init__(self, folder: Path, description: JsonObject) -> None:
        self._folder = folder
        self._plan_path = folder / "plan.json"
        self._shard_folder = folder / ".part"
        self._description = description
        self.done: dict[int, ShardFiles] = {}
        """The files of each complete shard, by its number."""
        if self._shard_folder.is_symlink():
            self._shard_folder.unlink()
        shutil.rmtree(self._shard_folder, ignore_errors=True)  # left by a killed process
        if self._plan_path.is_file() and not self._plan_path.is_symlink():
            self._load_plan()
        elif any(folder.iterdir()):
            raise PlanError(
                f"{folder} contains files that are not from a conversion. Remove it, or choose "
                "another DST."
            )
        else:
            self._save_plan(self.done)

    @property
    def num_done(self) -> int:
        """The number of complete shards."""
        return len(self.done)

    @property
    def file_names(self) -> set[str]:
        """The names of the files of all complete shards."""
        return {name for files in self.done.values() for name in files}

    def _load_plan(self) -> None:
        """Read which shards are complete; those whose files are missing or differ are not."""
        try:
            content: object = json.loads(self._plan_path.read_text(encoding="utf-8"))
            if not isinstance(content, dict):
                raise TypeError
            saved = cast(JsonObject, content)
            listed = {int(number): files for number, files in saved.pop("done").items()}
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise PlanError(f"{self._plan_path} cannot be read. Remove {self._folder}.") from error
        differences = [
            _describe_difference(name, saved.get(name), value)
            for name, value in self._description.items()
            if saved.get(name) != value
        ]
        if differences:
            raise PlanError(
                f"{self._folder} belongs to another conversion: {', '.join(differences)}. Run that "
                "one again, or remove the folder."
            )
        self.done = {
            number: files for number, files in listed.items() if is_intact(self._folder, files)
        }

    def write_shard(
        self,
        target: Target,
        number: int,
        name: str,
        count: int,
        blocks: Iterator[tuple[int, list[Element]]],
    ) -> None:
        """Write one shard. If that fails, `remove_incomplete` removes what was written of it."""
        self._shard_folder.mkdir()
        target.write(self._shard_folder, name, count, blocks)
        paths = sorted(self._shard_folder.iterdir())
        files = seal_files(paths)
        for path in paths:
            os.replace(path, self._folder / path.name)
        self._shard_folder.rmdir()
        sync_folder(self._folder)
        self._save_plan({**self.done, number: files})
        self.done[number] = files

    def _save_plan(self, done: Mapping[int, ShardFiles]) -> None:
        temporary = self._folder / ".plan.json"
        temporary.unlink(missing_ok=True)
        plan = json.dumps({**self._description, "done": done}, indent=2)
        # Only for this user: a query may contain what others must not see.
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(plan)
            file.flush()
            os.fsync(descriptor)
        os.replace(temporary, self._plan_path)

    def remove_incomplete(self) -> None:
        """Remove an incomplete shard, or the whole folder if no shard is complete."""
        shutil.rmtree(self._shard_folder if self.num_done else self._folder, ignore_errors=True)

    def remove_plan(self) -> None:
        """Remove the file that is only needed to resume."""
        self._plan_path.unlink()

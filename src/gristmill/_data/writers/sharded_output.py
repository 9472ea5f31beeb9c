"""Write records to a new folder, shard by shard, and resume if that was interrupted.

DST.partial/plan.json       a description of what is written, and the files of complete shards
DST.partial/.part/          the shard that is being written
DST.partial/DST-00000-of-00003.parquet
DST/                        DST.partial, renamed once all shards are complete
"""

import contextlib
import errno
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, cast, final

from gristmill._base.progress import progress
from gristmill._data.writers.records import estimate_bytes, sample_indices
from gristmill._data.writers.shard_files import ShardFiles, is_intact, seal_files, sync_folder
from gristmill._data.writers.targets import TARGETS, Target
from gristmill.errors import PlanError, SourceError
from gristmill.types import Element, JsonObject

ReadRecords: TypeAlias = Callable[[range], Sequence[Element]]
"""Returns the records at some indices. It may leave out absent ones."""

DEFAULT_SHARD_BYTES = 256 * 10**6
DEFAULT_FORMAT = "array_record"

_SAMPLE_SIZE = 256
_BLOCK_BYTES = 4 * 10**6
_MAX_BLOCK_RECORDS = 4096
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def format_of(path: str, given: str | None) -> str:
    """Return the format to write: the one that is given, that of the suffix, or the default.

    Raises:
        PlanError: The format cannot be written, or the suffix is that of another one.
    """
    if given is not None and given not in TARGETS:
        raise PlanError(f"`format` must be one of {', '.join(TARGETS)}, got {given!r}.")
    suffix = Path(path).suffix.removeprefix(".")
    if suffix in _OTHER_SUFFIXES:
        raise PlanError(
            f"{path} has the suffix of a format that is not written. Choose one of "
            f"{', '.join(TARGETS)} as the suffix, or a name without a suffix."
        )
    if suffix not in TARGETS:
        return given or DEFAULT_FORMAT
    if given not in (None, suffix):
        raise PlanError(
            f"{path} has the suffix of {suffix}, but the format to write is {given}. Choose the "
            f"suffix .{given}, or a name without a suffix."
        )
    return suffix


_OTHER_SUFFIXES = frozenset(
    (
        *("arrow", "bz2", "csv", "feather", "gz", "h5", "hdf5", "idx", "json", "jsonl", "mds"),
        *("ndjson", "npz", "sqlite", "tgz", "tsv", "txt", "xz", "zarr", "zip", "zst"),
    )
)
"""Suffixes of formats that are only read."""


@final
@dataclass(frozen=True, kw_only=True)
class Output:
    """What to write, and where.

    Attributes:
        path: The folder to create.
        format: The format to write.
        shard_bytes: The approximate size of a shard.
        records_per_shard: The number of records in a shard, instead of `shard_bytes`.
    """

    path: str
    format: str
    shard_bytes: int = DEFAULT_SHARD_BYTES
    records_per_shard: int | None = None

    @property
    def folder(self) -> Path:
        """The folder of the complete output."""
        return Path(os.path.expanduser(self.path))

    @property
    def partial_folder(self) -> Path:
        """The folder of the output until it is complete."""
        return self.folder.with_name(f"{self.folder.name}.partial")

    @property
    def stem(self) -> str:
        """The start of the name of each shard."""
        return self.folder.name.removesuffix(f".{self.format}") or self.format


@final
@dataclass(frozen=True, kw_only=True)
class Written:
    """What was written."""

    num_records: int
    num_shards: int
    num_bytes: int
    target: Target


def write_shards(
    output: Output,
    read: ReadRecords,
    length: int,
    description: Mapping[str, object],
    *,
    report: Callable[[str], object],
    class_names: Sequence[str] | None = None,
) -> Written:
    """Write all records, and resume if an earlier attempt was interrupted.

    Args:
        output: What to write, and where.
        read: Reads records.
        length: The number of indices.
        description: Differs from those of other records. A partial output is only continued with
            the same description.
        report: Called with messages about the progress.
        class_names: The names of the classes that labels are numbers of, if there are any.

    Raises:
        PlanError: The folder exists, or holds the shards of other records.
        SourceError: There are no records.
    """
    _check_absent(output.folder)
    sample = read(sample_indices(length, _SAMPLE_SIZE))
    first = read(range(min(length, _SAMPLE_SIZE))) or sample
    if not first:
        raise SourceError("There are no records, so there is nothing to write.")
    target = TARGETS[output.format](first)
    record_bytes = max(1, sum(map(estimate_bytes, sample or first)) // len(sample or first))
    per_shard = output.records_per_shard or max(1, output.shard_bytes // record_bytes)
    shards = [range(at, min(at + per_shard, length)) for at in range(0, length, per_shard)]
    described = {**description, "format": output.format, "records_per_shard": per_shard}
    with _lock_folder(output.partial_folder) as folder:
        _check_absent(output.folder)  # another process may have completed it
        partial = PartialOutput(folder, described)
        if partial.num_done:
            report(f"Resuming: {partial.num_done} of {len(shards)} shards are complete.\n")
        with progress("Writing", total=length, unit="records") as advance:
            advance(sum(len(shards[number]) for number in partial.done if number < len(shards)))
            try:
                for number in range(len(shards)):
                    if number in partial.done:
                        continue
                    name = f"{output.stem}-{number:05d}-of-{len(shards):05d}"
                    blocks = _read_blocks(read, shards[number], record_bytes, advance)
                    partial.write_shard(target, number, name, len(shards[number]), blocks)
            except KeyboardInterrupt:
                report(
                    f"Interrupted: {partial.num_done} of {len(shards)} shards are complete. Run "
                    "the same command again to resume.\n"
                )
                raise
            except Exception as error:
                _add_notes(error, partial, folder, len(shards))
                raise
            finally:
                partial.remove_incomplete()
        target.finish(folder)
        _write_class_names(folder, class_names)
        seal_files(path for path in folder.iterdir() if path.name not in partial.file_names)
        partial.remove_plan()
        os.rename(folder, output.folder)
        sync_folder(output.folder.parent)
    size = sum(path.stat().st_size for path in output.folder.iterdir())
    return Written(num_records=length, num_shards=len(shards), num_bytes=size, target=target)


def _add_notes(error: Exception, partial: "PartialOutput", folder: Path, num_shards: int) -> None:
    if isinstance(error, OSError) and error.errno in _NO_SPACE:
        error.add_note(f"Free some space on the disk of {folder}.")
    if partial.num_done:
        error.add_note(
            f"{partial.num_done} of {num_shards} shards are complete, in {folder}. Fix the cause "
            "and run the same command again, or remove the folder."
        )


def _write_class_names(folder: Path, names: Sequence[str] | None) -> None:
    """Write the names of the classes, in the order of the labels."""
    if names is None:
        return
    path = folder / "classes.json"
    path.unlink(missing_ok=True)  # of an earlier attempt; a link must not be followed
    with open(path, "x", encoding="utf-8") as file:
        json.dump(list(names), file, indent=2)


def _read_blocks(
    read: ReadRecords, records: range, record_bytes: int, advance: Callable[[int], None]
) -> Iterator[tuple[int, Sequence[Element]]]:
    """Yield blocks of records, each after the index of its first record."""
    step = max(1, min(_MAX_BLOCK_RECORDS, _BLOCK_BYTES // record_bytes))
    for first in range(records.start, records.stop, step):
        indices = range(first, min(first + step, records.stop))
        yield first, read(indices)
        advance(len(indices))


_LABELS = {
    "source": "the source",
    "options": "the options",
    "records": "the number of records",
    "format": "the format",
    "records_per_shard": "the number of records per shard",
}


def _describe_difference(name: str, saved: object, now: object) -> str:
    if name == "files":  # a hash
        return "the files of SRC have changed"
    if name == "plan":  # a hash
        return "the dataset has changed"
    return f"{_LABELS[name]} was {saved!r} and is {now!r}"


def _check_absent(folder: Path) -> None:
    if folder.exists() or folder.is_symlink():
        raise PlanError(
            f"{folder} already exists, and nothing is overwritten. Remove it, or choose another "
            "folder."
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
                "name first. Remove it, or choose another folder."
            ) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            locked = os.fstat(descriptor)
            if locked.st_uid != os.geteuid():
                raise PlanError(
                    f"{folder} belongs to another user. Remove it, or choose another folder."
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
class PartialOutput:
    """The output folder until it is complete."""

    def __init__(self, folder: Path, description: Mapping[str, object]) -> None:
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
                "another folder."
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
        blocks: Iterator[tuple[int, Sequence[Element]]],
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

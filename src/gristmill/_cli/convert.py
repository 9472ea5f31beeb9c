"""`gristmill convert`: write the records of a source to new files, shard by shard."""

import argparse
import hashlib
import sys
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TextIO, TypeAlias, final

from gristmill._addresses import strip_credentials
from gristmill._base.format_size import format_size
from gristmill._cli.class_names import SupportsClasses
from gristmill._cli.sizes import parse_size
from gristmill._cli.source_flags import PATH_HELP, SourceOptions, add_source_flags, source_options
from gristmill._data.sources.detect import files_of, open_source
from gristmill._data.writers.narrow_floats import narrow_floats
from gristmill._data.writers.records import read_records
from gristmill._data.writers.sharded_output import (
    DEFAULT_SHARD_BYTES,
    Output,
    format_of,
    write_shards,
)
from gristmill._data.writers.targets import TARGETS
from gristmill.errors import PlanError, SourceError
from gristmill.types import Element, JsonObject, RandomAccessDataSource

Source: TypeAlias = RandomAccessDataSource[Element]


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
        float32: Whether to round 64-bit floats to 32 bits.
        options: Arguments for `open_source`.
    """

    source: str
    target: str
    to: str | None = None
    shard_bytes: int = DEFAULT_SHARD_BYTES
    records_per_shard: int | None = None
    float32: bool = False
    options: SourceOptions = field(default_factory=SourceOptions)

    def __post_init__(self) -> None:
        if self.records_per_shard is not None and self.records_per_shard < 1:
            raise PlanError(
                f"`--records-per-shard` must be at least 1, got {self.records_per_shard}."
            )

    @property
    def output(self) -> Output:
        """What to write, and where."""
        return Output(
            path=self.target,
            format=format_of(self.target, self.to),
            shard_bytes=self.shard_bytes,
            records_per_shard=self.records_per_shard,
        )


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
    parser.add_argument(
        "--float32", action="store_true", help="round 64-bit floats to 32 bits (default: keep them)"
    )
    add_source_flags(parser, path_metavar="SRC")
    flags = {f"format={name!r}": f"--to {name}" for name in TARGETS}
    flags["np.float32(...)"] = "--float32"
    parser.set_defaults(run=_run, flags={**parser.get_default("flags"), **flags})


def _run(parsed: argparse.Namespace) -> None:
    conversion = Conversion(
        source=parsed.source,
        target=parsed.target,
        to=parsed.to,
        shard_bytes=parsed.shard_size,
        records_per_shard=parsed.records_per_shard,
        float32=parsed.float32,
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
    written_to = conversion.output
    source = open_source(conversion.source, **conversion.options)
    length = len(source)
    if not length:
        raise SourceError(f"{conversion.source} has no records, so there is nothing to write.")
    started = time.monotonic()
    names = source.classes if isinstance(source, SupportsClasses) else None
    read = partial(read_records, source)
    written = write_shards(
        written_to,
        narrow_floats(read) if conversion.float32 else read,
        length,
        _describe(conversion, source),
        report=output.write,
        class_names=names,
    )
    plural = "s" if written.num_shards > 1 else ""
    output.write(
        f"{length:,} records in {written.num_shards} shard{plural}, "
        f"{format_size(written.num_bytes)}, {time.monotonic() - started:.1f} s.\n"
        f"Read them with {written.target.reading_code(str(written_to.folder))}\n"
    )


def _describe(conversion: Conversion, source: Source) -> JsonObject:
    """Return a description of a conversion that differs from those of other conversions."""
    refs = files_of(conversion.source)
    versions = hashlib.sha256(
        "\n".join(f"{ref.path} {ref.size} {ref.version}" for ref in refs).encode(
            errors="surrogateescape"
        )
    )
    return {
        "source": strip_credentials(conversion.source),
        "options": {
            **{name: str(value) for name, value in conversion.options.items()},
            **({"float32": "True"} if conversion.float32 else {}),
        },
        "files": versions.hexdigest()[:32],
        "records": len(source),
    }

"""Describe the files in a folder in a few lines."""

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from gristmill._base.format_size import format_size
from gristmill._io.file import FileRef

_MAX_LINES = 20


def list_contents(files: Mapping[str, FileRef]) -> Iterator[str]:
    """Yield a line for each file, or for all files in a subfolder that have the same suffix.

    Args:
        files: The files by their paths in the folder.
    """
    groups: dict[tuple[str, str], list[str]] = {}
    for name in sorted(files):
        path = PurePosixPath(name)
        groups.setdefault((str(path.parent), path.suffix), []).append(name)
    lines = [_describe(names, sum(files[name].size for name in names)) for names in groups.values()]
    width = max((len(name) for name, _ in lines), default=0)
    for name, size in lines[:_MAX_LINES]:
        yield f"{name:{width}}  {size}"
    if len(lines) > _MAX_LINES:
        yield f"... and {len(lines) - _MAX_LINES:,} other kinds of files"


def _describe(names: list[str], num_bytes: int) -> tuple[str, str]:
    if len(names) == 1:
        return names[0], format_size(num_bytes)
    path = PurePosixPath(names[0])
    return str(path.with_name(f"*{path.suffix}")), f"{len(names):,} files, {format_size(num_bytes)}"

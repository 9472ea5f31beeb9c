"""WHERE bytes are: files on this machine, and in any store that fsspec reads."""

from gristmill.files._cache import cache_folder
from gristmill.files._file import File, FileRef, tell_files
from gristmill.files._index import load_index
from gristmill.files._opened import LastUsed, OpenFiles
from gristmill.files._paths import Paths, find_file, find_files, find_folder
from gristmill.files._raw import as_stream

__all__ = [
    "File",
    "FileRef",
    "LastUsed",
    "OpenFiles",
    "Paths",
    "as_stream",
    "cache_folder",
    "find_file",
    "find_files",
    "find_folder",
    "load_index",
    "tell_files",
]

"""Make workers and tests meet: through files, as they share nothing else.

Workers import this module, so it imports nothing that takes time.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import final

_LOOK_AGAIN_S = 0.002


@final
@dataclass(frozen=True)
class Gate:
    """A place where workers wait until a test lets them pass."""

    folder: Path

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)

    def wait(self, record: int = 0) -> None:
        """State that this process is here, and wait until the gate is open."""
        (self.folder / f"{record}-{os.getpid()}").touch()
        while not (self.folder / "open").exists():
            time.sleep(_LOOK_AGAIN_S)

    def open(self) -> None:
        """Let everybody pass, from now on."""
        (self.folder / "open").touch()

    @property
    def arrived(self) -> dict[int, int]:
        """Which process waits, or has waited, with which record."""
        names = [path.name for path in self.folder.iterdir() if path.name != "open"]
        return {int(pid): int(record) for record, pid in (name.split("-") for name in names)}


@final
@dataclass(frozen=True)
class Notes:
    """Lines that workers write and a test reads; a line is written as a whole."""

    path: Path

    def write(self, line: object) -> None:
        """Add a line."""
        with self.path.open("a") as file:
            file.write(f"{line}\n")

    def read(self) -> list[str]:
        """Return the lines so far."""
        return self.path.read_text().splitlines() if self.path.exists() else []

"""Run a Python program, speak with it, and look at what is left of it."""

import contextlib
import os
import select
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import IO, Any, NamedTuple, final

from tests.faults.processes import descendants_of, until, workers_of
from tests.time_limits import PATIENCE_S

NOT_THEIRS = "PYTEST", "PYTHONUNBUFFERED", "PYTHONWARNINGS", "PYTHONDEV", "PYTHONFAULT", "COV_"
"""How variables begin that would change what the program does."""


class Done(NamedTuple):
    """What a program printed, and how it ended."""

    out: str
    err: str
    code: int


@final
class Script:
    """A running program, in a process group of its own, as a shell would start it."""

    def __init__(
        self,
        text: str,
        folder: Path,
        *options: str,
        name: str = "script.py",
        prefix: tuple[str, ...] = (),
        env: dict[str, str] | None = None,
    ) -> None:
        path = folder / name
        path.write_text(textwrap.dedent(text))
        self.path = path
        self._errors: IO[str] = open(folder / f"{name}.err", "w+")  # noqa: SIM115 - kept open
        self._process = subprocess.Popen(
            [*prefix, sys.executable, *options, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,  # a file: nothing that a worker holds open keeps us waiting
            cwd=folder,
            env=clean_environment() | (env or {}),
            bufsize=0,
            process_group=0,
        )
        assert self._process.stdout is not None
        self._out: IO[bytes] = self._process.stdout
        self.family: set[int] = set()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def err(self) -> str:
        """What it has printed on standard error so far."""
        self._errors.flush()
        return Path(self._errors.name).read_text()

    def read_line(self) -> str:
        """Wait for the next line that it prints."""
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([self._out], [], [], PATIENCE_S)
            assert ready, f"it prints nothing; so far {line!r}, {self.err}"
            letter = self._out.read(1)  # without a buffer: there is nothing in it to be missed
            assert letter, f"it ended; so far {line!r}, {self.err}"
            line += letter
        return line.decode().rstrip("\n")

    def wait_for(self, line: str) -> None:
        """Wait until it prints a line."""
        found = self.read_line()
        assert found == line, f"{found!r} instead of {line!r}; {self.err}"
        self.look()

    def tell(self, line: str) -> None:
        """Write a line to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())

    def look(self) -> set[int]:
        """Note which processes it has started, and return them."""
        found = set(descendants_of(self.pid))
        self.family |= found
        return found

    @property
    def workers(self) -> set[int]:
        """The workers that it has running."""
        return set(workers_of(self.pid))

    def send(self, number: int) -> None:
        """Send a signal to it alone."""
        self._process.send_signal(number)

    def send_to_group(self, number: int) -> None:
        """Send a signal to it and whoever is in its process group, as a terminal does."""
        os.killpg(self.pid, number)

    def kill(self) -> None:
        """Kill it, and wait until it is dead."""
        self.send(signal.SIGKILL)
        self._process.wait(PATIENCE_S)

    def finish(self) -> Done:
        """Wait until it ends by itself; what it printed counts to the last byte."""
        out, _ = self._process.communicate(timeout=PATIENCE_S)
        return Done(out.decode(), self.err, self._process.returncode)

    def wait(self) -> int:
        """Wait until it ends, whoever still holds its standard output."""
        until(lambda: self._process.poll() is not None, "the program ends")
        return self._process.returncode

    def close(self) -> None:
        """Let go of it."""
        with contextlib.suppress(OSError):
            self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


def clean_environment() -> dict[str, str]:
    """Return the environment without what a test run puts into it."""
    return {name: value for name, value in os.environ.items() if not name.startswith(NOT_THEIRS)}


def run_command(*command: str, stdin: str | None = None, **options: Any) -> Done:
    """Run a command to its end."""
    options.setdefault("env", clean_environment())
    done = subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=PATIENCE_S, **options
    )
    return Done(done.stdout, done.stderr, done.returncode)

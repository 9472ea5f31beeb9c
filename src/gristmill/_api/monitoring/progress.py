"""`progress`: a progress bar with the rate, the share of waiting, and the time left."""

import html
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sized
from contextlib import closing
from typing import Any, TypeVar, cast, final

from gristmill._api.dataset.map_dataset import MapDataset
from gristmill._api.plan_access import plan_of
from gristmill._base.checks import as_int
from gristmill._base.extras import load_extra
from gristmill._printable import printable

T = TypeVar("T")

REFRESH_INTERVAL_S = 0.1

_NARROW = 72
"""Terminals with fewer columns do not show the elapsed time beside the time left."""


def progress(
    data: Iterable[T], *, total: int | None = None, label: str = "", console: Any = None
) -> Iterator[T]:
    """Yield the elements of a loader, a dataset or a feed, and show a progress bar.

    The bar shows the number of elements per second, the share of the time that your code waited for
    data, and the time that is left if the number of elements is known. It works in terminals and
    notebooks, and needs rich: `pip install "gristmill[progress]"`. Elements and their order do not
    change.

    >>> from gristmill import load
    >>> from rich.console import Console
    >>> import io
    >>> silent = Console(file=io.StringIO())
    >>> loader = load(range(6), num_epochs=1, batch_size=4)
    >>> sum(len(batch) for batch in progress(loader, console=silent))
    6

    Args:
        data: The loader, the dataset, the feed, or any iterable.
        total: The number of elements. By default `len(data)`, if it is known.
        label: The text in front of the bar.
        console: A `rich.console.Console` to show the bar on. By default standard output.

    Raises:
        MissingExtraError: rich is not installed.
    """
    rich: Any = load_extra("rich.progress", extra="progress", wanted_by="`progress`")
    count = _length(data) if total is None else as_int("total", total)
    # A notebook without ipywidgets cannot show the bar of rich, so it gets one of its own.
    is_notebook = console is None and rich.get_console().is_jupyter
    kind = _NotebookBar if is_notebook else _TerminalBar
    return _show(data, lambda: kind(rich, count, printable(label), console))


class _Bar(ABC):
    """A bar that is visible until it is closed."""

    @abstractmethod
    def __init__(self, rich: Any, total: int | None, label: str, console: Any) -> None: ...

    @abstractmethod
    def update(self, done: int, elapsed_s: float, waited_s: float, *, is_end: bool = False) -> None:
        """Show how many elements there were, in how much time, and whether these were all."""

    @abstractmethod
    def close(self) -> None:
        """Leave the bar as it is."""


@final
class _TerminalBar(_Bar):
    """A bar of rich."""

    def __init__(self, rich: Any, total: int | None, label: str, console: Any) -> None:
        is_narrow = (console or rich.get_console()).width < _NARROW
        self._bar = rich.Progress(
            *([rich.TextColumn("{task.description}", markup=False)] if label else []),
            rich.BarColumn(),
            rich.MofNCompleteColumn(),
            rich.TextColumn("{task.fields[rate]:,.1f}/s"),
            rich.TextColumn("waiting {task.fields[waiting]:.0%}"),
            *([] if is_narrow and total is not None else [rich.TimeElapsedColumn()]),
            *([] if total is None else [rich.TextColumn("left"), rich.TimeRemainingColumn()]),
            console=console,
        )
        self._total = total
        self._bar.start()
        self._task = self._bar.add_task(label, total=total, rate=0.0, waiting=0.0)

    def update(self, done: int, elapsed_s: float, waited_s: float, *, is_end: bool = False) -> None:
        rate, waiting = done / elapsed_s, waited_s / elapsed_s
        known = {"total": done} if is_end and self._total is None else {}
        self._bar.update(self._task, completed=done, rate=rate, waiting=waiting, **known)

    def close(self) -> None:
        self._bar.stop()


@final
class _NotebookBar(_Bar):
    """A bar of HTML in the output of a cell."""

    def __init__(self, rich: Any, total: int | None, label: str, console: Any) -> None:
        self._display: Any = load_extra("IPython.display", extra="progress", wanted_by="A notebook")
        self._total, self._label = total, label
        self._handle: Any = self._display.display(self._html(0, 1.0, 0.0), display_id=True)

    def update(self, done: int, elapsed_s: float, waited_s: float, *, is_end: bool = False) -> None:
        if is_end and self._total is None:
            self._total = done
        self._handle.update(self._html(done, elapsed_s, waited_s))

    def close(self) -> None:
        pass

    def _html(self, done: int, elapsed_s: float, waited_s: float) -> Any:
        bar = progress_html(self._label, done, self._total, elapsed_s, waited_s)
        return self._display.HTML(bar)


def progress_html(
    label: str, done: int, total: int | None, elapsed_s: float, waited_s: float
) -> str:
    """Return a progress bar with the same numbers as that of a terminal, as HTML.

    >>> progress_html("", 4, 8, 2.0, 1.0)
    '<div><progress value="4" max="8"></progress> 4/8 2.0/s waiting 50% 2 s left 2 s</div>'
    """
    rate = done / elapsed_s
    size = f'value="{done}" max="{total}"' if total else ""
    left = f" left {(total - done) / rate:.0f} s" if total and done else ""
    name = f"{html.escape(label)} " if label else ""
    return (
        f"<div>{name}<progress {size}></progress> {done}/{'?' if total is None else total} "
        f"{rate:,.1f}/s waiting {waited_s / elapsed_s:.0%} {elapsed_s:.0f} s{left}</div>"
    )


def _show(data: Iterable[T], open_bar: Any) -> Iterator[T]:
    bar: _Bar = open_bar()
    with closing(bar):
        started_at_s = shown_at_s = time.perf_counter()
        waited_s = 0.0
        done = 0
        elements = iter(data)
        while True:
            asked_at_s = time.perf_counter()
            try:
                element = next(elements)
            except StopIteration:
                break
            now_s = time.perf_counter()
            waited_s += now_s - asked_at_s
            done += 1
            if now_s - shown_at_s > REFRESH_INTERVAL_S:
                shown_at_s = now_s
                bar.update(done, now_s - started_at_s, waited_s)
            yield element
        bar.update(done, max(time.perf_counter() - started_at_s, 1e-9), waited_s, is_end=True)


def _length(data: object) -> int | None:
    """Return the number of elements, if it is known."""
    if isinstance(data, MapDataset) and not plan_of(cast("MapDataset[Any]", data)).is_dense:
        return None  # `len` counts the positions that a filter leaves empty, too
    try:
        return len(cast("Sized", data))
    except TypeError:
        return None

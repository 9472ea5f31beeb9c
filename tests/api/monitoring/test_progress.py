"""A progress bar over any iterable, which changes no element."""

import io
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import gristmill as gm
from gristmill._api.monitoring.progress import progress_html
from tests.faults.test_notebooks import run_notebook, text_of


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=120, color_system=None)


def shown(console: Console) -> str:
    file: Any = console.file
    return file.getvalue()


def test_the_elements_are_those_of_the_loader(console: Console):
    loader = gm.load(range(10), num_epochs=1, batch_size=4)

    batches = list(gm.progress(loader, console=console))

    assert np.concatenate(batches).tolist() == list(range(10))
    assert "3/3" in shown(console)
    assert "waiting" in shown(console)


@pytest.mark.parametrize("width", [60, 71, 72, 80])
def test_the_numbers_are_not_cut_off_in_narrow_terminals(width: int):
    narrow = Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)
    list(gm.progress(range(50), label="training", console=narrow))

    assert "50/50" in shown(narrow)
    assert "…" not in shown(narrow)


def test_without_a_length_the_elements_are_counted(console: Console):
    dataset = gm.MapDataset.range(10).to_iter_dataset().filter(lambda x: x % 2 == 0)

    assert list(gm.progress(dataset, console=console)) == [0, 2, 4, 6, 8]
    assert "0/?" in shown(console)
    assert "5/5" in shown(console)
    assert "left" not in shown(console)


def test_positions_that_a_filter_leaves_empty_are_not_part_of_the_total(console: Console):
    dataset = gm.MapDataset.range(10).filter(lambda x: x % 2 == 0)

    assert list(gm.progress(dataset, console=console)) == [0, 2, 4, 6, 8]
    assert "/10" not in shown(console)


def test_the_total_can_be_passed(console: Console):
    assert len(list(gm.progress(iter(range(4)), total=8, console=console))) == 4
    assert "4/8" in shown(console)


def test_a_loop_can_stop_early_and_the_iterator_continues(console: Console):
    numbers = iter(range(10))
    bar = gm.progress(numbers, console=console)

    assert list(itertools.islice(bar, 3)) == [0, 1, 2]
    del bar
    assert next(numbers) == 3


def test_errors_of_the_pipeline_are_raised(console: Console):
    dataset = gm.MapDataset.range(3).map(lambda x: 1 // (1 - x))

    with pytest.raises(ZeroDivisionError):
        list(gm.progress(dataset, console=console))


def test_markup_and_control_characters_in_the_label_are_text(console: Console):
    list(gm.progress(range(2), label="[red]\x1b]0;title\x07", console=console))

    assert "[red]\\x1b]0;title\\x07" in shown(console)
    assert "\x07" not in shown(console)


def test_the_total_must_be_a_count():
    with pytest.raises(gm.errors.PlanError, match="`total` must be at least 0, got -1"):
        gm.progress(range(3), total=-1)


def test_a_notebook_shows_a_bar_without_ipywidgets(tmp_path: Path):
    (cell,) = run_notebook(
        tmp_path,
        "import gristmill as gm\n"
        "loader = gm.load(range(10), num_epochs=1, batch_size=4)\n"
        "print(sum(len(batch) for batch in gm.progress(loader, label='<b>')))",
    )

    shown = [output["data"]["text/html"] for output in cell if "data" in output]
    assert len(shown) == 1  # one bar, which is updated
    assert "&lt;b&gt;" in shown[0]
    assert '<progress value="3" max="3">' in shown[0]
    assert text_of(cell) == "10\n"  # no warning


def test_the_bar_of_an_unknown_length_has_no_end():
    assert progress_html("", 5, None, 2.0, 0.5) == (
        "<div><progress ></progress> 5/? 2.5/s waiting 25% 2 s</div>"
    )

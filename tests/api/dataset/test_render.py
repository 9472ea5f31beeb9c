"""A printed dataset shows its steps in the order of the data, and where they were written."""

from pathlib import Path
from typing import Any

import numpy as np

from gristmill import ArraySource
from tests.compat.both_sides import double, ours, passes

HERE = Path(__file__).name


def columns(dataset: Any) -> list[list[str]]:
    return [[cell for cell in line.split("  ") if cell] for line in str(dataset).splitlines()]


def test_each_step_has_a_line_with_where_it_was_written_its_length_and_its_element():
    source = ArraySource(np.zeros((20, 3), np.float32))
    ds = ours.MapDataset.source(source).shuffle(seed=1).batch(4, drop_remainder=True)
    ds = ds.map(double).to_iter_dataset()
    lines = columns(ds)
    assert [line[0] for line in lines] == [
        source.__repr__(),
        "Shuffle(seed=1)",
        "Batch(4, drop_remainder=True)",
        "Map double",
        "ToIter(num_threads=16)",
    ]
    assert all(line[1].strip().startswith(f"{HERE}:") for line in lines)
    assert [line[2].strip() for line in lines] == ["20", "20", "5", "5", "5"]
    assert [line[3].strip() for line in lines[:3]] == ["float32[3]", "float32[3]", "float32[4, 3]"]
    assert len(lines[3]) == 3  # what `double` yields is not known


def test_what_is_combined_branches():
    one, other = ours.MapDataset.range(3), ours.MapDataset.range(5).seed(3)
    text = str(ours.MapDataset.mix([one, ours.MapDataset.concatenate([one, other])]))
    assert [line.partition("  ")[0] for line in text.splitlines()] == [
        "┌ RangeDataSource(start=0, stop=3, step=1)",
        "├ ┌ RangeDataSource(start=0, stop=3, step=1)",
        "│ ├ RangeDataSource(start=0, stop=5, step=1)",
        "│ │ Seed(3)",
        "│ Concatenate(2 datasets)",
        "Mix(weights=[1, 1])",
    ]


def test_a_length_that_is_only_a_bound_or_endless_is_not_claimed():
    ds = ours.MapDataset.range(9).filter(passes(2))
    assert "<= 9" in str(ds)
    assert "<= 9" in str(ds.to_iter_dataset()).splitlines()[-1]
    endless = columns(ours.MapDataset.range(9).repeat())[-1]
    assert [cell.strip() for cell in endless][0::2] == ["Repeat()", "int64[]"]


def test_a_dataset_of_the_users_own_is_shown_whatever_ails_it():
    class Broken(ours.MapDataset):
        def __len__(self) -> int:
            raise RuntimeError("no length")

        def __getitem__(self, index: Any) -> Any:
            raise RuntimeError("no element")

        @property
        def _element_spec(self) -> Any:
            raise RuntimeError("no spec")

    assert str(Broken(ours.MapDataset.range(3))).splitlines()[1].startswith("Broken")


def test_a_notebook_shows_a_table():
    html = ours.MapDataset.range(3).map(lambda x: x)._repr_html_()
    assert "<table>" in html
    assert html.count("<tr>") == 3
    assert "Map &lt;lambda&gt;" in html


def test_printing_reads_nothing():
    class Source:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> int:
            raise AssertionError

    assert "Source" in str(ours.MapDataset.source(Source()).map(double).to_iter_dataset().batch(2))


def test_the_repr_is_one_line_with_the_steps():
    dataset = ours.MapDataset.range(5).map(double).batch(2)

    assert repr(dataset) == (
        "<MapDataset: RangeDataSource(start=0, stop=5, step=1) -> Map double "
        "-> Batch(2), 3 elements>"
    )
    assert repr(dataset.to_iter_dataset().filter(passes(2))).startswith("<IterDataset: Range")


def test_the_repr_of_a_long_pipeline_leaves_out_steps():
    dataset = ours.MapDataset.range(5)
    for _ in range(20):
        dataset = dataset.map(double)

    assert repr(dataset).count("->") == 8
    assert "step=1) -> ... -> Map double" in repr(dataset)


def test_the_repr_of_a_users_own_dataset_names_its_class_and_never_raises():
    class Broken(ours.MapDataset):
        def __len__(self) -> int:
            raise OSError

        def __getitem__(self, index: Any) -> Any:
            raise OSError

    dataset = Broken()
    assert repr(dataset) == "<Broken: Broken>"


def test_the_repr_of_a_dataset_does_not_enter_states():
    dataset = ours.MapDataset.source(ours.MapDataset.range(3).map(double))

    assert "->" not in str(iter(dataset).get_state())
    assert iter(dataset).get_state()["source"] == "MapDataset(<3 records>)"


def test_a_line_shows_what_is_combined_as_branches():
    one = ours.MapDataset.source(range(3))
    assert repr(ours.MapDataset.mix([one.map(double), one]).map(double)) == (
        "<MapDataset: [range(0, 3) -> Map double | range(0, 3)] -> Mix(weights=[1, 1]) "
        "-> Map double, 6 elements>"
    )
    nested = ours.MapDataset.concatenate([one, ours.MapDataset.concatenate([one, one])])
    assert "[range(0, 3) | [range(0, 3) | range(0, 3)] -> Conc" in repr(nested)


def test_a_line_shows_some_of_many_inputs():
    shown = repr(ours.MapDataset.mix([ours.MapDataset.source(range(3))] * 40))
    assert shown.count("range(0, 3)") == 4
    assert " | 36 more] -> Mix(" in shown


def test_a_notebook_shows_a_dataset_in_the_style_of_the_other_panels():
    shown = ours.MapDataset.range(3)._repr_html_()
    assert shown.startswith('<div class="run"><style>')
    assert "prefers-color-scheme: dark" in shown

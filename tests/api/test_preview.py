"""Previews: the first elements after all steps, as text, in terminals and as pages."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gristmill as gm
from gristmill import experimental

IMAGES = [{"image": np.full((9, 12, 3), n, np.uint8), "label": n % 2} for n in range(10)]
DOCUMENTS = [{"tokens": np.full(n, 96 + n)} for n in (3, 2, 1, 4)]


class Terminal(io.StringIO):
    """A terminal with colors."""

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return "utf-8"

    def isatty(self) -> bool:
        return True


def packed() -> gm.IterDataset[Any]:
    return experimental.FirstFitPackIterDataset(
        gm.MapDataset.source(DOCUMENTS).to_iter_dataset(),
        length_struct={"tokens": 4},
        num_packing_bins=2,
        shuffle_bins=False,
    )


def as_string(tokens: list[int]) -> str:
    return "".join(map(chr, tokens))


def double(element: Any) -> Any:
    return {**element, "label": element["label"] * 10}


def test_the_elements_are_those_after_all_steps():
    loader = gm.load(IMAGES, num_epochs=1, transformations=[double])

    assert str(loader.preview(2)).splitlines()[1:] == [
        "[0]",
        "  image: uint8[9, 12, 3], 0 to 0",
        "  label: 0",
        "[1]",
        "  image: uint8[9, 12, 3], 1 to 1",
        "  label: 10",
    ]


@pytest.mark.parametrize("arguments", [{}, {"batch_size": 4}, {"batch_size": 3, "worker_count": 1}])
def test_the_rows_of_batches_are_shown(arguments: dict[str, Any]):
    with gm.load(IMAGES, num_epochs=1, **arguments) as loader:
        preview = loader.preview(5)

        assert len(preview) == 5
        assert str(preview).count("image: uint8[9, 12, 3]") == 5
        assert loader.stats().num_elements == 0  # nothing is counted
        assert preview._repr_html_().count("<img ") == 5


def test_fewer_elements_than_requested():
    assert len(gm.load([1, 2], num_epochs=1).preview(9)) == 2
    assert len(gm.load(range(100), batch_size=7).preview(9)) == 9  # without an end


def test_images_are_shown_in_terminals_with_colors(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("COLORTERM", "truecolor")
    monkeypatch.delenv("NO_COLOR", raising=False)
    preview = gm.load(IMAGES, num_epochs=1).preview(1)
    terminal, file = Terminal(), io.StringIO()

    preview.show(terminal)
    preview.show(file)

    assert "▀" in terminal.getvalue()
    assert file.getvalue() == f"{preview}\n"


def test_show_writes_to_standard_output(capsys: pytest.CaptureFixture[str]):
    gm.load([1], num_epochs=1).preview(1).show()
    assert "[0]\n  record: 1\n" in capsys.readouterr().out


def test_tokens_are_decoded():
    loader = gm.load(DOCUMENTS, num_epochs=1)

    assert "tokens: 3 tokens: ccc\n" in str(loader.preview(decode=as_string))


def test_functions_by_name_decode_single_values():
    preview = gm.load(IMAGES, num_epochs=1).preview(2, decode={"label": ["cat", "dog"].__getitem__})

    assert "label: cat\n" in str(preview)
    assert "label: dog" in str(preview)
    assert "<dt>label</dt><dd>dog</dd>" in preview._repr_html_()


def test_an_error_of_decode_names_the_leaf():
    with pytest.raises(ZeroDivisionError) as raised:
        str(gm.load(DOCUMENTS, num_epochs=1).preview(decode=lambda _: 1 // 0))
    assert "In `decode`, for the leaf 'tokens'." in raised.value.__notes__


def test_packed_rows_are_segments_with_their_fill():
    preview = packed().preview(decode=as_string)

    assert str(preview).splitlines()[1:8] == [
        "[0]",
        "  tokens: 2 documents of 3, 1; 4 of 4 tokens, 100% filled",
        "  [███▓]",
        "  1: ccc",
        "  2: a",
        "[1]",
        "  tokens: 1 document of 2; 2 of 4 tokens, 50% filled",
    ]
    assert "  [██··]" in str(preview)
    page = preview._repr_html_()
    assert page.count('class="row"') == 3
    assert 'style="flex:3" title="document 1: 3 tokens from 0"' in page
    assert 'class="fill" style="flex:2" title="padding: 2 tokens from 2"' in page


def test_packed_rows_in_batches():
    preview = packed().batch(2).preview(3)

    assert len(preview) == 3
    assert preview._repr_html_().count('class="row"') == 3


@pytest.mark.parametrize(
    "dataset",
    [
        gm.MapDataset.range(6),
        gm.MapDataset.range(12).filter(lambda x: x < 6),
        gm.MapDataset.range(6).to_iter_dataset(),
        gm.MapDataset.range(6).batch(4),
        gm.MapDataset.range(6).batch(4).to_iter_dataset(),
        gm.MapDataset.range(6).repeat().to_iter_dataset().batch(2).map(lambda x: x),
    ],
)
def test_datasets_have_previews(dataset: Any):
    assert str(dataset.preview(3)).splitlines()[1:] == [
        "[0]", "  record: 0", "[1]", "  record: 1", "[2]", "  record: 2",
    ]  # fmt: skip


def test_arrays_of_jax_are_shown():
    jnp = pytest.importorskip("jax.numpy")
    dataset = gm.MapDataset.range(2).map(lambda n: {"x": jnp.full((8, 8), n / 2)})
    assert dataset.preview()._repr_html_().count("<img ") == 2


def test_ragged_and_nested_elements_are_shown():
    elements = [{"a": {"b": [1, "x"]}, "c": None, "d": np.array([np.nan, 1.0])}, {"e": []}]
    shown = str(gm.load(elements, num_epochs=1).preview())
    for line in (
        'a["b"][0]: 1',
        "a[\"b\"][1]: 'x'",
        "c: None",
        "d: float64[2] [nan, 1]",
        "e: []",
    ):
        assert f"  {line}" in shown


def test_a_page_is_saved(tmp_path: Path):
    gm.load(IMAGES, num_epochs=1).preview(4).save(tmp_path / "page.html")

    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>")
    assert page.count('src="data:image/png;base64,') == 4
    assert "<script" not in page


def test_a_page_that_cannot_be_written_is_an_error(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(gm.errors.PlanError, match=r"The preview .* cannot be written"):
        gm.load([1], num_epochs=1).preview().save(tmp_path / "file" / "page.html")


def test_names_data_and_decoded_tokens_are_shown_as_text():
    evil = '"><script>alert(1)</script>\x1b]0;title\x07'
    elements = [{evil: evil, "tokens": np.array([1, 2])}]
    preview = gm.load(elements, num_epochs=1).preview(decode=lambda _: evil)

    for shown in (str(preview), preview._repr_html_()):
        assert "\x1b" not in shown
        assert "\x07" not in shown
    assert "<script" not in preview._repr_html_()
    packs = packed().preview(decode=lambda _: evil)
    assert "<script" not in packs._repr_html_()
    assert "\x1b" not in str(packs)


def test_the_repr_has_no_data():
    assert repr(gm.load([8675309], num_epochs=1).preview()) == (
        "<Preview of list(<1 records>) -> IndexSampler: 1 element>"
    )


def test_the_number_must_be_positive():
    with pytest.raises(gm.errors.PlanError, match="`num_elements` must be at least 1, got 0"):
        gm.load([1], num_epochs=1).preview(0)


def test_an_error_of_a_step_is_raised():
    with pytest.raises(ZeroDivisionError):
        gm.load([1], num_epochs=1, transformations=[lambda _: 1 // 0]).preview()

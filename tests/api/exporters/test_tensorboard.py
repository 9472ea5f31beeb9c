"""Event files, as TensorBoard itself reads them."""

from pathlib import Path
from typing import Any

import pytest

import gristmill as gm
from gristmill import exporters
from gristmill._api.exporters.tensorboard import EventWriter, scalars
from gristmill._metrics.history import Sample


def read(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Return the steps and values of each scalar."""
    loader: Any = pytest.importorskip(
        "tensorboard.backend.event_processing.event_file_loader",
        reason="TensorBoard is not installed",
    )
    (file,) = folder.glob("events.out.tfevents.*")
    found: dict[str, list[tuple[int, float]]] = {}
    for event in loader.LegacyEventFileLoader(str(file)).Load():
        for value in event.summary.value:
            found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found


def test_tensorboard_reads_the_scalars(tmp_path: Path):
    loader = gm.load(range(40), num_epochs=1, batch_size=4, transformations=[abs])
    with exporters.to_tensorboard(loader, tmp_path / "new", every_s=600.0):
        assert len(list(loader)) == 10
    found = read(tmp_path / "new")

    assert found["gristmill/elements"] == [(10, 10.0)]
    assert found["gristmill/waited_share"][0][1] == pytest.approx(loader.stats().waited_share)
    assert "gristmill/step_seconds/Map abs" in found


def test_rates_are_those_since_the_last_event(tmp_path: Path):
    writer = EventWriter(tmp_path / "events.out.tfevents.1")
    writer.write(gm.Stats(num_elements=10, elapsed_s=10.0, waited_s=10.0))
    writer.write(gm.Stats(num_elements=10, elapsed_s=10.0, waited_s=10.0))  # nothing happened
    writer.write(gm.Stats(num_elements=300, elapsed_s=20.0, waited_s=15.0))
    found = read(tmp_path)

    assert found["gristmill/elements_per_s"] == [(10, 1.0), (300, 29.0)]
    assert found["gristmill/waited_share"] == [(10, 1.0), (300, 0.5)]


def test_memory_and_names_are_part_of_it():
    step = gm.StepStats(name="Map \x1b[2J", elapsed_s=3.0)
    stats = gm.Stats(recent=(Sample(0.0, 0, 0.0, 5_000_000),), steps=(step,))
    found = dict(scalars(stats, gm.Stats()))

    assert found["gristmill/memory_mb"] == 5.0
    assert found["gristmill/step_seconds/Map \\x1b[2J"] == 3.0


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path):
    (tmp_path / "file").write_text("")
    loader = gm.load(range(4), num_epochs=1)

    with pytest.raises(gm.errors.PlanError, match=r"The folder .*file' cannot be written to"):
        exporters.to_tensorboard(loader, tmp_path / "file")

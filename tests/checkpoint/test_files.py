"""A state is in a file as a whole or not at all, and is found again by its process."""

import json
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gristmill as gm
from gristmill._checkpoint.files import read_state, to_json, write_state
from gristmill.errors import StateError

NAME = "process_0-of-1.json"


def loader_iterator() -> gm.DataLoaderIterator:
    return iter(gm.load(range(12), num_epochs=1, batch_size=2))


def dataset_iterator() -> gm.DatasetIterator[Any]:
    return iter(gm.MapDataset.range(12).seed(1).shuffle().to_iter_dataset().batch(2))


@pytest.mark.parametrize("make", [loader_iterator, dataset_iterator])
def test_the_state_that_is_read_is_the_one_that_was_written(make: Any, tmp_path: Path):
    iterator = make()
    next(iterator)
    state = iterator.get_state()

    write_state(tmp_path, to_json(state))

    assert read_state(tmp_path, like=state) == state
    assert [path.name for path in tmp_path.iterdir()] == [NAME]
    assert json.loads((tmp_path / NAME).read_text()) == (
        json.loads(state) if isinstance(state, bytes) else state
    )


def test_a_state_replaces_the_one_before(tmp_path: Path):
    write_state(tmp_path, '{"n": 1000}')
    write_state(tmp_path, '{"n": 2}')

    assert read_state(tmp_path, like={}) == {"n": 2}


def test_a_write_that_raises_half_way_leaves_the_state_before_and_nothing_else(tmp_path: Path):
    write_state(tmp_path, '{"n": 1}')

    with pytest.raises(UnicodeEncodeError):
        write_state(tmp_path, "\ud800")  # half a character: there is no way to write it

    assert [path.name for path in tmp_path.iterdir()] == [NAME]
    assert read_state(tmp_path, like={}) == {"n": 1}


KILLED = """
import itertools, sys
from pathlib import Path
from gristmill._checkpoint.files import write_state

for number in itertools.count():
    write_state(Path(sys.argv[1]), str(number % 10) * 300_000)
    print(number, flush=True)
"""


@pytest.mark.parametrize("num_writes", [1, 2, 5, 11])
def test_a_process_killed_while_it_writes_leaves_a_whole_file(num_writes: int, tmp_path: Path):
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for _ in range(num_writes):
            process.stdout.readline()
        process.send_signal(signal.SIGKILL)  # it is at the next one already

    text = (tmp_path / NAME).read_text()
    assert len(text) == 300_000
    assert len(set(text)) == 1


class Bucket:
    """Stands for a path of etils to files that a network keeps: no rename, no file handle."""

    def __init__(self, files: dict[str, str], name: str = "gs://bucket") -> None:
        self.files, self.path = files, name

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def __fspath__(self) -> str:
        return self.path

    def __truediv__(self, name: str) -> "Bucket":
        return Bucket(self.files, f"{self.path}/{name}")

    def write_text(self, text: str) -> None:
        self.files[self.path] = text

    def read_text(self) -> str:
        return self.files[self.path]

    def glob(self, pattern: str) -> list["Bucket"]:
        assert pattern == "process_*-of-*.json"
        return [Bucket(self.files, name) for name in self.files]


def test_a_path_that_is_not_local_is_written_and_read_through_its_own_methods():
    folder: Any = Bucket({})

    write_state(folder, '{"n": 1}')

    assert folder.files == {f"gs://bucket/{NAME}": '{"n": 1}'}
    assert read_state(folder, like={}) == {"n": 1}


# What is not there


def test_a_folder_without_a_state_is_reported_with_the_path_that_was_looked_for(tmp_path: Path):
    (tmp_path / "model.json").write_text("{}")

    with pytest.raises(
        StateError,
        match=rf"^{re.escape(str(tmp_path / NAME))} does not exist\. Restore from a folder",
    ):
        read_state(tmp_path, like={})


def test_a_folder_that_is_not_there_is_reported(tmp_path: Path):
    with pytest.raises(StateError, match=r"does not exist\. Restore from a folder"):
        read_state(tmp_path / "nowhere", like=b"")


@pytest.mark.parametrize(
    "names",
    [
        ["process_0-of-2.json"],
        ["process_0-of-3.json", "process_2-of-3.json"],
        # Of two runs: it is not known which of them is meant.
        [f"process_{index}-of-{count}.json" for count in (2, 3) for index in range(count)],
    ],
)
def test_a_folder_that_does_not_hold_one_whole_run_is_reported(names: list[str], tmp_path: Path):
    for name in names:
        (tmp_path / name).write_text("{}")

    listed = re.escape(", ".join(sorted(names)))
    with pytest.raises(
        StateError,
        match=rf"{NAME} does not exist, and the files in the folder are not those of one complete "
        rf"run: {listed}\. Restore an earlier checkpoint\.$",
    ):
        read_state(tmp_path, like={})


@pytest.mark.parametrize(
    ("text", "reported"),
    [('{"n": ', "truncated: it ends after 6 characters"), ("\0\0", "corrupt: it is not JSON")],
)
def test_a_file_that_something_else_damaged_is_reported_with_its_path(
    tmp_path: Path, text: str, reported: str
):
    (tmp_path / NAME).write_text(text)

    with pytest.raises(StateError, match=rf"^The state is {reported}\.") as caught:
        read_state(tmp_path, like={})
    assert caught.value.__notes__ == [f"The state is in {tmp_path / NAME}."]


def test_what_only_looks_like_a_state_is_not_one(tmp_path: Path):
    (tmp_path / "process_0-of-1.json.unfinished").write_text("{")
    (tmp_path / "process_x-of-y.json").write_text("{")

    with pytest.raises(StateError, match=r"does not exist\. Restore from a folder"):
        read_state(tmp_path, like={})


# Another number of processes


def sharded_iterator(shard: gm.ShardOptions) -> gm.DataLoaderIterator:
    return iter(
        gm.DataLoader(
            data_source=range(24),
            sampler=gm.IndexSampler(24, shuffle=True, seed=3, num_epochs=1),
            operations=[gm.Batch(2)],
            shard_options=shard,
        )
    )


def test_the_states_of_another_number_of_processes_are_made_into_one(tmp_path: Path):
    taken: list[int] = []
    for shard in range(2):
        iterator = sharded_iterator(gm.ShardOptions(shard, 2))
        taken += next(iterator).tolist() + next(iterator).tolist()
        (tmp_path / f"process_{shard}-of-2.json").write_text(to_json(iterator.get_state()))

    resumed: Any = sharded_iterator(gm.NoSharding())
    resumed.set_state(read_state(tmp_path, like=resumed.get_state()))

    rest = [record for batch in resumed for record in batch.tolist()]
    assert sorted(taken + rest) == list(range(24))

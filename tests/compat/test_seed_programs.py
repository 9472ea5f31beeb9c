"""The DataLoader programs of Grain's guide and of the slides for PyTorch users, run by gristmill.

Twice: rewritten here, so that they run everywhere; and literally, from the documents, where the
folder with them lies beside the project. Grain runs the same with `worker_count=0`, its own stream
being another one with workers (batches change) and slow to start.
"""

import contextlib
import gc
import io
import itertools
import re
import subprocess
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import grain
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.compat.side_by_side import assert_same, oracle, ours, stream

# Rewritten: the guide


def guide_sampler(api):
    return api.IndexSampler(
        num_records=5,
        num_epochs=2,
        shard_options=api.ShardOptions(shard_index=0, shard_count=1, drop_remainder=True),
        shuffle=True,
        seed=0,
    )


def test_the_guides_sampler_prints_grains_metadata():
    printed = [str(metadata) for metadata in guide_sampler(ours)]
    assert printed == [str(metadata) for metadata in guide_sampler(oracle)]
    assert len(printed) == 10


class Photographs:
    """Stands for the guide's TFDS source: the same fields, another size for every picture."""

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> dict[str, Any]:
        picture = np.full((20 + index, 30, 3), index, dtype=np.uint8)
        return {"image": picture, "file_name": f"photo_{index}.jpg", "label": index % 7}

    def __repr__(self) -> str:
        return "Photographs()"


def guide_loader(api):
    class Crop(api.MapTransform):
        def map(self, element):
            element["image"] = element["image"][:16, :16]
            return element

    return api.DataLoader(
        data_source=Photographs(), operations=[Crop()], sampler=guide_sampler(api), worker_count=0
    )


def test_the_guides_loader_yields_grains_elements():
    assert_same(stream(guide_loader(ours)), stream(guide_loader(oracle)))


def test_the_guides_iterator_goes_back_to_where_its_state_was_taken():
    names = {}
    for api in (oracle, ours):
        iterator = iter(guide_loader(api))
        before = [next(iterator)["file_name"] for _ in range(5)]
        state = iterator.get_state()
        after = [next(iterator)["file_name"] for _ in range(5)]
        iterator.set_state(state)
        assert [next(iterator)["file_name"] for _ in range(5)] == after
        names[api] = before + after
    assert names[ours] == names[oracle]


def test_the_guides_shared_memory_source_is_read_by_five_workers_in_grains_order():
    elements = {}
    for api, worker_count in ((oracle, 0), (ours, 5)):
        source = api.InMemoryDataSource(range(5))
        loader = api.DataLoader(
            data_source=source,
            sampler=api.IndexSampler(
                num_records=len(source),
                num_epochs=2,
                shard_options=api.NoSharding(),
                shuffle=True,
                seed=0,
            ),
            worker_count=worker_count,
        )
        iterator = iter(loader)
        elements[api] = [next(iterator) for _ in range(len(source) * 2)]
        del iterator, loader
        source.close()
        source.unlink()
    assert elements[ours] == elements[oracle]


def test_the_guides_read_options_do_not_change_the_stream():
    def program(api, worker_count):
        source = Photographs()
        return api.DataLoader(
            data_source=source,
            sampler=api.IndexSampler(
                num_records=len(source),
                num_epochs=2,
                shard_options=api.NoSharding(),
                shuffle=True,
                seed=0,
            ),
            worker_count=worker_count,
            read_options=api.ReadOptions(num_threads=8, prefetch_buffer_size=500),
        )

    expected = stream(program(oracle, 0))
    assert_same(stream(program(ours, 0)), expected)
    assert_same(stream(program(ours, 2)), expected)


# Rewritten: the slides


def slides_source(api):
    class MySource(api.RandomAccessDataSource):
        def __init__(self, num_records=1000):
            self._len = num_records

        def __len__(self):
            return self._len

        def __getitem__(self, idx):
            idx = idx % self._len
            image = np.ones((32, 32, 3), dtype=np.uint8) * (idx % 255)
            return {"image": image, "label": idx % 10}

    return MySource()


def slides_operations(api):
    class ImageToFloat(api.MapTransform):
        def map(self, x):
            return {"image": x["image"].astype(np.float32) / 255.0, "label": x["label"]}

    class RandomScale(api.RandomMapTransform):
        def random_map(self, element, rng):
            element["image"] = element["image"] * rng.uniform(0.8, 1.2)
            return element

    return [ImageToFloat(), RandomScale(), api.Batch(batch_size=64, drop_remainder=True)]


def slides_loader(api, worker_count, **options):
    source = slides_source(api)
    return api.DataLoader(
        data_source=source,
        operations=slides_operations(api),
        sampler=api.IndexSampler(
            num_records=len(source), shuffle=True, num_epochs=None, seed=42, **options
        ),
        worker_count=worker_count,
        read_options=api.ReadOptions(num_threads=0),
    )


def test_the_slides_batches_have_grains_shapes_and_content():
    batches = stream(slides_loader(ours, worker_count=0), 4)
    assert batches[0]["image"].shape == (64, 32, 32, 3)
    assert batches[0]["label"].shape == (64,)
    assert_same(batches, stream(slides_loader(oracle, worker_count=0), 4))


def test_the_slides_four_workers_yield_the_batches_of_none():
    iterator = iter(slides_loader(ours, worker_count=4))
    batches = [next(iterator) for _ in range(4)]
    assert_same(batches, stream(slides_loader(oracle, worker_count=0), 4))


def test_the_slides_loader_takes_no_sharding_from_the_sharding_module():
    source = slides_source(ours)
    loader = ours.DataLoader(
        data_source=source,
        operations=slides_operations(ours),
        shard_options=ours.sharding.NoSharding(),
        sampler=ours.IndexSampler(num_records=len(source), shuffle=True, seed=42),
        worker_count=0,
        read_options=ours.ReadOptions(num_threads=0),
    )
    assert_same(stream(loader, 2), stream(slides_loader(oracle, worker_count=0), 2))


def train(api):
    """The slides' training loop, with a model of one number per class."""

    @jax.jit
    def train_step(state, batch):
        brightness = batch["image"].mean(axis=(1, 2, 3))
        return state + jax.ops.segment_sum(brightness, batch["label"], num_segments=10)

    shard_options = api.ShardByJaxProcess(drop_remainder=True)
    iterator = iter(slides_loader(api, worker_count=0, shard_options=shard_options))
    state = jnp.zeros(10)
    for _ in range(12):
        try:
            batch = next(iterator)
        except StopIteration:
            break
        state = train_step(state, batch)
    return np.asarray(state)


def test_the_slides_training_loop_ends_in_grains_state():
    assert_same(train(ours), train(oracle))


# Literally, from the documents


DOCUMENTS = Path(__file__).parents[2].parent / "shared" / "seeds"
needs_documents = pytest.mark.skipif(
    not DOCUMENTS.is_dir(), reason="the folder shared/seeds does not lie beside the project"
)

# What in the guide needs TFDS, OpenCV or matplotlib, and what stands for it here.
GUIDE = {
    # Modules that are not installed.
    "!pip install grain tfds-nightly opencv-python matplotlib orbax-checkpoint\n": "",
    "import cv2\n": "",
    "import matplotlib.pyplot as plt\n": "",
    "import tensorflow_datasets as tfds\n": "",
    # TFDS: a source with the same fields.
    'tfds.data_source("imagenet_a", split="test")': "Photographs()",
    # OpenCV: another way to make a picture of that size.
    "cv2.resize(image, dsize=(256, 256), interpolation=cv2.INTER_LINEAR)": (
        "np.resize(image, (256, 256, 3))"
    ),
    # matplotlib: print instead of draw.
    "  fig = plt.figure\n": "",
    '  plt.imshow(element["image"])\n  plt.show()\n': (
        '  print(element["image"].shape, element["image"].sum())\n'
    ),
}
# What the layout of the slides cut off or bent, and the parts they only assume.
SLIDES = {
    "drop_remainder=True)\n# 4.": "drop_remainder=True)\n]\n# 4.",
    "num_threads=0)\nprint(": "num_threads=0)\n)\nprint(",
    "enables multiprocessing\n": "enables multiprocessing\n)\n",
    "Label shape:\n{first": "Label shape: {first",
    "shuffle=True, seed=42\nimport jax\n": (
        "shuffle=True, seed=42\n)\n"
        "data_loader_sharded = take(12, grain.DataLoader(data_source=source,"
        " operations=[RandomScale(), *transformations], sampler=sampler_sharded,"
        " worker_count=0, read_options=grain.ReadOptions(num_threads=0)))\n"
        "import jax\n"
    ),
    "   # 2. Optional": "    # 2. Optional",
    "   # 3. Execute": "    # 3. Execute",
    "   if step % 100": "    if step % 100",
    r"\{step\}": "{step}",
}


def code_of(document: str, repairs: dict[str, str]) -> str:
    """All code blocks of a document as one program, every repair made exactly once."""
    text = (DOCUMENTS / document).read_text()
    blocks = re.findall(r"^```[^\n]*\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    # Jupytext's cell options: a YAML header between dashes, or lines such as `:id: x`.
    headers = re.compile(r"\A(?:---\n.*?^---\n|(?::\w+:[^\n]*\n)+\n?)", re.MULTILINE | re.DOTALL)
    program = "".join(headers.sub("", block) for block in blocks)
    for written, repaired in repairs.items():
        assert program.count(written) == 1, f"{document} has changed: {written!r}"
        program = program.replace(written, repaired)
    return program


Execute: TypeAlias = Callable[..., tuple[list[str], types.SimpleNamespace]]


@pytest.fixture
def execute() -> Iterator[Execute]:
    """Yield a function that runs a program: the lines that it prints, and its variables.

    What the programs leave running ends with the test. They hold on to it: JAX keeps the functions
    that it has compiled, and those keep the variables.
    """
    executed: list[dict[str, Any]] = []

    def run(program: str, **given: Any) -> tuple[list[str], types.SimpleNamespace]:
        variables = {"__name__": "a_program_of_the_documents", **given}
        executed.append(variables)
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(program, "<document>", "exec"), variables)
        return printed.getvalue().splitlines(), types.SimpleNamespace(**variables)

    yield run
    for variables in executed:
        variables.clear()
    gc.collect()


def without_workers(program: str) -> str:
    return re.sub(r"worker_count=\w+", "worker_count=0", program)


def with_shell(program: str, folder: Path) -> str:
    """Make the lines for a shell, as notebooks have them, calls; the guide's folder another."""
    calls = re.sub(r"^!(.*)$", r"print(shell('\1'), end='')", program, flags=re.MULTILINE)
    return calls.replace("/tmp/orbax", str(folder))


def shell(command: str) -> str:
    return subprocess.run(
        command, shell=True, check=True, capture_output=True, text=True, timeout=60
    ).stdout


@needs_documents
def test_the_guides_own_code_prints_what_it_prints_under_grain(execute: Execute, tmp_path: Path):
    def run(program: str, folder: Path) -> tuple[list[str], types.SimpleNamespace]:
        printed, variables = execute(
            with_shell(program, folder), Photographs=Photographs, shell=shell
        )
        variables.mngr.close()
        text = "\n".join(printed).replace(str(folder), "/tmp/orbax")
        # The state, which `cat` prints without a line's end, is each one's own.
        text, count = re.subn(r'^\{\s*".*?\}(?=\d photo_)', "", text, flags=re.M | re.S)
        assert count == 1
        # The name of the shared memory is another one on every run.
        return re.sub(r"name=[^,]+", "name", text).splitlines(), variables

    program = code_of("grain_data_loader_guide.md", GUIDE)
    assert program.count("import grain.python as grain\n") == 1
    # Grain has these two under one name only, and it is not the guide's.
    spelled = program.replace("grain.GrainCheckpoint", "grain.PyGrainCheckpoint")
    expected, theirs = run(without_workers(spelled), tmp_path / "grain")
    actual, own = run(
        program.replace("import grain.python as grain\n", "import gristmill.python as grain\n"),
        tmp_path / "gristmill",
    )
    assert own.grain is ours
    assert theirs.grain is oracle
    assert actual == expected
    assert "process_0-of-1.json" in actual
    # 10 metadata, a record over many lines, 10 pictures, 3 times 5 steps, and 2 + 10 in memory.
    assert len(actual) > 48
    steps = [line for line in actual if re.match(r"\d photo_", line)]
    assert steps[5:10] == steps[10:] != steps[:5]
    assert len(steps) == 15
    # The guide ends by making a loader with 10 workers, which it does not iterate.
    assert own.data_loader.multiprocessing_options.num_workers == 10
    for variables in (own, theirs):
        variables.in_memory_datasource.close()
        variables.in_memory_datasource.unlink()


@needs_documents
def test_the_slides_own_code_prints_what_it_prints_under_grain(execute: Execute):
    def run(api, program):
        def take(count, loader):
            return list(itertools.islice(loader, count))

        return execute(
            program,
            grain=api,
            np=np,
            take=take,
            initial_state=lambda _: 0.0,
            train_step=lambda state, batch: state + float(batch["image"].sum()),
        )

    program = code_of("grain_for_pytorch_users_slides.md", SLIDES)
    # The slides write `grain.sharding` beside `grain.IndexSampler`: no one module of Grain's has
    # both, so Grain gets a namespace that does. Ours has them in `gristmill.python`.
    with_sharding = types.SimpleNamespace(**{**vars(oracle), "sharding": grain.sharding})
    expected, theirs = run(with_sharding, without_workers(program))
    actual, own = run(ours, program)
    assert actual == expected
    assert "Batch data shape: (64, 32, 32, 3)" in actual
    assert "Batch label shape: (64,)" in actual
    assert "Step 0..." in actual
    assert_same(own.first_batch, theirs.first_batch)
    assert_same(own.first_batch_parallel, theirs.first_batch_parallel)
    assert own.state == theirs.state > 0

"""The reference is complete: every public name has an example, and documents what it raises."""

import ast
import importlib
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from types import GenericAlias, UnionType
from typing import Any

import pytest

import gristmill
from gristmill import MapDataset
from gristmill.errors import GristmillError
from tests.public_modules import PUBLIC_MODULES

WITHOUT_EXAMPLE = {
    "gristmill.from_tfds": "needs a dataset that was downloaded",
    "gristmill.errors.ForbiddenFileError": "needs a file of another user",
    "gristmill.errors.StoreError": "needs a store that fails",
    "gristmill.errors.MissingExtraError": "needs a package that is not installed",
    "gristmill.errors.GrainImportedError": "needs a program that imports Grain first",
}
ALIASES_AND_CONSTANTS = (str, frozenset, UnionType, GenericAlias)
CHECK = re.compile(r"_?(as_(int|bool|kind|list|seed|seconds|amount|names|placement)|find_files)")


def public_names() -> Iterator[Any]:
    seen: set[int] = set()
    for module in PUBLIC_MODULES:
        facade = importlib.import_module(module)
        for name in facade.__all__:
            found = getattr(facade, name)
            is_value = isinstance(found, ALIASES_AND_CONSTANTS) or found is Any
            if inspect.ismodule(found) or is_value or id(found) in seen:
                continue
            seen.add(id(found))
            yield pytest.param(found, id=f"{module}.{name}")


def has_example(found: Any) -> bool:
    members = vars(found).values() if inspect.isclass(found) else ()
    documents = [inspect.getdoc(found), *(getattr(member, "__doc__", None) for member in members)]
    return any(">>>" in (document or "") for document in documents)


@pytest.mark.parametrize("found", list(public_names()))
def test_every_public_name_has_an_example(found: Any, request: pytest.FixtureRequest):
    name = request.node.callspec.id
    assert has_example(found) != (name in WITHOUT_EXAMPLE)


def constructors_of(found: Any) -> list[Any]:
    """Return the functions of a class that check the arguments of a call, or the function."""
    if not inspect.isclass(found):
        return [inspect.unwrap(found)] if inspect.isroutine(found) else []
    own = vars(found)
    names = () if own.get("_is_protocol") else ("__init__", "__post_init__")
    return [own[name] for name in names if name in own]


def refuses_arguments(function: Any) -> bool:
    """Return whether a function raises an error, or passes an argument to a check that does."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError):  # the `__init__` of a dataclass or a protocol
        return False
    calls = (ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call))
    return any(isinstance(node, ast.Raise) for node in ast.walk(tree)) or any(
        map(CHECK.fullmatch, calls)
    )


def documents_errors(found: Any) -> bool:
    documents = [inspect.getdoc(found), *(one.__doc__ for one in constructors_of(found))]
    return any("Raises:" in (document or "") for document in documents)


@pytest.mark.parametrize("found", list(public_names()))
def test_what_checks_its_arguments_documents_its_errors(found: Any):
    if any(map(refuses_arguments, constructors_of(found))):
        assert documents_errors(found)


STREAM = MapDataset.range(4).to_iter_dataset()
WRONG_CALLS: dict[str, Callable[[Any], object]] = {
    "gristmill.ArraySource": lambda call: call({}),
    "gristmill.Batch": lambda call: call(0),
    "gristmill.BatchOperation": lambda call: call(0),
    "gristmill.IndexSampler": lambda call: call(3, shuffle=True),
    "gristmill.SequentialSampler": lambda call: call(0),
    "gristmill.RangeDataSource": lambda call: call(0, 3, 0),
    "gristmill.SkipErrors": lambda call: call(-1),
    "gristmill.options.ReadOptions": lambda call: call(num_threads=-1),
    "gristmill.options.MultiprocessingOptions": lambda call: call(num_workers="2"),
    "gristmill.options.RayOptions": lambda call: call(address="ray://host"),
    "gristmill.options.StorageOptions": lambda call: call(cache_dir=3),
    "gristmill.options.WorkerOptions": lambda call: call(block_timeout_s=0),
    "gristmill.sources.SharedMemoryDataSource": lambda call: call(),
    "gristmill.sources.FrameSource": lambda call: call([1]),
    "gristmill.sources.CsvSource": lambda call: call(__file__, delimiter="ab"),
    "gristmill.sources.HuggingFaceSource": lambda call: call("/absent"),
    "gristmill.sources.ImageFolderSource": lambda call: call("/absent"),
    "gristmill.sources.LitDataSource": lambda call: call("/absent"),
    "gristmill.sources.MdsSource": lambda call: call("/absent"),
    "gristmill.sources.MegatronSource": lambda call: call("/absent"),
    "gristmill.sources.SqliteSource": lambda call: call(__file__, table="a", query="b"),
    "gristmill.sources.TextSource": lambda call: call(__file__, by="word"),
    "gristmill.sources.ZarrSource": lambda call: call("/absent"),
    "gristmill.sources.open_source": lambda call: call(__file__, format="absent"),
    "gristmill.transforms.DecodeAudio": lambda call: call(dtype="complex64"),
    "gristmill.transforms.DecodeImage": lambda call: call(mode="XYZ"),
    "gristmill.transforms.DecodeRandomCrop": lambda call: call(size=3),
    "gristmill.transforms.DecodeVideo": lambda call: call(every=0),
    "gristmill.transforms.Feature": lambda call: call(3),
    "gristmill.transforms.ParseExample": lambda call: call({}),
    "gristmill.transforms.ParseExample.read": lambda call: call("/absent"),
    "gristmill.transforms.Scan": lambda call: call(3, 0),
    "gristmill.transforms.Window": lambda call: call(0),
    "gristmill.transforms.pad_batch": lambda call: call([[1, 2]], length=1),
    "gristmill.experimental.BestFitPackIterDataset": lambda call: call(
        STREAM, length_struct={"x": 0}, num_packing_bins=1
    ),
    "gristmill.experimental.CacheIterDataset": lambda call: call([1, 2]),
    "gristmill.experimental.ConcatThenSplitIterDataset": lambda call: call(
        STREAM, length_struct={"x": 4}, bos_token_id=1
    ),
    "gristmill.experimental.DatasetOptions": lambda call: call(filter_warn_threshold_ratio=3),
    "gristmill.experimental.InterleaveIterDataset": lambda call: call([STREAM], cycle_length=0),
    "gristmill.experimental.LimitIterDataset": lambda call: call(STREAM, 0),
    "gristmill.experimental.RebatchIterDataset": lambda call: call(STREAM, 0),
    "gristmill.experimental.RepeatIterDataset": lambda call: call(STREAM, 0),
    "gristmill.experimental.RngPool": lambda call: call("0"),
    "gristmill.experimental.WindowShuffleIterDataset": lambda call: call(
        STREAM, window_size=0, seed=0
    ),
    "gristmill.experimental.WithOptionsIterDataset": lambda call: call(STREAM, None),
    "gristmill.experimental.ZipIterDataset": lambda call: call([]),
    "gristmill.experimental.ZipMapDataset": lambda call: call([MapDataset.range(2), 3]),
    "gristmill.experimental.apply_transformations": lambda call: call(STREAM, 3),
    "gristmill.experimental.device_put": lambda call: call(STREAM, "cpu"),
    "gristmill.experimental.index_shuffle": lambda call: call(5, 3, seed=0, rounds=4),
}


@pytest.mark.parametrize("name", WRONG_CALLS)
def test_the_error_of_a_wrong_call_is_documented(name: str):
    found: Any = gristmill
    for part in name.split(".")[1:]:
        found = getattr(found, part)
    with pytest.raises(GristmillError) as raised:
        WRONG_CALLS[name](found)
    documented = re.findall(r"^ *(\w+): ", (found.__doc__ or "").split("Raises:")[1], re.M)
    assert raised.type.__name__ in documented

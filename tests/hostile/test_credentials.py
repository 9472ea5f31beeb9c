"""Credentials in addresses and options appear in nothing that is printed, logged or written."""

import contextlib
import gzip
import json
import logging
import os
import pickle
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gristmill as gm
from gristmill._addresses import strip_credentials
from gristmill._api.monitoring.monitor import read_records
from gristmill._api.plan_access import plan_of
from gristmill._cli.main import main
from gristmill._io.paths import find_file
from gristmill._io.stores.store import get_store
from gristmill._plan.fingerprint import fingerprint, fingerprint_steps
from gristmill.errors import FileError, GristmillError
from gristmill.options import SkipErrors, StorageOptions
from gristmill.sources import (
    ArrayRecordDataSource,
    Hdf5Source,
    JsonArraySource,
    JsonLinesSource,
    MdsSource,
    MegatronSource,
    TextSource,
    ZarrSource,
)
from tests.io.conftest import Serve
from tests.io.servers import Fault, Response, Store, always, fails_with, ignores_range, only_for

SECRET = "hunter2"
RECORDS = b"".join(b'{"x": %d}\n' % number for number in range(20))


def address(store: Store, name: str) -> str:
    """Return the address of a file with a password and a signature."""
    host = store.root.removeprefix("http://")
    return f"http://me:{SECRET}@{host}{name}?signature={SECRET}#{SECRET}"


def options(store: Store, **others: Any) -> StorageOptions:
    headers = {"X-Api-Key": SECRET}
    return StorageOptions(
        filesystem={**store.filesystem, "headers": headers}, num_retries=1, **others
    )


def shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(error)) + repr(error) + str(vars(error))


@pytest.fixture(autouse=True)
def everything_printed_or_logged(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> Iterator[None]:
    caplog.set_level(logging.DEBUG, logger="gristmill")
    yield
    out, err = capfd.readouterr()
    assert SECRET not in out + err
    ours = [record.getMessage() for record in caplog.records if record.name == "gristmill"]
    assert SECRET not in str(ours)


def written(folder: Path) -> str:
    """Return the names and contents of all files below a folder."""
    return str([(str(path), path.is_file() and path.read_bytes()) for path in folder.rglob("*")])


FAULTS: dict[str, Fault] = {
    **{str(status): fails_with(status) for status in (400, 403, 404, 416, 500)},
    "other": lambda exchange: exchange.send(Response(206, {"Content-Range": "bytes 0-1/9"}, b"xx")),
    "nowhere": lambda exchange: exchange.send(Response(302)),
    "loop": lambda exchange: exchange.send(Response(302, {"Location": "/a?token=hunter2"})),
    "junk": lambda exchange: exchange.disconnect(reset=True),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
@pytest.mark.parametrize("method", ["HEAD", "GET", None])
def test_errors_of_stores_show_no_credentials(
    serve_http: Serve, fault: Fault, method: str | None, tmp_path: Path
):
    store = serve_http({"a.jsonl": RECORDS})
    storage = options(store, cache_dir=tmp_path)
    found: JsonLinesSource | None = None
    if method is None:
        found = JsonLinesSource(address(store, "a.jsonl"), storage=storage)
        store.server.faults = always(fault)
    else:
        store.server.faults = only_for(method, always(fault))
    caught: list[FileError] = []
    try:
        source = found or JsonLinesSource(address(store, "a.jsonl"), storage=storage)
        assert source[3] == {"x": 3}
    except FileError as error:
        caught.append(error)
    assert caught or method == "HEAD"  # the size is also known from a GET
    assert SECRET not in str([shown(error) for error in caught])
    assert SECRET not in str([shown(pickle.loads(pickle.dumps(error))) for error in caught])
    assert SECRET not in written(tmp_path)


class _Fails(gm.transforms.Map):
    def __init__(self, function: Callable[[object], object]) -> None:
        self._function = function

    def map(self, element: object) -> object:
        return self._function(element)


def test_descriptions_states_and_files_show_no_credentials(serve_http: Serve, tmp_path: Path):
    store = serve_http({"a.jsonl": RECORDS})
    storage = options(store, cache_dir=tmp_path)
    source = JsonLinesSource(address(store, "a.jsonl"), storage=storage)

    def fail(record: object) -> object:
        if record == {"x": 3}:
            raise ValueError(f"cannot use {address(store, 'a.jsonl')}")
        return record

    dataset = gm.MapDataset.source(source).map(fail)
    loader = gm.DataLoader(
        data_source=source,
        sampler=gm.samplers.SequentialSampler(20),
        operations=[_Fails(fail)],
        on_error=SkipErrors(5),
    )
    iterator = iter(loader)
    assert len(list(iterator)) == 19
    assert len(iterator.skipped) == 1
    state = iterator.get_state()
    shown_by_all = [source, dataset, loader, iterator, state, iterator.skipped]
    assert SECRET not in str([(repr(one), str(one)) for one in shown_by_all])
    assert SECRET not in json.dumps(state, default=repr)
    assert SECRET not in written(tmp_path)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (Hdf5Source, "a.h5"),
        (ZarrSource, "group"),
        (MdsSource, "mds"),
        (MegatronSource, "a.idx"),
        (TextSource, "a.txt"),
        (TextSource, "a.txt.gz"),
        (JsonArraySource, "a.json"),
    ],
)
@pytest.mark.parametrize("query", ["", f"?signature={SECRET}"])
def test_errors_of_other_formats_show_no_credentials(
    serve_http: Serve, tmp_path: Path, kind: Any, name: str, query: str
):
    files = {
        "a.h5": b"junk" * 100,
        "group/zarr.json": b"{]",
        "mds/index.json": b'{"shards": []}',
        "a.idx": b"x" * 100,
        "a.bin": b"",
        "a.txt": b"\0\xff",
        "a.txt.gz": gzip.compress(b"text\n")[:-3],
        "a.json": b"{",
    }
    store = serve_http(files)
    url = address(store, name).partition("?")[0] + query
    with pytest.raises(GristmillError) as raised:
        len(kind(url, storage=options(store, cache_dir=tmp_path)))
    assert SECRET not in shown(raised.value)
    assert SECRET not in written(tmp_path)


def test_refs_and_options_show_no_credentials(serve_http: Serve):
    store = serve_http({"a.jsonl": RECORDS})
    ref = find_file(address(store, "a.jsonl"), options(store))
    assert SECRET not in repr(ref) + str(ref) + ref.name + ref.address
    assert ref.name == "a.jsonl"
    assert pickle.loads(pickle.dumps(ref)) == ref
    with pytest.raises(TypeError) as caught:
        StorageOptions(filesystem=SECRET)  # pyright: ignore[reportArgumentType]
    assert SECRET not in shown(caught.value)


def test_errors_of_formats_show_no_credentials(serve_http: Serve):
    store = serve_http({"a.jsonl": b"{]\n", "b.txt": b"\xff\xfe\n"}, sends_etags=True)
    storage = options(store)
    with pytest.raises(FileError) as json_error:
        JsonLinesSource(address(store, "a.jsonl"), storage=storage)[0]
    with pytest.raises(FileError) as array_error:
        ArrayRecordDataSource(address(store, "a.jsonl"), storage=storage)[0]
    assert SECRET not in shown(json_error.value) + shown(array_error.value)


def test_debug_messages_of_listings_show_no_credentials(
    serve_http: Serve, caplog: pytest.LogCaptureFixture
):
    page = Response(200, {"Content-Type": "text/html"}, b"<a href='a.jsonl'>a</a>")
    store = serve_http({"a.jsonl": RECORDS}, always(lambda exchange: exchange.send(page)))
    pattern = address(store, "*").partition("?")[0]
    with caplog.at_level(logging.DEBUG):
        found = get_store(pattern, options(store)).glob(pattern)
    assert list(found) == [pattern.replace("*", "a.jsonl")]
    shown = [record.getMessage() for record in caplog.records if record.name == "fsspec.http"]
    assert shown
    assert SECRET not in str(shown)


def test_a_server_without_ranges_shows_no_credentials(serve_http: Serve, tmp_path: Path):
    store = serve_http({"a.jsonl": RECORDS * 8000}, always(ignores_range))
    storage = options(store, cache_dir=tmp_path, cache_bytes=5)
    with pytest.raises(ValueError, match="cache_bytes") as caught:
        JsonLinesSource(address(store, "a.jsonl"), storage=storage).__getitems__([3])
    assert SECRET not in shown(caught.value)


words = st.text("abz019.-_~%", min_size=1, max_size=9)


@given(user=words, query=words, host=words, path=words, around=st.sampled_from(["'", '"', "", "`"]))
def test_no_address_in_a_string_keeps_its_credentials(
    user: str, query: str, host: str, path: str, around: str
):
    secret = f"http://USER{user}:PW{user}@{host}/{path}?QUERY{query}&a=b#FRAGMENT"
    text = f"Cannot read {around}{secret}{around}, as it is."
    assert strip_credentials(text).startswith(f"Cannot read {around}http://{host}/{path}")
    assert not any(word in strip_credentials(text) for word in ("USER", "PW", "QUERY", "FRAGMENT"))
    assert strip_credentials(text).endswith(", as it is.")
    assert strip_credentials(strip_credentials(text)) == strip_credentials(text)


def test_a_conversion_writes_no_credentials(
    serve_http: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    store = serve_http({"a.jsonl": RECORDS})
    plans: list[tuple[int, str]] = []
    replace = os.replace

    def record(source: Any, target: Any) -> None:
        replace(source, target)
        if str(target).endswith("plan.json"):
            plans.append((Path(target).stat().st_mode & 0o777, Path(target).read_text()))

    monkeypatch.setattr(os, "replace", record)
    monkeypatch.setenv("NO_PROXY", "*")
    arguments = ["convert", address(store, "a.jsonl"), str(tmp_path / "out"), "--to", "npy"]
    with contextlib.suppress(SystemExit):
        main(arguments)
    assert {mode for mode, _ in plans} == {0o600}
    assert SECRET not in str(plans)
    assert SECRET not in written(tmp_path)


def test_pages_and_records_of_runs_show_no_credentials(
    serve_http: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """All that is written about a run or its data, for people and for other programs."""
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    store = serve_http({"a.jsonl": RECORDS})
    source = JsonLinesSource(address(store, "a.jsonl"), storage=options(store))
    loader = gm.DataLoader(
        data_source=source,
        sampler=gm.samplers.IndexSampler(20, num_epochs=1, seed=0),
        operations=[gm.transforms.Batch(4)],
    )
    with iter(loader) as iterator:
        iterator.keep_ledger(tmp_path / "run")
        shown = [str(iterator.provenance()) for _ in iterator]
    loader.report(tmp_path / "report.html")
    loader.trace(tmp_path / "trace.json")
    loader.monitor()
    pages = ["--html", str(tmp_path / "page.html")]
    assert main(["inspect", address(store, "a.jsonl"), *pages]) == 0
    assert main(["inspect", address(store, "a.jsonl")]) == 0
    assert main(["top", str(os.getpid()), "--once"]) == 0
    assert main(["report", str(os.getpid()), "-o", str(tmp_path / "other.html")]) == 0
    dataset = gm.MapDataset.source(source)
    dataset.preview(3).save(tmp_path / "preview.html")
    assert len(list(dataset.cache(tmp_path / "cache"))) == 20
    gm.write(dataset, tmp_path / "written", format="parquet")
    shown += [
        str(gm.statistics(dataset)),
        str(loader.explain()),
        json.dumps(read_records(os.getpid())),
    ]
    shown += [str(fingerprint(plan_of(dataset))), str(fingerprint_steps(plan_of(dataset)))]
    assert SECRET not in str(shown)
    assert SECRET not in written(tmp_path)
    assert len(list(tmp_path.glob("*.html"))) == 4


@pytest.mark.filterwarnings("default")
def test_warnings_of_zarr_show_no_credentials(serve_http: Serve):
    metadata = {"zarr_format": 2, "shape": [3], "chunks": [3], "dtype": "<i8", "fill_value": 7}
    body = json.dumps({**metadata, "order": "C", "filters": None, "compressor": None}).encode()
    both = json.dumps({"zarr_format": 3, "node_type": "group"}).encode()
    store = serve_http({"x/.zarray": body, "x/zarr.json": both})
    url = address(store, "x").partition("?")[0]
    with pytest.warns(match="Both zarr.json") as caught, contextlib.suppress(GristmillError):
        len(ZarrSource(url, storage=options(store)))
    assert SECRET not in str([str(warning.message) for warning in caught])

"""`gristmill convert`: every record is written, and no incomplete files are left."""

import functools
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from gristmill._api.write import write
from gristmill._cli.convert import Conversion, convert
from gristmill._cli.main import main
from gristmill._data.example_proto.parse import parse_example
from gristmill._data.example_proto.serialize import format_example
from gristmill._data.writers.sharded_output import PartialOutput
from gristmill.errors import BatchError, GristmillError, PlanError, SourceError
from gristmill.sources import (
    ArrayRecordDataSource,
    CsvSource,
    NumpySource,
    ParquetSource,
    open_source,
)
from gristmill.transforms import ParseExample
from tests.cli.formats import COUNT, MAKERS

NUMERIC = ["idx", "numpy"]


def run(source: str, target: Path, **options: Any) -> str:
    output = StringIO()
    convert(Conversion(source=source, target=str(target), **options), output=output)
    return output.getvalue()


def plain(value: Any) -> Any:
    """Return a record as Python values, so that records of several formats can be compared."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def all_of(source: Any) -> list[Any]:
    return [plain(source[index]) for index in range(len(source))]


def from_example(record: bytes) -> dict[str, Any]:
    return {key: plain(list(values)) for key, values in parse_example(record).items()}


def as_example(record: Any) -> Any:
    """Return what an Example stores of a record: lists of bytes, 32-bit floats and integers."""
    if isinstance(record, bytes):
        return from_example(record)
    columns = record if isinstance(record, dict) else {"record": record}
    stored = {
        name: value.tobytes()
        if isinstance(value, np.ndarray) and value.ndim and value.dtype.kind in "biuf"
        else value
        for name, value in columns.items()
    }
    return from_example(format_example(stored))


@pytest.mark.parametrize("name", [name for name in MAKERS if name not in ("arrow", "parquet")])
def test_records_are_converted_to_array_record(tmp_path: Path, name: str):
    source = MAKERS[name](tmp_path)
    if name == "hugging_face":
        with pytest.raises(GristmillError, match="32"):  # 1/3 is not exact in 32 bits
            run(source, tmp_path / "thirds")
        source_options: dict[str, Any] = {"columns": ["id", "text"]}
    else:
        source_options = {}

    printed = run(source, tmp_path / "out", records_per_shard=8, options=source_options)

    shards = sorted(path.name for path in (tmp_path / "out").glob("*.array_record"))
    assert shards == [f"out-0000{number}-of-00004.array_record" for number in range(4)]
    written = ArrayRecordDataSource(str(tmp_path / "out" / "*.array_record"))
    original = open_source(source, **source_options)
    assert [from_example(record) for record in written] == [
        as_example(original[index]) for index in range(COUNT)
    ]
    assert f"{COUNT} records in 4 shards" in printed
    assert not (tmp_path / "out.partial").exists()


@pytest.mark.parametrize("name", MAKERS)
def test_records_are_converted_to_parquet(tmp_path: Path, name: str):
    source = MAKERS[name](tmp_path)

    run(source, tmp_path / "out.parquet", records_per_shard=8)

    written = all_of(ParquetSource(str(tmp_path / "out.parquet" / "*.parquet")))
    original = all_of(open_source(source))
    if name in ("array_record", "tfrecord"):
        lists = [from_example(record) for record in original]
        original = [{**row, "number": row["number"][0], "text": row["text"][0]} for row in lists]
    elif not isinstance(original[0], dict):
        original = [{"record": record} for record in original]
    assert written == original


@pytest.mark.parametrize("name", NUMERIC)
def test_records_are_converted_to_npy(tmp_path: Path, name: str):
    source = MAKERS[name](tmp_path)

    printed = run(source, tmp_path / "out", to="npy", records_per_shard=8)

    folder = tmp_path / "out"
    keys = ["record"] if name == "idx" else ["image", "label"]
    files = {key: f"{folder}/{key}-*.npy" for key in keys}
    written = NumpySource(files if len(keys) > 1 else files["record"])
    assert all_of(written) == all_of(open_source(source))
    assert all_of(open_source(str(folder))) == all_of(written)
    assert "NumpySource" in printed


def test_the_printed_code_reads_the_output(tmp_path: Path):
    for name, target in [("numpy", "npy"), ("parquet", "parquet"), ("tar", "array_record")]:
        source = MAKERS[name](tmp_path)
        printed = run(source, tmp_path / f"out-{target}", to=target)
        code = printed.splitlines()[-1].removeprefix("Read them with ")
        program = f"import gristmill, gristmill.sources, gristmill.transforms; print(len({code}))"

        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            capture_output=True,
            text=True,
            check=True,
        )

        assert done.stdout == f"{COUNT}\n"


CSV = """\
id;price;day;at;big;flag;note
1;0.1;2024-01-31;2024-01-31 10:20:30;9007199254740993;true;
2;;2024-02-01;;-1;;"a ""quoted"" ; one"
3;1e300;;2024-02-01 00:00:00;0;false;ü
"""


def test_csv_files_become_parquet_files_without_reading_each_record(tmp_path: Path):
    for number in range(2):
        (tmp_path / f"{number}.csv").write_text(CSV)
    options: dict[str, Any] = {"delimiter": ";", "types": {"id": "int16"}}

    run(f"{tmp_path}/*.csv", tmp_path / "fast.parquet", records_per_shard=5, options=options)
    source = CsvSource(f"{tmp_path}/*.csv", **options)
    write(rows_of(source), tmp_path / "plain.parquet")  # one by one, whatever it offers

    fast, plain_rows = (
        ParquetSource(str(tmp_path / f"{name}.parquet" / "*.parquet")) for name in ("fast", "plain")
    )
    assert len(list((tmp_path / "fast.parquet").iterdir())) == 2
    assert repr(rows_of(fast)) == repr(rows_of(plain_rows))
    assert rows_of(fast) == rows_of(source)
    assert type(fast[0]["id"]) is np.int16


def rows_of(source: Any) -> list[Any]:
    return [source[index] for index in range(len(source))]


def test_a_csv_file_without_a_header_can_be_converted(tmp_path: Path):
    (tmp_path / "a.data").write_text("1\t2\n3\t4\n")
    arguments = ["convert", f"{tmp_path}/a.data", f"{tmp_path}/out.parquet", "--format", "csv"]

    assert main([*arguments, "--delimiter", "tab", "--no-has-header", "--types", "f1=float32"]) == 0

    written = rows_of(ParquetSource(f"{tmp_path}/out.parquet/*.parquet"))
    assert written == [{"f0": 1, "f1": 2.0}, {"f0": 3, "f1": 4.0}]
    assert type(written[0]["f1"]) is np.float32


@pytest.mark.parametrize("to", ["array_record", "parquet", "npy"])
def test_floats_are_rounded_on_request(tmp_path: Path, to: str):
    (tmp_path / "a.csv").write_text("x,y\n0.1,1\n0.2,2\n")

    assert main(["convert", f"{tmp_path}/a.csv", f"{tmp_path}/out", "--to", to, "--float32"]) == 0

    source = open_source(f"{tmp_path}/out")
    if to == "array_record":
        parse = ParseExample.read(tmp_path / "out" / "features.json")
        records = [parse.map(record) for record in source]
    else:
        records = rows_of(source)
    assert [float(record["x"]) for record in records] == [float(np.float32(x)) for x in (0.1, 0.2)]
    assert [int(record["y"]) for record in records] == [1, 2]


def test_a_number_that_is_too_large_to_be_rounded_is_an_error(tmp_path: Path):
    source = write_lines(tmp_path / "a.jsonl", [{"x": 1.5}, {"x": 1e300}])

    with pytest.raises(BatchError, match="records 0 to 1 hold a number that is too large"):
        run(source, tmp_path / "out", float32=True)


def test_values_of_several_types_cannot_be_a_column_of_a_table(tmp_path: Path):
    source = write_lines(tmp_path / "a.jsonl", [{"x": [1, 2]}, {"x": "two"}])

    with pytest.raises(BatchError, match=r"'x' has values of several types.* to one type before"):
        run(source, tmp_path / "out", to="parquet")


def test_a_null_cannot_be_written_as_a_feature(tmp_path: Path):
    source = write_lines(tmp_path / "a.jsonl", [{"x": 1}, {"x": None}])

    with pytest.raises(BatchError, match="'x' of record 1 is null"):
        run(source, tmp_path / "out")

    run(source, tmp_path / "out.parquet")
    assert all_of(ParquetSource(str(tmp_path / "out.parquet" / "*"))) == [{"x": 1}, {"x": None}]


@pytest.mark.parametrize("name", ["numpy", "sqlite", "json_lines"])
def test_the_features_file_restores_the_records(tmp_path: Path, name: str):
    source = MAKERS[name](tmp_path)
    run(source, tmp_path / "out")

    parse = ParseExample.read(tmp_path / "out" / "features.json")

    written = ArrayRecordDataSource(str(tmp_path / "out" / "*.array_record"))
    assert [plain(parse.map(record)) for record in written] == all_of(open_source(source))


def test_shapes_and_types_are_saved_in_the_features_file(tmp_path: Path):
    run(MAKERS["numpy"](tmp_path), tmp_path / "out")

    features = json.loads((tmp_path / "out" / "features.json").read_text())
    assert features == {
        "image": {"dtype": "uint8", "shape": [8, 9], "is_raw": True},
        "label": {"dtype": "int64", "shape": []},
    }


def test_a_shard_has_about_the_requested_size(tmp_path: Path):
    np.save(tmp_path / "a.npy", np.zeros((1000, 1000), np.uint8))

    run(str(tmp_path / "a.npy"), tmp_path / "out", to="npy", shard_bytes=300_000)

    sizes = [path.stat().st_size for path in (tmp_path / "out").iterdir()]
    assert len(sizes) == 4
    assert max(sizes) < 301_000


@pytest.mark.parametrize("kind", ["folder", "file", "link"])
def test_nothing_is_overwritten(tmp_path: Path, kind: str):
    source, target = MAKERS["numpy"](tmp_path), tmp_path / "out"
    make: Callable[[], Any] = {
        "folder": target.mkdir,
        "file": target.touch,
        "link": lambda: target.symlink_to(tmp_path / "nowhere"),
    }[kind]
    make()

    with pytest.raises(PlanError, match="already exists, and nothing is overwritten"):
        run(source, target)

    assert {path.name for path in tmp_path.iterdir()} == {"a.npz", "out"}


def rows(count: int) -> list[dict[str, Any]]:
    return [{"id": number, "text": f"text {number}"} for number in range(count)]


def write_lines(path: Path, records: list[Any]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def test_a_record_that_differs_is_named_and_no_files_are_left(tmp_path: Path):
    bad = [*rows(900), {"id": "text", "text": "x"}, *rows(99)]
    source = write_lines(tmp_path / "a.jsonl", bad)

    with pytest.raises(
        BatchError, match=r"Record 900 differs from the first records: 'id' is not int64"
    ):
        run(source, tmp_path / "out", to="parquet")

    assert {path.name for path in tmp_path.iterdir() if "index" not in path.name} == {"a.jsonl"}


def test_complete_shards_are_kept_after_a_bad_record(tmp_path: Path):
    source = write_lines(tmp_path / "a.jsonl", [*rows(900), {"id": {}, "text": ""}])

    with pytest.raises(GristmillError) as raised:
        run(source, tmp_path / "out", records_per_shard=400)

    assert "2 of 3 shards are complete, in" in "".join(raised.value.__notes__)
    left = {path.name for path in (tmp_path / "out.partial").iterdir()}
    assert left == {
        "plan.json",
        "out-00000-of-00003.array_record",
        "out-00001-of-00003.array_record",
    }


def test_strings_in_a_npy_file_are_refused(tmp_path: Path):
    source = write_lines(tmp_path / "a.jsonl", rows(3))

    with pytest.raises(BatchError, match=r"'text' is <U6, and `\.npy` files can only hold numbers"):
        run(source, tmp_path / "out", to="npy")


def test_a_wrong_shape_in_a_npy_file_is_refused(tmp_path: Path):
    source = write_lines(tmp_path / "a.jsonl", [{"x": [1, 2]}] * 300 + [{"x": [1]}])

    with pytest.raises(BatchError, match=r"Record 300 .* 'x' is int64\[1\], not int64\[2\]"):
        run(source, tmp_path / "out", to="npy")


def test_a_source_without_records_is_refused(tmp_path: Path):
    source = write_lines(tmp_path / "a.jsonl", [])

    with pytest.raises(SourceError, match="has no records"):
        run(source, tmp_path / "out")


ONE_BY_ONE = ["--records-per-shard", "1"]


def stop_after(tmp_path: Path, source: str, shards: int, number: signal.Signals) -> tuple[int, str]:
    """Run the command in a process, and send it a signal once `shards` shards are written."""
    process = subprocess.Popen(
        [sys.executable, "-m", "gristmill", "convert", source, str(tmp_path / "out"), *ONE_BY_ONE],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    partial = tmp_path / "out.partial"
    while process.poll() is None and len(list(partial.glob("*.array_record"))) < shards:
        os.sched_yield()
    process.send_signal(number)
    printed, _ = process.communicate(timeout=60)
    return process.returncode, printed


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_stopped_conversion_is_resumed(tmp_path: Path, number: signal.Signals):
    source = write_lines(tmp_path / "a.jsonl", rows(600))
    code, printed = stop_after(tmp_path, source, 3, number)
    partial = tmp_path / "out.partial"
    done = len(json.loads((partial / "plan.json").read_text())["done"])
    before = {path.name: path.stat().st_mtime_ns for path in partial.glob("*.array_record")}
    assert 2 <= done < 600
    if number is signal.SIGINT:
        assert code == 130
        sentence = re.fullmatch(
            r"Interrupted: (\d+) of 600 shards are complete. "
            r"Run the same command again to resume.\n",
            printed,
        )
        assert sentence is not None
        # The signal may arrive right after a shard was written.
        assert 0 <= done - int(sentence[1]) <= 1
        assert not (partial / ".part").exists()
        for name in before:
            assert len(ArrayRecordDataSource(partial / name)) == 1  # only complete shards

    printed = run(source, tmp_path / "out", records_per_shard=1)

    after = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    complete = sorted(before)[:done]
    assert f"Resuming: {done} of 600 shards are complete." in printed
    assert [after[name] for name in complete] == [before[name] for name in complete]
    assert not partial.exists()
    written = ArrayRecordDataSource(str(tmp_path / "out" / "*.array_record"))
    assert [parse_example(record)["id"][0] for record in written] == list(range(600))


def interrupted_at(line: int, function: Callable[..., Any], call: Callable[[], object]) -> bool:
    """Run `call` with a Ctrl-C at the `line`-th line of `function`; return if it got there."""
    remaining = line

    def at_line(frame: FrameType, event: str, _: object) -> Any:
        nonlocal remaining
        if event == "line":
            remaining -= 1
            if remaining < 0:
                sys.settrace(None)
                raise KeyboardInterrupt
        return at_line

    def at_call(frame: FrameType, event: str, _: object) -> Any:
        return at_line if frame.f_code is function.__code__ else None

    before = sys.gettrace()
    sys.settrace(at_call)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def test_an_interrupt_at_any_line_leaves_no_incomplete_shard(tmp_path: Path):
    source = write_lines(tmp_path / "a.jsonl", rows(2))
    lines = 0
    while True:
        target = tmp_path / f"out{lines}"
        call = functools.partial(run, source, target, records_per_shard=1)
        if not interrupted_at(lines, PartialOutput.write_shard, call):
            break
        assert not (tmp_path / f"out{lines}.partial" / ".part").exists()
        call()
        written = ArrayRecordDataSource(str(target / "*.array_record"))
        assert [parse_example(record)["id"][0] for record in written] == [0, 1]
        lines += 1
    assert lines > 15  # two shards


def test_a_conversion_of_changed_files_is_not_resumed(tmp_path: Path):
    source = write_lines(tmp_path / "a.jsonl", [*rows(25), {"id": {}, "text": ""}])
    with pytest.raises(GristmillError):
        run(source, tmp_path / "out", records_per_shard=10)
    write_lines(tmp_path / "a.jsonl", rows(26))

    with pytest.raises(PlanError, match="another conversion: the files of SRC have changed"):
        run(source, tmp_path / "out", records_per_shard=10)


def test_another_conversion_is_not_resumed(tmp_path: Path):
    source = write_lines(tmp_path / "a.jsonl", [*rows(20), {"id": {}, "text": ""}])
    with pytest.raises(GristmillError):
        run(source, tmp_path / "out", records_per_shard=10)

    with pytest.raises(PlanError, match="the number of records per shard was 10 and is 5"):
        run(source, tmp_path / "out", records_per_shard=5)


def test_a_folder_with_other_files_is_left_unchanged(tmp_path: Path):
    source = write_lines(tmp_path / "a.jsonl", rows(3))
    (tmp_path / "out.partial").mkdir()
    (tmp_path / "out.partial" / "thesis.tex").write_text("precious")

    with pytest.raises(PlanError, match="contains files that are not from a conversion"):
        run(source, tmp_path / "out")

    assert (tmp_path / "out.partial" / "thesis.tex").read_text() == "precious"


def test_the_suffix_selects_the_format():
    formats = {
        name: Conversion(source="a", target=name).output.format
        for name in ("x.parquet", "x.npy", "x.array_record", "x", "x.tar", "x.tfrecord")
    }

    assert formats == {
        "x.parquet": "parquet",
        "x.npy": "npy",
        "x.array_record": "array_record",
        "x": "array_record",
        "x.tar": "tar",
        "x.tfrecord": "tfrecord",
    }


@pytest.mark.parametrize("to", [None, "array_record"])
def test_a_suffix_of_a_format_that_is_not_written_is_refused(to: str | None):
    with pytest.raises(PlanError, match=r"suffix of a format that is not written\. Choose one of"):
        _ = Conversion(source="a", target="x.csv", to=to).output


def test_a_suffix_of_another_format_than_that_to_write_is_refused():
    with pytest.raises(PlanError, match=r"x\.tar has the suffix of tar, .* is array_record\."):
        _ = Conversion(source="a", target="x.tar", to="array_record").output
    assert Conversion(source="a", target="x.tar", to="tar").output.format == "tar"
    assert Conversion(source="a", target="x", to="tar").output.format == "tar"
    assert Conversion(source="a", target="x.1", to="tar").output.format == "tar"


def test_the_names_of_classes_are_kept(tmp_path: Path):
    run(MAKERS["image_folder"](tmp_path), tmp_path / "out")

    source: Any = open_source(MAKERS["image_folder"](tmp_path / "again"))
    assert json.loads((tmp_path / "out" / "classes.json").read_text()) == list(source.classes)

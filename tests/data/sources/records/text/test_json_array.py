import json
from pathlib import Path

import pytest

from gristmill._data.sources.records.text.json_array import JsonArraySource
from gristmill.errors import CorruptFileError
from gristmill.testing import SourceSuite


class TestJsonArraySource(SourceSuite):
    @pytest.fixture
    def source(self, tmp_path: Path) -> JsonArraySource:
        for number in range(2):
            items = [{"id": i, "words": ["a,", "]"] * (i % 3)} for i in range(20)]
            (tmp_path / f"{number}.json").write_text(json.dumps(items, indent=number or None))
        return JsonArraySource(tmp_path / "*.json")


def test_an_item_that_is_not_json_is_an_error_of_its_record(tmp_path: Path):
    (tmp_path / "a.json").write_text('[{"a": 1}, {"a": x}, 3]')
    source = JsonArraySource(tmp_path / "a.json")
    assert source.__getitems__([2, 0]) == [3, {"a": 1}]
    with pytest.raises(CorruptFileError, match=r"^The item is not JSON \(Expecting value\)") as got:
        source[1]
    assert (got.value.record, got.value.offset) == (1, 17)


def test_a_missing_item_is_an_error_of_its_record(tmp_path: Path):
    (tmp_path / "a.json").write_text("[1, 2, ]")
    source = JsonArraySource(tmp_path / "a.json")
    assert len(source) == 3
    with pytest.raises(CorruptFileError, match=r"^The item is not JSON"):
        source[2]

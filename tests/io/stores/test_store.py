"""The version of a remote file identifies its content as well as the store allows."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from gristmill._io.stores.store import is_unchanged, make_ref
from gristmill.errors import StoreError
from gristmill.options import StorageOptions

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


def ref(**info: Any):
    return make_ref("s3://bucket/a.bin", {"size": 10, **info}, StorageOptions())


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"ETag": "1"}, {"ETag": "1"}, True),
        ({"ETag": "1"}, {"ETag": "2"}, False),
        ({"ETag": "1", "mtime": 1}, {"ETag": "1", "mtime": 2}, True),
        ({"mtime": 1}, {"mtime": 2}, False),
        ({"LastModified": NOON}, {"LastModified": NOON + timedelta(seconds=1)}, False),
        ({"ETag": "1"}, {"ETag": "1", "size": 11}, False),
        ({}, {}, True),
        ({}, {"size": 11}, False),
    ],
)
def test_a_tag_then_a_date_then_the_size_shows_a_change(
    before: dict[str, Any], after: dict[str, Any], expected: bool
):
    assert is_unchanged(ref(**before), ref(**after)) is expected


def test_the_same_time_in_another_time_zone_is_the_same_version():
    local = NOON.astimezone(timezone(timedelta(hours=5)))

    assert ref(LastModified=NOON).version == ref(LastModified=local).version


def test_files_of_unknown_versions_never_share_a_cache():
    assert ref().version != ref().version


def test_a_file_of_unknown_size_is_an_error():
    with pytest.raises(StoreError, match=r"does not report the size .*\(s3://bucket/a\.bin\)$"):
        ref(size=None)

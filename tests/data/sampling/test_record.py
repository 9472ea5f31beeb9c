import numpy as np

from gristmill import Record, RecordMetadata


def test_metadata_without_its_key_keeps_the_rest():
    rng = np.random.default_rng(0)
    metadata = RecordMetadata(index=3, record_key=7, rng=rng)
    bare = metadata.remove_record_key()
    assert (bare.index, bare.record_key, bare.rng) == (3, None, rng)
    assert metadata.record_key == 7


def test_metadata_print_their_values():
    assert str(RecordMetadata(1, 2)) == "RecordMetadata(index=1, record_key=2, rng=None)"


def test_a_record_holds_metadata_and_data():
    record = Record(RecordMetadata(1, 2), {"x": 1})
    assert record.metadata.record_key == 2
    assert record.data == {"x": 1}

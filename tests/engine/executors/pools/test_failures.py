"""When a pool gives up trying, and what the error reports."""

from collections.abc import Callable

from gristmill import Batch, DataLoader, IndexSampler
from gristmill._engine.access.cut import Cut
from gristmill._engine.executors.pools.failures import RestartLimit, fatal_records_error

MakeCut = Callable[..., Cut]


def test_three_failed_starts_in_a_row_are_too_many():
    limit = RestartLimit(max_restarts=100)
    assert limit.record_death(was_ready=False, reason="exit code 1") is None
    assert limit.record_death(was_ready=False, reason="exit code 1") is None

    assert str(limit.record_death(was_ready=False, reason="exit code 1")) == (
        "3 workers in a row died while they started: exit code 1."
    )


def test_a_worker_that_starts_ends_the_row_of_failed_starts():
    limit = RestartLimit(max_restarts=100)
    for _ in range(10):
        assert limit.record_death(was_ready=False, reason="exit code 1") is None
        assert limit.record_death(was_ready=False, reason="exit code 1") is None
        limit.record_start()


def test_as_many_workers_may_die_as_the_user_allows():
    limit = RestartLimit(max_restarts=2)
    assert limit.record_death(was_ready=True, reason="exit code 1") is None
    assert limit.record_death(was_ready=True, reason="exit code 1") is None

    assert str(limit.record_death(was_ready=True, reason="signal SIGSEGV")) == (
        "More than 2 workers died (last cause: signal SIGSEGV). "
        "Raise `max_restarts` in `WorkerOptions`."
    )


def error_of(cut: Cut, positions: range, record: int | None) -> str:
    return str(fatal_records_error(cut, positions, record, tries=3, reason="exit code 7"))


REST = (
    " killed its worker 3 times, the last time by exit code 7. "
    "Leave it out of the source, or fix the code that reads it."
)


def test_a_record_that_was_reported_is_named_by_its_index_in_the_source(make_cut: MakeCut):
    cut = make_cut(range(60), Batch(5), shuffle=True)
    index = DataLoader(
        data_source=range(60), sampler=IndexSampler(60, shuffle=True, seed=5, num_epochs=1)
    )
    record = list(index)[12]

    assert error_of(cut, range(2, 3), 12) == (
        f"Record {record} of the source (position 12 of the stream){REST}"
    )


def test_a_position_of_one_record_names_that_record(make_cut: MakeCut):
    assert error_of(make_cut(range(60)), range(7, 8), None) == (
        f"Record 7 of the source (position 7 of the stream){REST}"
    )


def test_records_that_kill_only_together_are_named_as_a_range(make_cut: MakeCut):
    assert error_of(make_cut(range(60), Batch(5)), range(2, 4), None) == (
        "Something in the records from record 10 of the source (position 10 of the stream) to "
        f"position 19, though none of them by itself,{REST}"
    )

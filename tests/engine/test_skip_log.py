import logging

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gristmill as gm


def fail(number: int) -> int:
    raise ValueError(f"no {number}")


def skipping(count: int) -> gm.DataLoader:
    return gm.load(
        range(count), num_epochs=1, transformations=[fail], on_error=gm.SkipErrors(count)
    )


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]


def test_the_first_skipped_records_have_a_line_each_and_the_others_share_some(
    caplog: pytest.LogCaptureFixture,
):
    assert list(skipping(47)) == []
    assert warnings_of(caplog) == [
        *(f"Skipped record {n}, because Map fail raised ValueError: no {n}." for n in range(5)),
        *(
            f"Skipped {n} bad records so far, the last one record {n - 1}, because Map fail raised "
            f"ValueError: no {n - 1}."
            for n in (10, 20, 40)
        ),
        "Skipped 47 bad records in all.",
    ]


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(count=st.integers(1, 600))
def test_the_last_line_has_the_number_and_lines_are_few(
    count: int, caplog: pytest.LogCaptureFixture
):
    caplog.clear()
    list(skipping(count))
    lines = warnings_of(caplog)
    assert len(lines) <= 5 + max(0, count // 5).bit_length() + 1
    if count > 5:
        assert f"{count} bad records" in lines[-1]
    else:
        assert len(lines) == count


def test_a_run_that_is_closed_logs_the_number_once(caplog: pytest.LogCaptureFixture):
    def fail_up_to_seven(number: int) -> int:
        return number if number > 7 else fail(number)

    loader = gm.load(
        range(20), transformations=[fail_up_to_seven], on_error=gm.SkipErrors(20), num_epochs=1
    )
    iterator = iter(loader)
    assert next(iterator) == 8
    iterator.close()
    iterator.close()
    assert warnings_of(caplog)[5:] == ["Skipped 8 bad records in all."]


def test_control_characters_and_long_messages_of_errors_are_not_logged(
    caplog: pytest.LogCaptureFixture,
):
    def fail_with_data(number: int) -> int:
        raise ValueError("\x1b[2J" + "x" * 10_000)

    loader = gm.load([1], transformations=[fail_with_data], on_error=gm.SkipErrors(1), num_epochs=1)
    assert list(loader) == []
    (line,) = warnings_of(caplog)
    assert "\x1b" not in line
    assert len(line) < 500

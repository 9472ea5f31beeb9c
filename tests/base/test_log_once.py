import logging

import pytest

from gristmill._base.log_once import is_first, log_once


def test_a_cause_is_logged_once(caplog: pytest.LogCaptureFixture):
    for count in (1, 2):
        log_once("test a cause", "%d of them", count)
    log_once("test another cause", "another one")

    assert [(record.levelno, record.getMessage()) for record in caplog.records] == [
        (logging.WARNING, "1 of them"),
        (logging.WARNING, "another one"),
    ]
    assert not is_first("test a cause")

import signal
import threading

import pytest

from gristmill.demo._interrupt import interrupts_afterwards


def test_an_interrupt_is_raised_when_the_block_is_done():
    steps: list[str] = []

    def interrupted() -> None:
        with interrupts_afterwards():
            signal.raise_signal(signal.SIGINT)
            steps.append("in the block")
        steps.append("after the block")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert steps == ["in the block"]


def test_the_handler_is_put_back_whatever_happens():
    before = signal.getsignal(signal.SIGINT)
    with interrupts_afterwards():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(LookupError), interrupts_afterwards():
        raise LookupError
    assert signal.getsignal(signal.SIGINT) is before


def test_another_thread_leaves_the_handler_alone():
    seen: list[object] = []

    def look() -> None:
        with interrupts_afterwards():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]

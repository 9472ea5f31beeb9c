import signal
import threading

import pytest

from gristmill._demo.interrupt import delay_interrupts


def test_an_interrupt_is_raised_at_the_end_of_the_block():
    steps: list[str] = []

    def interrupted() -> None:
        with delay_interrupts():
            signal.raise_signal(signal.SIGINT)
            steps.append("in the block")
        steps.append("after the block")

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert steps == ["in the block"]


def test_the_handler_is_restored_even_after_an_error():
    before = signal.getsignal(signal.SIGINT)
    with delay_interrupts():
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(LookupError), delay_interrupts():
        raise LookupError
    assert signal.getsignal(signal.SIGINT) is before


def test_another_thread_does_not_change_the_handler():
    seen: list[object] = []

    def read_handler() -> None:
        with delay_interrupts():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=read_handler)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]

"""The line between the parent and a worker."""

import gc
import os
import pickle
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill._engine.executors.ipc.channel import Channel

Line = tuple[Channel, Channel]


@pytest.fixture
def line() -> Iterator[Line]:
    """Give both ends of a line."""
    mine, theirs = map(Channel, socket.socketpair())
    yield mine, theirs
    mine.close()
    theirs.close()


@pytest.fixture
def raw() -> Iterator[tuple[Channel, socket.socket]]:
    """Give an end of a line whose other end is a plain socket."""
    mine, theirs = socket.socketpair()
    channel = Channel(mine)
    yield channel, theirs
    channel.close()
    theirs.close()


@pytest.fixture
def file() -> Iterator[int]:
    """Give the descriptor of a file that holds the word "gristmill"."""
    descriptor = os.memfd_create("test")
    os.write(descriptor, b"gristmill")
    yield descriptor
    os.close(descriptor)


def framed(message: Any) -> bytes:
    body = pickle.dumps(message)
    return struct.pack("<Q", len(body)) + body


def test_messages_arrive_in_order_in_both_directions(line: Line):
    mine, theirs = line
    sent = [("task", number, range(number, 10), [None, b"\0", "text"]) for number in range(50)]

    for message in sent:
        mine.send(message)
        theirs.send(("done", message[1]))

    assert [theirs.receive() for _ in sent] == sent
    assert [mine.receive() for _ in sent] == [("done", number) for number in range(50)]


def test_a_message_larger_than_any_buffer_arrives(line: Line):
    mine, theirs = line
    message = ("large", os.urandom(10_000_000))
    sender = threading.Thread(target=mine.send, args=(message,))
    sender.start()

    assert theirs.receive() == message

    sender.join()


def test_what_is_there_is_given_without_waiting(line: Line):
    mine, theirs = line
    assert theirs.receive_ready() == []

    mine.send(("one",))
    mine.send(("two",))

    assert theirs.receive_ready() == [("one",), ("two",)]
    assert theirs.receive_ready() == []
    assert not theirs.has_ended


@given(cuts=st.lists(st.integers(1, 60), min_size=1, max_size=30))
@settings(deadline=None)
def test_messages_that_come_in_pieces_are_put_together(cuts: list[int]):
    mine, theirs = socket.socketpair()
    channel = Channel(mine)
    sent = [("a", 1), ("b" * 100, [2]), ()]
    data = b"".join(map(framed, sent))
    received: list[Any] = []

    for cut in [*cuts, len(data)]:
        piece, data = data[:cut], data[cut:]
        theirs.sendall(piece)
        received += channel.receive_ready()

    assert received == sent
    channel.close()
    theirs.close()


def test_a_message_that_is_not_all_there_is_not_given(raw: tuple[Channel, socket.socket]):
    channel, theirs = raw
    data = framed(("whole", 1))

    theirs.sendall(data[:-1])
    assert channel.receive_ready() == []

    theirs.sendall(data[-1:])
    assert channel.receive_ready() == [("whole", 1)]


def test_at_the_end_what_was_sent_before_is_still_given(line: Line):
    mine, theirs = line
    mine.send(("last words",))
    mine.close()

    assert theirs.receive_ready() == [("last words",)]
    assert not theirs.has_ended
    assert theirs.receive_ready() == []
    assert theirs.has_ended
    assert theirs.receive() is None


def test_who_waits_learns_of_the_end(line: Line):
    mine, theirs = line
    received: list[Any] = []
    listener = threading.Thread(target=lambda: received.append(theirs.receive()))
    listener.start()

    mine.close()
    listener.join()

    assert received == [None]


def test_half_a_message_at_the_end_is_no_message(raw: tuple[Channel, socket.socket]):
    channel, theirs = raw
    theirs.sendall(framed(("never finished",))[:12])
    theirs.close()

    assert channel.receive() is None
    assert channel.has_ended


def test_an_end_that_was_killed_with_mail_unread_is_an_end_too(line: Line):
    mine, theirs = line
    mine.send(("never read",))
    theirs.close()  # which resets the line

    assert mine.receive() is None
    assert mine.has_ended


def test_sending_to_one_who_is_gone_is_a_connection_error(line: Line):
    mine, theirs = line
    theirs.close()

    with pytest.raises(ConnectionError):
        mine.send(("anybody?",))


def test_what_cannot_be_pickled_is_refused_before_anything_is_sent(line: Line):
    mine, theirs = line

    with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
        mine.send((threading.Lock(),))
    mine.send(("fine",))

    assert theirs.receive() == ("fine",)


def test_descriptors_arrive_in_the_order_they_were_sent(line: Line):
    mine, theirs = line
    files = [os.memfd_create(f"file {number}") for number in range(5)]
    for number, descriptor in enumerate(files):
        os.write(descriptor, b"%d" % number)

    mine.send(("none",))
    mine.send(("two",), files[:2])
    mine.send(("one",), files[2:3])
    mine.send(("two more",), files[3:])
    for descriptor in files:
        os.close(descriptor)

    assert [theirs.receive() for _ in range(4)] == [("none",), ("two",), ("one",), ("two more",)]
    arrived = [theirs.take_descriptor() for _ in range(5)]
    assert [os.pread(descriptor, 10, 0) for descriptor in arrived] == [b"0", b"1", b"2", b"3", b"4"]
    for descriptor in arrived:
        os.close(descriptor)


def test_a_descriptor_comes_along_with_a_message_of_any_size(line: Line, file: int):
    mine, theirs = line
    sent = [("large", bytes(3_000_000)), ("small",), ("large", bytes(1_000_000))]

    def send() -> None:
        for message in sent:
            mine.send(message, [file])

    sender = threading.Thread(target=send)
    sender.start()
    for message in sent:
        assert theirs.receive() == message
        arrived = theirs.take_descriptor()
        assert os.pread(arrived, 20, 0) == b"gristmill"
        os.close(arrived)
    sender.join()


def test_a_descriptor_stays_open_where_it_was_and_is_not_inherited_where_it_came(
    line: Line, file: int
):
    mine, theirs = line
    mine.send(("here",), [file])
    assert theirs.receive() == ("here",)

    arrived = theirs.take_descriptor()

    assert arrived != file
    assert not os.get_inheritable(arrived)
    os.close(arrived)
    assert os.pread(file, 20, 0) == b"gristmill"


def test_descriptors_that_nobody_took_are_closed_with_the_line(line: Line, file: int):
    mine, theirs = line
    before = set(os.listdir("/proc/self/fd"))
    mine.send(("here",), [file, file])
    theirs.receive()
    assert len(set(os.listdir("/proc/self/fd")) - before) == 2

    theirs.close()

    assert set(os.listdir("/proc/self/fd")) <= before


def test_a_line_is_closed_once_and_for_all(line: Line):
    mine, theirs = line
    mine.close()
    mine.close()
    theirs.close()
    gc.collect()

    assert mine.fileno() == -1

"""The connection between the parent and a worker."""

import contextlib
import gc
import os
import pickle
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gristmill._engine.executors.processes.channel import Channel, InvalidMessageError, frame

Pair = tuple[Channel, Channel]


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Return both ends of a connection."""
    mine, theirs = map(Channel, socket.socketpair())
    yield mine, theirs
    mine.close()
    theirs.close()


@pytest.fixture
def raw() -> Iterator[tuple[Channel, socket.socket]]:
    """Return an end of a connection whose other end is a plain socket."""
    mine, theirs = socket.socketpair()
    channel = Channel(mine)
    yield channel, theirs
    channel.close()
    theirs.close()


@pytest.fixture
def file() -> Iterator[int]:
    """Return the descriptor of a file that contains the word "gristmill"."""
    descriptor = os.memfd_create("test")
    os.write(descriptor, b"gristmill")
    yield descriptor
    os.close(descriptor)


def framed(message: Any) -> bytes:
    return frame(pickle.dumps(message))


def test_messages_arrive_in_order_in_both_directions(pair: Pair):
    mine, theirs = pair
    sent = [("task", number, range(number, 10), [None, b"\0", "text"]) for number in range(50)]

    for message in sent:
        mine.send(message)
        theirs.send(("done", message[1]))

    assert [theirs.receive() for _ in sent] == sent
    assert [mine.receive() for _ in sent] == [("done", number) for number in range(50)]


def test_a_message_larger_than_any_buffer_arrives(pair: Pair):
    mine, theirs = pair
    message = ("large", os.urandom(10_000_000))
    sender = threading.Thread(target=mine.send, args=(message,))
    sender.start()

    assert theirs.receive() == message

    sender.join()


def test_messages_that_have_arrived_are_received_without_waiting(pair: Pair):
    mine, theirs = pair
    assert list(theirs.receive_ready()) == []

    mine.send(("one",))
    mine.send(("two",))

    assert list(theirs.receive_ready()) == [("one",), ("two",)]
    assert list(theirs.receive_ready()) == []
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
        received += list(channel.receive_ready())

    assert received == sent
    channel.close()
    theirs.close()


def test_an_incomplete_message_is_not_received(raw: tuple[Channel, socket.socket]):
    channel, theirs = raw
    data = framed(("whole", 1))

    theirs.sendall(data[:-1])
    assert list(channel.receive_ready()) == []

    theirs.sendall(data[-1:])
    assert list(channel.receive_ready()) == [("whole", 1)]


def test_messages_that_were_sent_before_the_end_are_received(pair: Pair):
    mine, theirs = pair
    mine.send(("last words",))
    mine.close()

    assert list(theirs.receive_ready()) == [("last words",)]
    assert not theirs.has_ended
    assert list(theirs.receive_ready()) == []
    assert theirs.has_ended
    assert theirs.receive() is None


def test_the_end_is_noticed_while_waiting(pair: Pair):
    mine, theirs = pair
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


def test_an_end_that_closes_with_messages_unread_is_an_end_too(pair: Pair):
    mine, theirs = pair
    mine.send(("never read",))
    theirs.close()  # which resets the connection

    assert mine.receive() is None
    assert mine.has_ended


def test_sending_to_a_closed_end_is_a_connection_error(pair: Pair):
    mine, theirs = pair
    theirs.close()

    with pytest.raises(ConnectionError):
        mine.send(("lost",))


def test_what_cannot_be_pickled_is_refused_before_anything_is_sent(pair: Pair):
    mine, theirs = pair

    with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
        mine.send((threading.Lock(),))
    mine.send(("fine",))

    assert theirs.receive() == ("fine",)


def test_descriptors_arrive_in_the_order_they_were_sent(pair: Pair):
    mine, theirs = pair
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


def test_a_descriptor_comes_along_with_a_message_of_any_size(pair: Pair, file: int):
    mine, theirs = pair
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
    pair: Pair, file: int
):
    mine, theirs = pair
    mine.send(("here",), [file])
    assert theirs.receive() == ("here",)

    arrived = theirs.take_descriptor()

    assert arrived != file
    assert not os.get_inheritable(arrived)
    os.close(arrived)
    assert os.pread(file, 20, 0) == b"gristmill"


def test_descriptors_that_were_not_taken_are_closed_with_the_channel(pair: Pair, file: int):
    mine, theirs = pair
    before = set(os.listdir("/proc/self/fd"))
    mine.send(("here",), [file, file])
    theirs.receive()
    assert len(set(os.listdir("/proc/self/fd")) - before) == 2

    theirs.close()

    assert set(os.listdir("/proc/self/fd")) <= before


def test_a_channel_may_be_closed_twice(pair: Pair):
    mine, theirs = pair
    mine.close()
    mine.close()
    theirs.close()
    gc.collect()

    assert mine.fileno() == -1


# Bytes that are not a message: user code wrote to the wrong descriptor


@pytest.mark.parametrize("junk", [b"x", b"text\n", bytes(100), b"\x93gx", b"\xff" * 8], ids=repr)
def test_other_bytes_are_an_error_at_once(raw: tuple[Channel, socket.socket], junk: bytes):
    channel, theirs = raw
    theirs.sendall(junk)

    with pytest.raises(InvalidMessageError, match="starts with"):
        list(channel.receive_ready())


def test_messages_before_other_bytes_are_received(raw: tuple[Channel, socket.socket]):
    channel, theirs = raw
    theirs.sendall(framed(("one",)) + framed(("two",)) + b"junk")
    messages = channel.receive_ready()

    assert [next(messages), next(messages)] == [("one",), ("two",)]
    with pytest.raises(InvalidMessageError):
        next(messages)


@pytest.mark.parametrize("body", [b"", b"junk", pickle.dumps(None), b"cno_such_module\nname\n."])
def test_a_message_that_is_no_pickle_of_an_object_is_an_error(
    raw: tuple[Channel, socket.socket], body: bytes
):
    channel, theirs = raw
    theirs.sendall(frame(body))

    with pytest.raises(InvalidMessageError):
        channel.receive()


@given(junk=st.binary(min_size=1, max_size=40))
@settings(deadline=None)
def test_no_bytes_are_taken_for_a_message(junk: bytes):
    mine, theirs = socket.socketpair()
    channel = Channel(mine)
    theirs.sendall(junk)
    theirs.close()

    with contextlib.suppress(InvalidMessageError):
        assert channel.receive() is None  # the start of a signature, and then the end
    channel.close()


def test_a_descriptor_that_did_not_come_along_is_an_error(pair: Pair):
    mine, theirs = pair
    mine.send(("here",))
    theirs.receive()

    with pytest.raises(InvalidMessageError, match="did not come along"):
        theirs.take_descriptor()

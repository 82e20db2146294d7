"""The line between judge and runner: objects both ways, deadlines kept, and nonsense named as such."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gfast_pipeline.bench.channel import LINE_LIMIT, Channel, ChannelError, Deadline

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, Channel]]:
    """A raw end to say anything on, and a channel that listens."""
    raw, ours = socket.socketpair()
    channel = Channel(ours)
    yield raw, channel
    raw.close()
    channel.close()


@given(st.lists(st.dictionaries(st.text(), plain, max_size=4), min_size=1, max_size=5))
@settings(deadline=None, max_examples=50)
def test_objects_arrive_as_sent_and_in_order(messages):
    left, right = map(Channel, socket.socketpair())
    try:
        for message in messages:
            left.send(message)
        assert [right.receive(5) for _ in messages] == messages
    finally:
        left.close()
        right.close()


def test_an_object_sent_in_crumbs_is_put_together(ends):
    raw, channel = ends

    def crumbs() -> None:
        for byte in json.dumps({"text": "µ → ok"}, ensure_ascii=False).encode() + b"\n":
            raw.send(bytes([byte]))
            time.sleep(0.002)

    thread = threading.Thread(target=crumbs)
    thread.start()
    assert channel.receive(5) == {"text": "µ → ok"}
    thread.join()


def test_the_deadline_holds_against_one_who_talks_without_ending(ends):
    raw, channel = ends
    done = threading.Event()

    def drip() -> None:
        while not done.wait(0.02):
            raw.send(b" ")

    thread = threading.Thread(target=drip)
    thread.start()
    began = time.monotonic()
    with pytest.raises(Deadline, match=r"no answer within 0\.3 s"):
        channel.receive(0.3)
    assert time.monotonic() - began < 2
    done.set()
    thread.join()


def test_an_end_without_a_word_is_no_deadline(ends):
    raw, channel = ends
    raw.close()
    with pytest.raises(ChannelError, match="ended without an answer") as caught:
        channel.receive(5)
    assert not isinstance(caught.value, Deadline)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"hello", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"a": ' * 50_000, "not JSON"),
        (b"[1, 2]", "not an object"),
        (b"null", "not an object"),
        (b"\x80\x04\x95pickle", "not JSON"),
    ],
)
def test_what_is_no_object_is_refused_in_words(ends, line, words):
    raw, channel = ends
    thread = threading.Thread(target=raw.sendall, args=(line + b"\n",))
    thread.start()
    with pytest.raises(ChannelError, match=words):
        channel.receive(5)
    thread.join()


def test_a_line_that_never_ends_is_cut_off(ends):
    raw, channel = ends

    def flood() -> None:
        try:
            while True:
                raw.sendall(b"x" * (1 << 20))
        except OSError:
            return

    thread = threading.Thread(target=flood)
    thread.start()
    with pytest.raises(ChannelError, match=f"longer than {LINE_LIMIT} bytes"):
        channel.receive(30)
    channel.close()
    thread.join()


def test_values_that_json_lacks_are_not_sent(ends):
    _, channel = ends
    with pytest.raises(ChannelError, match="could not be told"):
        channel.send({"share": float("nan")})


def test_nobody_listening_is_an_error_of_the_channel(ends):
    raw, channel = ends
    raw.close()
    with pytest.raises(ChannelError, match="could not be told"):
        for _ in range(3):
            channel.send({"text": "x" * 100_000})

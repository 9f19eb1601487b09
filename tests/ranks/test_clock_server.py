"""Who gets an answer of the clock server, over real connections on loopback."""

from __future__ import annotations

import time

import pytest

from hooktrace.ranks import clock_sync
from hooktrace.ranks.clock_server import ANSWER, PING
from hooktrace.ranks.clock_sync import measure
from tests.ranks.servers import Server


@pytest.mark.parametrize("token", ["00" * 16, "ff", "00" * 24], ids=len)
def test_a_stranger_gets_no_answer(server: Server, token: str) -> None:
    """Its connection is closed, and others go on."""
    with server.connect(token) as stranger, server.connect() as friend:
        stranger.sendall(bytes(24))
        with pytest.raises(ConnectionError):
            measure(stranger, time.perf_counter_ns, pings=1)
        assert measure(friend, time.perf_counter_ns, pings=1).pings == 1


def test_a_part_of_a_token_tells_nothing(server: Server) -> None:
    """Right or wrong, nothing happens before all of it is there: no byte can be guessed alone."""
    token = server.address.split()[2]
    wrong = f"{int(token[:2], 16) ^ 1:02x}"
    with server.connect(wrong) as guess, server.connect() as friend:
        measure(friend, time.perf_counter_ns, pings=3)
        guess.setblocking(False)
        with pytest.raises(BlockingIOError):  # it is open, and nothing has come
            guess.recv(1)
        guess.settimeout(5)
        guess.sendall(bytes.fromhex(token[2:]))
        assert guess.recv(1) == b""


def test_many_clients_at_once_and_one_that_leaves(server: Server) -> None:
    """In pieces of any size; nobody holds up the others."""
    first = server.connect()
    silent = server.connect()
    leaving = server.connect()
    leaving.close()
    for byte in PING.pack(5):
        first.sendall(bytes([byte]))
    answered, _, _ = ANSWER.unpack(clock_sync._receive(first, ANSWER.size))
    assert answered == 5
    with server.connect() as other:
        measure(other, time.perf_counter_ns)
    first.close()
    silent.close()


def test_of_many_without_the_token_the_oldest_are_closed(server: Server) -> None:
    """64 may be open; one that has shown it stays, however many come after it."""
    with server.connect() as friend:
        measure(friend, time.perf_counter_ns, pings=1)
        silent = [server.connect("") for _ in range(70)]
        assert measure(friend, time.perf_counter_ns, pings=1).pings == 1
        silent[0].settimeout(5)
        assert silent[0].recv(1) == b""
        silent[-1].sendall(bytes.fromhex(server.address.split()[2]))
        assert measure(silent[-1], time.perf_counter_ns, pings=1).pings == 1
        for connection in silent:
            connection.close()


def test_closing_ends_all_connections_and_may_come_twice() -> None:
    """Also at once after the start."""
    server = Server()
    with server.connect() as connection:
        measure(connection, time.perf_counter_ns, pings=1)
        server.server.close()
        server.server.close()
        assert connection.recv(1) == b""
    Server().server.close()

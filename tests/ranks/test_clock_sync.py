"""Clocks that are seconds apart, measured over real connections on loopback."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable

import pytest

from hooktrace.ranks import clock_sync
from hooktrace.ranks.clock_server import ANSWER
from hooktrace.ranks.clock_sync import ClockClient, measure
from hooktrace.records import ClockRecord
from tests.ranks.servers import S, Server


@pytest.mark.parametrize("ahead_ns", [0, 7 * S, -3 * S - 12345])
def test_an_offset_is_found_within_its_uncertainty(server: Server, ahead_ns: int) -> None:
    """However far the clocks are apart."""
    server.ahead_ns = ahead_ns
    with server.connect() as connection:
        before = time.perf_counter_ns()
        record = measure(connection, time.perf_counter_ns)
        after = time.perf_counter_ns()
    assert abs(record.offset_ns - ahead_ns) <= record.uncertainty_ns
    assert before < record.time_ns < after
    assert record.uncertainty_ns == -(-record.round_trip_ns // 2)
    assert record.pings == 32


def test_a_delay_one_way_stays_within_the_uncertainty() -> None:
    """A proxy that holds each ping for 5 ms and lets the answers through."""
    server = Server(2 * S)
    near, far = socket.socketpair()
    connection = server.connect()

    def forward() -> None:
        while data := far.recv(64):
            end = time.perf_counter_ns() + 5_000_000
            while time.perf_counter_ns() < end:
                pass
            connection.sendall(data)
            far.sendall(connection.recv(64))

    thread = threading.Thread(target=forward)
    thread.start()
    record = measure(near, time.perf_counter_ns, pings=8)
    near.close()
    thread.join(5)
    far.close()
    connection.close()
    server.server.close()
    assert record.round_trip_ns >= 5_000_000
    assert 1_000_000 < abs(record.offset_ns - 2 * S) <= record.uncertainty_ns


def test_the_shortest_round_trip_counts() -> None:
    """Of answers that come after 9, 1 and 5 ticks."""
    near, far = socket.socketpair()
    ticks = iter([0, 9, 100, 101, 200, 205])

    def answer() -> None:
        for at in (1004, 1100, 1202):
            far.recv(8)
            far.sendall(ANSWER.pack((at - 1000) // 100, at, at))

    thread = threading.Thread(target=answer)
    thread.start()
    record = measure(near, lambda: next(ticks), pings=3)
    thread.join(5)
    near.close()
    far.close()
    assert record == ClockRecord(
        time_ns=100, offset_ns=999, uncertainty_ns=1, round_trip_ns=1, pings=3
    )


def wait_for(reached: Callable[[], bool]) -> bool:
    """Poll for at most 20 s."""
    end = time.monotonic() + 20
    while not reached() and time.monotonic() < end:
        time.sleep(0.01)
    return reached()


def test_a_client_goes_on_when_its_server_is_replaced(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It waits for an address that answers, measures, and finds the next one by asking again."""
    monkeypatch.setattr(clock_sync, "_PAUSES_S", (0.02,))
    ended = Server(1 * S)
    ended.server.close()
    addresses: list[str | None] = [None, ended.address]
    found: list[ClockRecord] = []
    client = ClockClient(lambda: addresses[-1], time.perf_counter_ns, found.append)
    first, second = Server(5 * S), Server(9 * S)
    addresses.append(first.address)
    assert wait_for(lambda: len(found) >= 2)
    first.server.close()
    addresses.append(second.address)
    assert wait_for(lambda: abs(found[-1].offset_ns - 9 * S) <= found[-1].uncertainty_ns)
    client.close()
    second.server.close()
    assert abs(found[0].offset_ns - 5 * S) <= found[0].uncertainty_ns
    assert not caplog.records
    assert not [t for t in threading.enumerate() if t.name == "hooktrace-clock"]

"""How far this rank's clock is from rank 0's: pings on connections of their own.

    rank 0     ClockServer, a thread: answers each ping with when it came and when it was answered
    others     ClockClient, a thread: a burst of pings at once, after 1, 5 and then each 30 s
                 the shortest round trip of a burst --> ClockRecord --> the ring
    address    of rank 0, with a token of the job, through torch's key-value store

With t0 and t3 read by the client and t1 and t2 by the server, the offset is
((t1 - t0) + (t2 - t3)) / 2 and the round trip (t3 - t0) - (t2 - t1), as in NTP (D. Mills et al.,
RFC 5905, section 8).  Whatever delayed one way and not the other, half of the round trip bounds it;
the shortest of many is the one that nothing else delayed.

DESIGN asks for pings over the process group.  A thread that waits in a collective cannot be ended
safely, so these go over a TCP connection between the same hosts.
"""

from __future__ import annotations

import itertools
import logging
import secrets
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import torch.distributed as dist

from ..capture.clocks import Clock
from ..records import CLOCK_DRIFT, ClockRecord
from .job import restart_count

__all__ = ["ClockClient", "ClockServer", "ClockSync", "measure"]

logger = logging.getLogger("hooktrace")

_PINGS = 32
_TIMEOUT_S = 5.0
_END_S = 0.5
_PAUSE_S = 1.0
_MOST_STRANGERS = 64
"""Connections that have not shown the token; of more, the oldest are closed."""
_PAUSES_S = (1.0, 4.0, 25.0, 30.0)
"""Between bursts; the last one again and again."""
_FIRST_RETRY_S = 0.02
"""After which rank 0 is looked for again, where it was not there; then after twice that, and so on.
"""

_KEY = "hooktrace/clock/{}/{}"
_TOKEN_BYTES = 16
_PING, _ANSWER = struct.Struct("<q"), struct.Struct("<qqq")


class Store(Protocol):
    """What is needed of ``torch.distributed.Store``."""

    def set(self, key: str, value: str) -> None:
        """Set a key."""

    def get(self, key: str) -> bytes:
        """Return a key's value, which is there."""

    def check(self, keys: list[str]) -> bool:
        """Return whether all keys are there, at once."""


class ClockServer:
    """Answers pings on ``host`` with readings of ``clock``; ``address`` says where.

    A connection must begin with the token of ``address``, or it is closed.  Raises ``OSError``
    where it cannot listen.
    """

    def __init__(self, host: str, clock: Clock) -> None:
        self._clock = clock
        self._token = secrets.token_bytes(_TOKEN_BYTES)
        self._listener = socket.create_server((host, 0), family=_family(host))
        self._listener.setblocking(False)
        self._paused_until: float | None = None
        self._end, self._told_to_end = socket.socketpair()
        self.address = f"{host} {self._listener.getsockname()[1]} {self._token.hex()}"
        self._thread = threading.Thread(target=self._serve, name="hooktrace-clock", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread and close all connections."""
        with suppress(OSError):
            self._end.send(b".")
        self._thread.join(_END_S)

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector, self._listener, self._told_to_end, self._end:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._told_to_end, selectors.EVENT_READ)
            open_: dict[socket.socket, bytearray] = {}
            try:
                while True:
                    self._resume(selector)
                    for key, _ in selector.select(None if self._paused_until is None else _PAUSE_S):
                        now = self._clock()
                        if key.fileobj is self._told_to_end:
                            return
                        if key.fileobj is self._listener:
                            self._accept(selector, open_)
                        else:
                            self._answer(key.fileobj, now, selector, open_)
            finally:
                for connection in open_:
                    connection.close()

    def _accept(
        self, selector: selectors.BaseSelector, open_: dict[socket.socket, bytearray]
    ) -> None:
        try:
            connection, _ = self._listener.accept()
            connection.setblocking(False)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            # The process may be out of file descriptors: the listener would be ready again at once.
            selector.unregister(self._listener)
            self._paused_until = time.monotonic() + _PAUSE_S
            return
        open_[connection] = bytearray()
        selector.register(connection, selectors.EVENT_READ)
        strangers = [c for c, got in open_.items() if len(got) < _TOKEN_BYTES]
        for silent in strangers[:-_MOST_STRANGERS]:
            self._drop(silent, selector, open_)

    def _resume(self, selector: selectors.BaseSelector) -> None:
        if self._paused_until is not None and time.monotonic() >= self._paused_until:
            self._paused_until = None
            selector.register(self._listener, selectors.EVENT_READ)

    @staticmethod
    def _drop(
        connection: socket.socket,
        selector: selectors.BaseSelector,
        open_: dict[socket.socket, bytearray],
    ) -> None:
        selector.unregister(connection)
        del open_[connection]
        connection.close()

    def _answer(
        self,
        connection: Any,
        now: int,
        selector: selectors.BaseSelector,
        open_: dict[socket.socket, bytearray],
    ) -> None:
        got = open_[connection]
        try:
            data = connection.recv(64)
            got += data
            is_good = data and self._token.startswith(bytes(got[:_TOKEN_BYTES]))
            while is_good and len(got) >= _TOKEN_BYTES + _PING.size:
                (number,) = _PING.unpack_from(got, _TOKEN_BYTES)
                del got[_TOKEN_BYTES : _TOKEN_BYTES + _PING.size]
                connection.send(_ANSWER.pack(number, now, self._clock()))
        except OSError:
            is_good = False
        if not is_good:
            self._drop(connection, selector, open_)


def measure(connection: socket.socket, clock: Clock, pings: int = _PINGS) -> ClockRecord:
    """Return the best of ``pings`` round trips over a connection to a ``ClockServer``.

    The token has been sent.  Raises ``OSError`` where the other side is gone or does not answer.
    """
    best: tuple[int, int, int] | None = None
    for number in range(pings):
        t0 = clock()
        connection.sendall(_PING.pack(number))
        answered, t1, t2 = _ANSWER.unpack(_receive(connection, _ANSWER.size))
        t3 = clock()
        if answered != number:
            raise ConnectionError(f"an answer to ping {answered} came for ping {number}")
        round_trip = (t3 - t0) - (t2 - t1)
        if best is None or round_trip < best[0]:
            best = round_trip, (t1 - t0 + t2 - t3) // 2, (t0 + t3) // 2
    assert best is not None
    round_trip, offset, at = best
    return ClockRecord(
        time_ns=at,
        offset_ns=offset,
        uncertainty_ns=-(-round_trip // 2),
        round_trip_ns=round_trip,
        pings=pings,
    )


def _receive(connection: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        data = connection.recv(size - len(got))
        if not data:
            raise ConnectionError("rank 0 has closed the connection")
        got += data
    return got


class ClockClient:
    """Measures again and again, until it is closed; each measurement goes to ``report``.

    ``address``: asked before each burst that has no connection; ``None`` while it is not known.
    """

    def __init__(
        self,
        address: Callable[[], str | None],
        clock: Clock,
        report: Callable[[ClockRecord], None],
    ) -> None:
        self._address = address
        self._clock = clock
        self._report = report
        self._ended = threading.Event()
        self._connection: socket.socket | None = None
        self._warned = False
        self._thread = threading.Thread(target=self._run, name="hooktrace-clock", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._ended.set()
        connection = self._connection
        if connection is not None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # an answer that does not come is over
        self._thread.join(_END_S)

    def _run(self) -> None:
        pauses = list(_PAUSES_S)
        patience_s = _FIRST_RETRY_S
        while not self._ended.is_set():
            try:
                if self._connection is None:
                    self._connect()
                if self._connection is not None:
                    self._report(measure(self._connection, self._clock))
                    self._warned = True  # it works: rank 0 may well end before this one
            except Exception as error:  # of sockets, of torch's store, of a stranger's bytes
                self._disconnect()
                self._warn(error)
            if self._connection is None:
                self._ended.wait(patience_s)
                patience_s = min(2 * patience_s, _PAUSES_S[-1])
                continue
            patience_s = _FIRST_RETRY_S
            self._ended.wait(pauses[0])
            if len(pauses) > 1:
                pauses.pop(0)
        self._disconnect()

    def _connect(self) -> None:
        address = self._address()
        if address is None:
            return
        host, port, token = address.split()
        connection = socket.create_connection((host, int(port)), timeout=_TIMEOUT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(bytes.fromhex(token))
        self._connection = connection

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _warn(self, error: Exception) -> None:
        if not self._warned and not self._ended.is_set():
            self._warned = True
            logger.warning(
                "the clock of rank 0 cannot be asked (%s: %s), so a view of all ranks may be off "
                "by what their clocks are; let this host reach rank 0's over TCP, or pass "
                "Tracer(align_clocks=False)",
                type(error).__name__,
                error,
            )


class ClockSync:
    """The clock of this process in its job: serves it on rank 0, measures it on the others.

    ``report`` gets each measurement.  Without a job of several ranks it does nothing.
    """

    def __init__(self, clock: Clock, report: Callable[[ClockRecord], None]) -> None:
        self._report = report
        self._last: ClockRecord | None = None
        self._is_reference = False
        self._part: ClockServer | ClockClient | None = None
        self._lock = threading.Lock()
        self._closed = False
        try:
            self._begin(clock)
        except Exception as error:  # of torch's store, of sockets: none of training's business
            _warn_of(error)

    def _begin(self, clock: Clock) -> None:
        if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
            return
        store: Any = dist.distributed_c10d._get_default_store()
        # Tracers are made in the same order on all ranks, or else their clocks are the same.
        key = _KEY.format(restart_count(), next(_numbers))
        if dist.get_rank() == 0:
            self._is_reference = True
            # A thread, since finding the address may ask a name server.
            threading.Thread(
                target=self._serve, args=(store, key, clock), name="hooktrace-clock", daemon=True
            ).start()
        else:
            self._part = ClockClient(lambda: _published(store, key), clock, self._take)

    def _serve(self, store: Any, key: str, clock: Clock) -> None:
        try:
            server = ClockServer(_own_address(store), clock)
            with self._lock:
                if self._closed:
                    server.close()
                    return
                self._part = server
            store.set(key, server.address)
        except Exception as error:
            _warn_of(error)

    def offset_at(self, host_ns: int) -> tuple[int, int] | None:
        """Return the offset to rank 0's clock and its uncertainty, ns; ``None`` if unknown."""
        if self._is_reference:
            return 0, 0
        last = self._last
        if last is None:
            return None
        drift = int(abs(host_ns - last.time_ns) * CLOCK_DRIFT)
        return last.offset_ns, last.uncertainty_ns + drift

    def close(self) -> None:
        """End the thread."""
        with self._lock:
            self._closed = True
            part, self._part = self._part, None
        if part is not None:
            part.close()

    def _take(self, record: ClockRecord) -> None:
        self._last = record
        self._report(record)


_numbers = itertools.count()


def _warn_of(error: Exception) -> None:
    logger.warning(
        "this rank's clock is not compared with the others' (%s: %s); a view of all ranks may be "
        "off by what their clocks are",
        type(error).__name__,
        error,
    )


def _published(store: Store, key: str) -> str | None:
    return store.get(key).decode() if store.check([key]) else None


def _own_address(store: Any) -> str:
    """Return the address of this host that the others reach: by which it reaches the job's store.

    A store that is no server, a file, is of one host.
    """
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    host = getattr(store, "host", None)
    if not host:
        return "127.0.0.1"
    family, _, _, _, target = socket.getaddrinfo(host, store.port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        probe.connect(target)  # sends nothing: the kernel chooses a route
        return str(probe.getsockname()[0])


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET

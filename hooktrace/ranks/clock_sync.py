"""How far this rank's clock is from rank 0's: each rank's side of the comparison.

    rank 0     ClockServer (clock_server.py) --address and token--> the job's key-value store
    others     the store --address--> ClockClient --ClockRecord--> the tracer
                                                  --last one--> offset_at(time)

    burst of pings --> shortest round trip --> ClockRecord      at once, after 1, 5, then each 30 s

With t0 and t3 read by the client and t1 and t2 by the server, the offset is
((t1 - t0) + (t2 - t3)) / 2 and the round trip (t3 - t0) - (t2 - t1), as in NTP (D. Mills et al.,
RFC 5905, section 8).  Whatever delayed one way and not the other, half of the round trip bounds it;
the shortest of many is the one that nothing else delayed.
"""

from __future__ import annotations

import itertools
import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress

import torch.distributed as dist
from torch._C._distributed_c10d import Store

from ..capture.clocks import Clock
from ..records import CLOCK_DRIFT, ClockRecord
from .clock_server import ANSWER, PING, THREAD_NAME, ClockServer, warn_of
from .job import address_of_this_host, job_store, restart_count

logger = logging.getLogger("hooktrace")

_PINGS = 32
_TIMEOUT_S = 5.0
_END_S = 0.5
_PAUSES_S = (1.0, 4.0, 25.0, 30.0)
"""Between bursts; the last one again and again."""
_FIRST_RETRY_S = 0.02
"""After which rank 0 is looked for again, where it was not there; then after twice that, and so on.
"""

_KEY = "hooktrace/clock/{}/{}"
_NEWEST = "newest"
"""In place of the number: rank 0's last tracer."""
_LASTING_S = 2.0
"""A pause between looking for rank 0 after which it is not just late."""

_numbers = itertools.count()
"""Of this process's tracers.  Other ranks may have made more of them, or fewer: of a model that is
on some ranks only, for example."""


def measure(connection: socket.socket, clock: Clock, pings: int = _PINGS) -> ClockRecord:
    """Return the best of ``pings`` round trips over a connection to a ``ClockServer``.

    The token has been sent.  Raises ``OSError`` where the other side is gone or does not answer.
    """
    trips = [_ping(connection, clock, number) for number in range(pings)]
    round_trip, offset, at = min(trips, key=lambda trip: trip[0])
    return ClockRecord(
        time_ns=at,
        offset_ns=offset,
        uncertainty_ns=-(-round_trip // 2),
        round_trip_ns=round_trip,
        pings=pings,
    )


def _ping(connection: socket.socket, clock: Clock, number: int) -> tuple[int, int, int]:
    """Return a round trip, what it says of the offset, and when it was."""
    t0 = clock()
    connection.sendall(PING.pack(number))
    answered, t1, t2 = ANSWER.unpack(_receive(connection, ANSWER.size))
    t3 = clock()
    if answered != number:
        raise ConnectionError(f"an answer to ping {answered} came for ping {number}")
    return (t3 - t0) - (t2 - t1), (t1 - t0 + t2 - t3) // 2, (t0 + t3) // 2


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
        self._thread = threading.Thread(target=self._run, name=THREAD_NAME, daemon=True)
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
        pauses = itertools.chain(_PAUSES_S, itertools.repeat(_PAUSES_S[-1]))
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
                # Where nobody listens yet, or no more, the address is of an earlier tracer.
                if patience_s > _LASTING_S or not isinstance(error, ConnectionRefusedError):
                    self._warn(error)
            if self._connection is None:
                self._ended.wait(patience_s)
                patience_s = min(2 * patience_s, _PAUSES_S[-1])
                continue
            patience_s = _FIRST_RETRY_S
            self._ended.wait(next(pauses))
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
        self._part: ClockServer | ClockClient | None = None
        try:
            self._begin(clock)
        except Exception as error:  # of torch's store: none of training's business
            warn_of(error)

    def _begin(self, clock: Clock) -> None:
        if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
            return
        store = job_store()
        keys = [_KEY.format(restart_count(), number) for number in (next(_numbers), _NEWEST)]
        if dist.get_rank() == 0:
            self._part = ClockServer(
                lambda: address_of_this_host(store),
                clock,
                lambda address: _publish(store, keys, address),
            )
        else:
            # Rank 0's tracer of this number, which ends when this one does; else whichever it has.
            turns = itertools.cycle(keys)
            self._part = ClockClient(lambda: _published(store, next(turns)), clock, self._take)

    def offset_at(self, host_ns: int) -> tuple[int, int] | None:
        """Return the offset to rank 0's clock and its uncertainty, ns; ``None`` if unknown."""
        if isinstance(self._part, ClockServer):
            return 0, 0
        last = self._last
        if last is None:
            return None
        drift = int(abs(host_ns - last.time_ns) * CLOCK_DRIFT)
        return last.offset_ns, last.uncertainty_ns + drift

    def close(self) -> None:
        """End the thread."""
        if self._part is not None:
            self._part.close()

    def _take(self, record: ClockRecord) -> None:
        self._last = record
        self._report(record)


def _publish(store: Store, keys: list[str], address: str) -> None:
    for key in keys:
        store.set(key, address)


def _published(store: Store, key: str) -> str | None:
    return store.get(key).decode() if store.check([key]) else None

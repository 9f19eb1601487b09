"""How far this rank's clock is from rank 0's.

rank 0     ClockServer (clock_server.py) --address and token--> the job's key-value store
others     the store --address--> ClockClient (clock_client.py) --ClockRecord--> the tracer
--last one--> offset_at(time)
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable

import torch.distributed as dist

from ..capture.clocks import Clock
from ..records import CLOCK_DRIFT, ClockRecord
from .clock_client import ClockClient
from .clock_server import THREAD_NAME, ClockServer
from .job import restart_count
from .store import KeyValueStore, address_of_this_host, job_store

logger = logging.getLogger("hooktrace")

_KEY = "hooktrace/clock/{}/{}"

_numbers = itertools.count()


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
        store = job_store()
        # Tracers are made in the same order on all ranks, or else their clocks are the same.
        key = _KEY.format(restart_count(), next(_numbers))
        if dist.get_rank() == 0:
            self._is_reference = True
            # A thread, since finding the address may ask a name server.
            threading.Thread(
                target=self._serve, args=(store, key, clock), name=THREAD_NAME, daemon=True
            ).start()
        else:
            self._part = ClockClient(lambda: _published(store, key), clock, self._take)

    def _serve(self, store: KeyValueStore, key: str, clock: Clock) -> None:
        try:
            server = ClockServer(address_of_this_host(store), clock)
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


def _warn_of(error: Exception) -> None:
    logger.warning(
        "this rank's clock is not compared with the others' (%s: %s); a view of all ranks may be "
        "off by what their clocks are",
        type(error).__name__,
        error,
    )


def _published(store: KeyValueStore, key: str) -> str | None:
    return store.get(key).decode() if store.check([key]) else None

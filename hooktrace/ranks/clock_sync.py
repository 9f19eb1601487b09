"""How far this rank's clock is from rank 0's.

rank 0     ClockServer (clock_server.py) --address and token--> the job's key-value store
others     the store --address--> ClockClient (clock_client.py) --ClockRecord--> the tracer
--last one--> offset_at(time)
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch.distributed as dist
from torch._C._distributed_c10d import Store

from ..capture.clocks import Clock
from ..records import CLOCK_DRIFT, ClockRecord
from .clock_client import ClockClient
from .clock_server import ClockServer, warn_of
from .job import address_of_this_host, job_store, restart_count

_KEY = "hooktrace/clock/{}/{}"

_numbers = itertools.count()


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
        # Tracers are made in the same order on all ranks, or else their clocks are the same.
        key = _KEY.format(restart_count(), next(_numbers))
        if dist.get_rank() == 0:
            self._part = ClockServer(
                lambda: address_of_this_host(store), clock, lambda address: store.set(key, address)
            )
        else:
            self._part = ClockClient(lambda: _published(store, key), clock, self._take)

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


def _published(store: Store, key: str) -> str | None:
    return store.get(key).decode() if store.check([key]) else None

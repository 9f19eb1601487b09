"""What the ranks do in ``test_hosts.py``: each is on a host of its own, far from the other."""

from __future__ import annotations

import tempfile
import time
from typing import Any

import torch
import torch.distributed as dist

import hooktrace
from hooktrace import Tracer, hooks
from hooktrace.exporters import RecordFileExporter
from tests.distributed.models import make_ddp
from tests.distributed.skew_scenarios import KNOWN_S, all_know

LATE_S = 0.05
LATE = range(10, 20)
"""Steps in which rank 1 is late, from the first on whose clocks are known."""


def far_apart(rank: int) -> dict[str, Any]:
    """Train until the clocks are known, and on; return clocks, skews and the first step."""
    directory = [tempfile.mkdtemp(prefix="hooktrace-hosts-") if rank == 0 else ""]
    dist.broadcast_object_list(directory, 0)  # the hosts share a disk
    ddp = make_ddp()
    exporter = RecordFileExporter(directory[0])
    with Tracer([exporter], error_every=1) as tracer:
        hooktrace.instrument(ddp, hooks.allreduce_hook, tracer=tracer)
        first, end = 0, time.monotonic() + KNOWN_S
        while first < 12 or not all_know(tracer):
            ddp(torch.ones(2, 32)).sum().backward()
            first += 1
            assert time.monotonic() < end, "the clocks are not known"
        for step in range(LATE.stop):
            if step in LATE and rank == 1:
                time.sleep(LATE_S)
            ddp(torch.ones(2, 32)).sum().backward()
        skews = [(s.step - first, s.late_rank, s.lag_ns) for s in tracer.skews()]
        clocks = [(c.offset_ns, c.uncertainty_ns) for c in tracer.clocks()]
    dist.barrier()
    return {
        "skews": [row for row in skews if row[0] >= 0],
        "clocks": clocks,
        "host_ns": time.perf_counter_ns(),
        "directory": directory[0],
        "first": first,
    }

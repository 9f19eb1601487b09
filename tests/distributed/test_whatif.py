"""Predictions beside real runs on shaped links: a small part of ``hooktrace bench --whatif``."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from hooktrace.commands.bench.harness import run_ranks
from hooktrace.commands.bench.shaped_links import hosts, packet_bytes
from hooktrace.commands.bench.whatif import Sweep, places_of
from hooktrace.commands.bench.whatif_runs import Stack
from hooktrace.records.errors import UsageError

pytestmark = pytest.mark.slow

SMALL = Stack("small", 4, 384)
GRADIENT_BYTES = 4 * 4 * (384 * 384 + 384)
MBIT = 200.0
WIRE_MS = GRADIENT_BYTES * 8 / (MBIT * 1e3)
"""In less than that nothing has sent these gradients, however quiet or busy the machine."""


@pytest.fixture(scope="module", autouse=True)
def _namespaces() -> None:
    try:
        with hosts(2) as made:
            made.limit(200.0)
    except UsageError as error:
        pytest.skip(str(error))


SMALL_BYTES = 1 << 16


def small_all_reduces() -> list[float]:
    """Return how long some small all-reduces took, each after a pause, in seconds."""
    tensor, found = torch.zeros(SMALL_BYTES // 4), []
    for _ in range(8):
        time.sleep(0.02)  # the link is at rest
        dist.barrier()
        begin = time.perf_counter()
        dist.all_reduce(tensor)
        found.append(time.perf_counter() - begin)
    return found


def test_a_slow_link_is_slow_for_small_collectives_too() -> None:
    """But for one packet, which goes at once after a pause; nothing makes them faster than that."""
    mbit_s = 50.0
    with hosts(2) as made:
        made.limit(mbit_s)
        times, _ = run_ranks(2, small_all_reduces, deadline_s=90.0, hosts=made.names)
    least_s = (SMALL_BYTES - 2 * packet_bytes(mbit_s)) * 8 / (mbit_s * 1e6)
    assert min(times) > least_s > 0.008


def test_half_the_bytes_on_a_slow_link(tmp_path: Path) -> None:
    """What fp16 saves is half of the wire's time: known before it is run, and true of the run.

    Other tests run beside this one, and add to steps what they like: only what the link itself
    holds is asked for.  How good predictions are, the benchmark measures.
    """
    sweep = Sweep((MBIT,), (25.0,), ("allreduce", "fp16"), (SMALL,), seconds=1.0)
    (place,) = places_of(sweep, MBIT, str(tmp_path))
    today, fp16 = place.cases
    assert today.prediction.wire_bytes == GRADIENT_BYTES == 2 * fp16.prediction.wire_bytes
    for case, least_ms in ((today, WIRE_MS), (fp16, WIRE_MS / 2)):
        # The first packet after a pause goes at once: see shaped_links.py.
        assert min(case.steps_ms) > 0.9 * least_ms, case.row
        assert case.prediction.step_ms > 0.9 * least_ms, case.row
    saved_ms = today.prediction.step_ms - fp16.prediction.step_ms
    assert saved_ms > 0.8 * WIRE_MS / 2, (today.row, fp16.row)
    assert place.advised in ((), (("fp16", 25.0),))

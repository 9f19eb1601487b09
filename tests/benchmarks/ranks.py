"""The channel at the size of a large job: one real hub, hosts that are simulated.

    process of its own: Channel, JobView <--loopback, a connection a host-- simulated_hosts.py

The hub's processor time is that of its whole process, once all hosts have joined.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from hooktrace.commands.bench.table import Row
from hooktrace.ranks.channel.channel import Channel
from hooktrace.ranks.channel.messages import Member
from hooktrace.ranks.whole_job.view import JobView
from hooktrace.staging.job import job_store
from hooktrace.testing.ranks import run_ranks
from tests.ranks.channel.jobs import ask

from .harness import STATM, resident_mib
from .simulated_hosts import OVER, RANKS_A_HOST, simulate

_DEADLINE_S = 120.0
_ROUNDS = 5
_STATUS_S = 3.0


class Measured(NamedTuple):
    """What the hub's process found."""

    processor_percent: list[float]
    status_s: list[float]
    grown_mib: float


def ranks(*, quick: bool) -> Iterator[Row]:
    """Yield what a hub of 10,000 ranks costs; ``quick``: of 1,000, for a shorter time."""
    if not STATM.exists():
        return
    hosts, seconds = (125, 10) if quick else (1250, 60)
    found = run_ranks(2, _measure, hosts, seconds)[0]
    count = f"{hosts * RANKS_A_HOST:,} ranks on {hosts:,} hosts"
    what = f"hub of {count}: processor time of its process"
    yield Row(what, found.processor_percent, "%", budget=2.0)
    yield Row("the same, memory added", [found.grown_mib], "MiB", budget=200.0)
    yield Row("the same, a status of all ranks", found.status_s, "s", budget=3.0)


def _measure(hosts: int, seconds: int) -> Measured | None:
    """Be the hub, on rank 0, or all other hosts."""
    if dist.get_rank() == 0:
        return _hub(hosts, seconds)
    host, port, token = job_store().get("bench/hub").decode().split()
    asyncio.run(simulate(hosts, hosts * RANKS_A_HOST, (host, int(port)), bytes.fromhex(token)))
    return None


def _hub(hosts: int, seconds: int) -> Measured:
    world_size = hosts * RANKS_A_HOST
    before_mib = resident_mib()
    me = Member(0, os.getpid(), "node0", "host 0")
    channel = Channel(me, world_size, HashStore(), time.perf_counter_ns, lambda _: None)
    JobView(channel)  # which gathers what the hosts tell of steps
    channel.handlers["status"] = lambda _: bytes(2048)
    channel.start()
    _wait_for(lambda: bool(channel.children.places))
    (host, port), *_ = channel.children.places
    job_store().set("bench/hub", f"{host} {port} {channel.hub.token}")
    _wait_for(lambda: len(channel.children.connections()) == hosts - 1)
    time.sleep(seconds / 2)  # bursts of pings are more frequent at first
    percent = [_processor_percent(seconds / 6) for _ in range(6)]
    status_s = [_status_s(channel, world_size) for _ in range(_ROUNDS)]
    measured = Measured(percent, status_s, resident_mib() - before_mib)
    channel.tell(OVER, b"")
    _wait_for(lambda: len(channel.children.connections()) == 0)
    channel.close()
    return measured


def _processor_percent(seconds: float) -> float:
    start, spent = time.perf_counter(), time.process_time()
    time.sleep(seconds)
    return 100 * (time.process_time() - spent) / (time.perf_counter() - start)


def _status_s(channel: Channel, world_size: int) -> float:
    start = time.perf_counter()
    answers = ask(channel, "status", b"", _STATUS_S)
    took = time.perf_counter() - start
    # All but the ranks of the hub's own host, which are not simulated.
    if len(answers.answers) != world_size - RANKS_A_HOST + 1:
        raise RuntimeError(f"{len(answers.answers)} of {world_size} ranks answered")
    return took


def _wait_for(reached: Callable[[], bool]) -> None:
    end = time.monotonic() + _DEADLINE_S
    while not reached():
        if time.monotonic() > end:
            raise TimeoutError("the simulated hosts did not come; the machine is too busy for this")
        time.sleep(0.01)

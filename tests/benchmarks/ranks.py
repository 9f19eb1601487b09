"""The channel at the size of a large job: one real hub, hosts that are simulated.

    process of its own: Channel, JobView <--loopback, a connection a host-- simulated_hosts.py

The hub's processor time is that of its whole process.  How long the channel held the interpreter
lock is bounded by what another thread sees that wants to run each ms: how late it came, and how
much processor time the channel's thread took meanwhile.  The channel cannot have held the lock for
longer than the smaller of the two, whatever else the machine did; a row has the worst of each
window.  All is measured once all hosts have joined, but for the joining itself.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from hooktrace.commands.bench.harness import run_ranks
from hooktrace.commands.bench.table import Row
from hooktrace.ranks.channel.channel import Channel
from hooktrace.ranks.channel.messages import Member
from hooktrace.ranks.job import job_store
from hooktrace.ranks.whole_job.snapshot import JobSnapshot
from hooktrace.ranks.whole_job.view import JobView

from .simulated_hosts import OVER, RANKS_A_HOST, simulate

_MIB = 2**20
_STATM = Path("/proc/self/statm")
_DEADLINE_S = 120.0
_TICK_S = 0.001
_WINDOW_S = 2.0
_ROUNDS = 5
_STATUS_S = 3.0


class Measured(NamedTuple):
    """What the hub's process found; times of the lock: the worst of each window, ms."""

    joining_ms: list[float]
    processor_percent: list[float]
    steady_ms: list[float]
    asked_ms: list[float]
    looked_at_ms: list[float]
    status_s: list[float]
    look_s: list[float]
    grown_mib: float
    descriptors: int
    connections_a_host: float
    steps: int


def ranks(*, quick: bool) -> Iterator[Row]:
    """Yield what a hub of 10,000 ranks costs; ``quick``: of 1,000, for a shorter time."""
    if not _STATM.exists():
        return
    hosts, seconds = (125, 10) if quick else (1250, 60)
    found = run_ranks(2, _measure, hosts, seconds)[0]
    count = f"{hosts * RANKS_A_HOST:,} ranks on {hosts:,} hosts"
    note = f"{found.steps} steps of all ranks known"
    yield Row(
        f"hub of {count}: processor time of its process",
        found.processor_percent, "%", budget=2.0, note=note,
    )  # fmt: skip
    yield Row("the same, memory added", [found.grown_mib], "MiB", budget=200.0)
    yield Row("the same, open descriptors", [found.descriptors], "", budget=2048)
    yield Row("the same, connections a host", [found.connections_a_host], "", budget=1.0)
    yield Row("the same, a status of all ranks", found.status_s, "s", budget=3.0)
    yield Row("the same, a look at the job as hooktrace top makes it", found.look_s, "s")
    for doing, values in (
        ("all hosts join", found.joining_ms),
        ("ranks tell of steps", found.steady_ms),
        ("all ranks are asked", found.asked_ms),
        ("one looks at the job", found.looked_at_ms),
    ):
        what = f"the same, interpreter lock held in 2 s, while {doing}"
        yield Row(what, values, "ms", budget=5.0, note=f"at most {max(values):.1f}")


def _measure(hosts: int, seconds: int) -> Measured | None:
    """Be the hub, on rank 0, or all other hosts."""
    if dist.get_rank() == 0:
        return _hub(hosts, seconds)
    host, port, token = job_store().get("bench/hub").decode().split()
    asyncio.run(simulate(hosts, hosts * RANKS_A_HOST, (host, int(port)), bytes.fromhex(token)))
    return None


def _hub(hosts: int, seconds: int) -> Measured:
    world_size = hosts * RANKS_A_HOST
    before_mib = _resident_mib()
    me = Member(0, os.getpid(), "node0", "host 0")
    channel = Channel(me, world_size, HashStore(), time.perf_counter_ns, lambda _: None)
    view = JobView(channel, 0, world_size)
    channel.answer("status", lambda _: bytes(2048))
    channel.start()
    _wait_for(lambda: bool(channel.places))
    (host, port), *_ = channel.places
    job_store().set("bench/hub", f"{host} {port} {channel.token.hex()}")
    ticker = partial(Ticker, channel)
    with ticker() as joining:
        _wait_for(lambda: channel.node.children.count == hosts - 1)
    time.sleep(seconds / 2)  # bursts of pings are more frequent at first
    percent = [_processor_percent(seconds / 6) for _ in range(6)]
    with ticker() as steady:
        time.sleep(seconds / 3)
    with ticker() as asked:
        status_s = [_status_s(channel, world_size) for _ in range(_ROUNDS)]
    with ticker() as looked_at:
        looks = [_look(channel, view) for _ in range(_ROUNDS)]
    measured = Measured(
        joining.worst_ms, percent, steady.worst_ms, asked.worst_ms, looked_at.worst_ms, status_s,
        [took for took, _ in looks],
        _resident_mib() - before_mib,
        len(os.listdir("/proc/self/fd")),
        len(channel.node.children.connections()) / (hosts - 1),
        looks[-1][1],
    )  # fmt: skip
    channel.tell(OVER, b"")
    _wait_for(lambda: channel.node.children.count == 0)
    channel.close()
    return measured


def _processor_percent(seconds: float) -> float:
    start, spent = time.perf_counter(), time.process_time()
    time.sleep(seconds)
    return 100 * (time.process_time() - spent) / (time.perf_counter() - start)


def _status_s(channel: Channel, world_size: int) -> float:
    start = time.perf_counter()
    answers = channel.ask("status", b"", _STATUS_S)
    took = time.perf_counter() - start
    # All but the ranks of the hub's own host, which are not simulated.
    if len(answers.answers) != world_size - RANKS_A_HOST + 1:
        raise RuntimeError(f"{len(answers.answers)} of {world_size} ranks answered")
    return took


def _look(channel: Channel, view: JobView) -> tuple[float, int]:
    """Return how long a look at the job took, and how many steps all have told of."""
    looked = threading.Event()
    found: list[bytes] = []

    async def look() -> None:
        found.append(await view.look(b""))
        looked.set()

    start = time.perf_counter()
    channel.spawn(look)
    if not looked.wait(_DEADLINE_S):
        raise TimeoutError("the hub did not answer")
    took = time.perf_counter() - start
    shown = msgspec.msgpack.decode(found[0], type=JobSnapshot)
    most = max((step.ranks for step in shown.steps), default=0)
    return took, sum(step.ranks == most for step in shown.steps)


class Ticker:
    """A thread that wants to run each ms, and what it saw of the lock in each window.

    ``worst_ms``: how late it came at worst, or what the channel's thread took meanwhile if less.
    """

    def __init__(self, channel: Channel) -> None:
        self.worst_ms: list[float] = []
        self._of_channel = time.pthread_getcpuclockid(channel._thread.ident or 0)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        end, worst = time.perf_counter() + _WINDOW_S, 0.0
        while not self._ended.is_set():
            start, spent = time.perf_counter(), time.clock_gettime(self._of_channel)
            time.sleep(_TICK_S)
            late = time.perf_counter() - start - _TICK_S
            worst = max(worst, min(late, time.clock_gettime(self._of_channel) - spent))
            if start > end:
                self.worst_ms.append(worst * 1e3)
                end, worst = start + _WINDOW_S, 0.0
        self.worst_ms.append(worst * 1e3)

    def __enter__(self) -> Ticker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


def _wait_for(reached: object) -> None:
    assert callable(reached)
    end = time.monotonic() + _DEADLINE_S
    while not reached():
        if time.monotonic() > end:
            raise TimeoutError("the simulated hosts did not come; the machine is too busy for this")
        time.sleep(0.01)


def _resident_mib() -> float:
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / _MIB

"""The channel at the size of a large job: one real hub, hosts that are simulated.

    process of its own: Channel, JobView <--loopback, a connection a host-- SimulatedHosts

The hub's processor time is that of its whole process, once all hosts have joined.  A simulated host
is the real Node and Parent, with 8 made-up ranks below it: beats, pings, turns and their pauses are
the channel's own code; steps are made up, two a second.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from hooktrace.commands.bench.table import Row
from hooktrace.ranks.channel.channel import Channel
from hooktrace.ranks.channel.clock import ClockOffset
from hooktrace.ranks.channel.messages import Member, Notice, Place, Report
from hooktrace.ranks.channel.node import Answers, Node
from hooktrace.ranks.channel.parent import Parent
from hooktrace.ranks.whole_job.job_steps import Gatherer, RankLine, interval_s, told_every
from hooktrace.ranks.whole_job.view import STEPS, JobView
from hooktrace.records import StepSpread
from hooktrace.records.job import Range
from hooktrace.staging.job import job_store
from hooktrace.testing.ranks import run_ranks
from tests.ranks.channel.jobs import ask, wait_for

from .harness import STATM, resident_mib

RANKS_A_HOST = 8
_OVER = "bench_over"
"""The notice after which the hosts end."""
_STEP_S = 0.5
_ANSWER_BYTES = 2048
"""Of one rank's status: its calls in flight and stacks."""
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 10.0
"""Between two tries to join."""
_MODEL = ("net", "fp16_compress_hook")


class SimulatedHost:
    """One host, which stands for its ranks."""

    def __init__(self, number: int, world_size: int, token: bytes) -> None:
        self._token = token
        self._first = number * RANKS_A_HOST
        self._members = [
            Member(rank, os.getpid(), f"node{number}", f"host {number}")
            for rank in range(self._first, self._first + RANKS_A_HOST)
        ]
        self._node = _HostNode(self._members, world_size)
        self._node.notice_handlers[_OVER] = self._end
        self._gatherer = Gatherer()
        self._interval_s, self._every = interval_s(world_size), told_every(world_size)

    async def live(self, place: Place) -> None:
        """Join the hub and tell it of steps until it says that it is over."""
        pause_s = _FIRST_PAUSE_S
        while (parent := await self._join(place)) is None:
            await asyncio.sleep(pause_s * (1 + random.random()))
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        telling = asyncio.ensure_future(self._tell(parent))
        await parent.stay()
        telling.cancel()

    async def _join(self, place: Place) -> Parent | None:
        """Join, as ``Membership`` does: the hub keeps few that have not proved the token."""
        parent = Parent(self._node, self._token)
        try:
            await parent.join(place)
        except OSError:
            return None
        return parent

    def _end(self, _: bytes) -> None:
        if self._node.parent is not None:
            self._node.parent.leave("end")

    async def _tell(self, parent: Parent) -> None:
        step = _step_now()
        # As JobView does.
        await asyncio.sleep(-time.time() % self._interval_s + random.random())
        while True:
            before, step = step, _step_now()
            steps = [n for n in range(before, step) if n % self._every == 0]
            self._gatherer.add(((_MODEL, self._part(n)) for n in steps), self._lines(step))
            message = self._gatherer.message()
            if message is not None:
                parent.send(Report(STEPS, self._first, message))
            await asyncio.sleep(self._interval_s)

    def _part(self, step: int) -> StepSpread:
        first, last = self._first, self._first + RANKS_A_HOST - 1
        at = step * round(_STEP_S * 1e9)
        count = RANKS_A_HOST
        return StepSpread(
            step, count, 0,
            Range(count, 500_000_000, first, 501_000_000, last), 500_500_000 * count,
            Range(count, 20_000_000, last, 30_000_000, first), 25_000_000 * count,
            Range(count, at, first, at + random.randrange(3_000_000), last), 50_000,
        )  # fmt: skip

    def _lines(self, step: int) -> Sequence[RankLine]:
        at = round(_STEP_S * 1e9)
        arrivals = tuple((n, n * at + 1_000_000) for n in range(step - 8, step))
        return [
            RankLine(m.rank, m.host, _MODEL[0], step, 500_500_000, 25_000_000, arrivals, 50_000)
            for m in self._members
        ]


class _HostNode(Node):
    """A node that answers for ranks that are not there."""

    def __init__(self, members: Sequence[Member], world_size: int) -> None:
        offset = ClockOffset(time.perf_counter_ns, lambda _: None)
        super().__init__(members[0], world_size, offset)
        self.roster = {member.rank: member for member in members}

    async def gather(self, name: str, argument: bytes, timeout_s: float) -> Answers[bytes]:
        status = bytes(_ANSWER_BYTES)
        return Answers(dict.fromkeys(self.roster, status))


def _step_now() -> int:
    return int(time.time() / _STEP_S)


async def _simulate(hosts: int, world_size: int, place: Place, token: bytes) -> None:
    """Be ``hosts`` hosts, all of which join at once, until the hub says that it is over."""
    of_all = [SimulatedHost(number, world_size, token) for number in range(1, hosts)]
    await asyncio.gather(*(host.live(place) for host in of_all))


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
    place = host, int(port)
    asyncio.run(_simulate(hosts, hosts * RANKS_A_HOST, place, bytes.fromhex(token)))
    return None


def _hub(hosts: int, seconds: int) -> Measured:
    world_size = hosts * RANKS_A_HOST
    before_mib = resident_mib()
    me = Member(0, os.getpid(), "node0", "host 0")
    channel = Channel(me, world_size, HashStore(), time.perf_counter_ns, lambda _: None)
    JobView(channel, {}, list)  # which gathers what the hosts tell of steps
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
    channel.run(lambda: channel.notice(Notice(_OVER, b"")))
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
    if not wait_for(reached, _DEADLINE_S):
        raise TimeoutError("the simulated hosts did not come; the machine is too busy for this")

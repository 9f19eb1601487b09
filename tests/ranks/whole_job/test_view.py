"""What a rank tells of itself; ranks, hosts and the hub as one tree: what goes up comes there once.

The channel is a stand-in without threads; the real one is tried in ``tests/distributed``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from hooktrace.ranks.whole_job.job_steps import (
    Gatherer,
    JobSnapshot,
    Model,
    RankLine,
    decode_lines,
    decode_part,
)
from hooktrace.ranks.whole_job.view import ClockOffset, JobView, RankSteps
from hooktrace.records import Batch, JobStepRecord, StepSpread
from hooktrace.records.job import Range
from tests.exporters.records_sample import HOOK, MODEL, STEP_NS, make_anomaly, make_run, make_step

from .parts import Seconds

OFFSET = (1_000, 20)


class Rank:
    def __init__(self, clock_offset: ClockOffset = lambda _: OFFSET) -> None:
        self.gatherer = Gatherer()
        self.add = RankSteps(self.gatherer, clock_offset, print).add

    def tell(self) -> tuple[list[tuple[Model, StepSpread]], list[RankLine]]:
        message = self.gatherer.message()
        if message is None:
            return [], []
        part = decode_part(message)
        steps = [(model, step) for model, of_model in part.steps for step in of_model]
        return steps, decode_lines(part.lines)


def batch(*steps: int, **changes: object) -> Batch:
    made = [make_step(step) for step in steps]
    return Batch(
        run=make_run(1),
        steps=tuple((replace(step, **changes), buckets) for step, buckets in made),
        records=(make_anomaly(max(steps)),),
    )


def test_a_step_is_told_once_in_the_clock_of_rank_0() -> None:
    """With the period that it ended, its exposed time and when its last bucket was ready."""
    steps = Rank()
    steps.add(batch(1, 2))
    told, (line,) = steps.tell()
    record, _ = make_step(2)
    assert record.exposed_ns is not None
    arrival_ns = record.last_ready_ns + 1_000
    first_ns = make_step(1)[0].last_ready_ns + 1_000
    assert told[1] == (
        (MODEL, HOOK),
        StepSpread(
            2, 1, 0, Range(1, STEP_NS, 1, STEP_NS, 1), STEP_NS,
            Range(1, record.exposed_ns, 1, record.exposed_ns, 1), record.exposed_ns,
            Range(1, arrival_ns, 1, arrival_ns, 1), 20,
        ),
    )  # fmt: skip
    assert (line.rank, line.host, line.step, line.period_ns) == (1, "host-a", 2, STEP_NS)
    assert line.arrivals == ((1, first_ns),)  # the second comes too soon after it
    assert (line.anomalies, line.anomaly) == (1, "hook_exception step 2")
    assert steps.tell() == ([], [])


@pytest.mark.parametrize(
    ("changes", "offset", "known"),
    [
        ({"checked": True, "previous_period_ns": None}, OFFSET, (None, False, False)),
        ({"complete": False, "previous_period_ns": None}, OFFSET, (None, False, False)),
        ({}, None, (STEP_NS, True, False)),
        # Its ranks come to its end together, which tells nothing of who was late before.
        ({"sharded": True}, OFFSET, (STEP_NS, True, False)),
    ],
    ids=["checked", "incomplete", "no clock", "sharded"],
)
def test_what_is_not_known_is_not_told(
    changes: dict[str, Any], offset: tuple[int, int] | None, known: tuple[object, ...]
) -> None:
    """Of a step that does not count, that it was there; of one without a clock, no arrival."""
    steps = Rank(lambda _: offset)
    steps.add(batch(1, **changes))
    ((_, part),), (line,) = steps.tell()
    assert (line.period_ns, part.exposed is not None, part.arrival is not None) == known
    assert (line.exposed_ns is not None, line.arrivals) == (known[1], ())
    assert (part.step, part.incomplete) == (1, int(changes.get("complete") is False))


def test_arrivals_reach_back_to_what_other_ranks_have_told() -> None:
    """However short the steps are, those of the last seconds are among them."""
    steps = Rank()
    steps.add(batch(*range(1, 501)))  # 5 s
    _, (line,) = steps.tell()
    first, last = line.arrivals[0], line.arrivals[-1]
    assert len(line.arrivals) == 8
    assert 1_500_000_000 <= last[1] - first[1] <= 2_000_000_000


class Tree:
    """Nodes by rank, each with its parent; ``sent``: reports by who sent them."""

    def __init__(self, parents: dict[int, int | None], world_size: int) -> None:
        self.clock = Seconds()
        self.parents = parents
        self.world_size = world_size
        self.sent: list[int] = []
        self.pushed: list[JobStepRecord] = []
        self.nodes = {rank: Node(self, rank) for rank in parents}
        self.steps: dict[int, list[RankSteps]] = {rank: [] for rank in parents}
        self.views = {
            rank: JobView(node, {}, self.steps[rank].copy, self.clock)
            for rank, node in self.nodes.items()
        }
        for rank in parents:
            self.join(rank)

    def join(self, rank: int) -> None:
        self.steps[rank].append(self.views[rank].rank_steps(lambda _: (0, 0), self.pushed.append))

    def make(self, *steps: int) -> None:
        for rank, parts in self.steps.items():
            run = make_run(rank, len(self.parents))
            for part in parts:
                part.add(Batch(run=run, steps=tuple(map(make_step, steps))))

    def pass_s(self, seconds: float) -> None:
        """Let time pass; leaves come before their parents."""
        for _ in range(int(seconds * 2)):
            self.clock.now += 0.5
            for rank in sorted(self.nodes, reverse=True):
                self.nodes[rank].work()

    def look(self, hub: int = 0) -> JobSnapshot:
        return msgspec.msgpack.decode(asyncio.run(self.views[hub].look(b"")), type=JobSnapshot)


class Node:
    """A channel that delivers at once."""

    def __init__(self, tree: Tree, rank: int) -> None:
        self._tree = tree
        self.rank = rank
        self.world_size = tree.world_size
        self.report_handlers: dict[str, Callable[[int, bytes], bool]] = {}
        self.control_handlers: dict[str, Callable[[bytes], Awaitable[bytes]]] = {}
        self.work: Callable[[], None]

    @property
    def is_hub(self) -> bool:
        return self._tree.parents[self.rank] is None

    def report(self, name: str, payload: bytes) -> None:
        self._tree.sent.append(self.rank)
        at: int | None = self.rank
        while at is not None and not self._tree.nodes[at].report_handlers[name](self.rank, payload):
            at = self._tree.parents[at]

    def every(self, period_s: float, work: Callable[[], None]) -> None:
        self.work = work


HOSTS = {0: None, 1: 0, 2: 0, 3: 2, 4: 2}
"""Two hosts: ranks 0 and 1 on the hub's, 2 to 4 on the other."""


def test_a_step_of_all_ranks_comes_to_the_hub_once() -> None:
    """Ranks of another host by way of one of them."""
    tree = Tree(HOSTS, 5)
    tree.make(1, 2)
    tree.pass_s(3)
    shown = tree.look()
    assert [(s.step, s.ranks) for s in shown.steps] == [(1, 5), (2, 5)]
    assert sorted(r.line.rank for r in shown.ranks) == [0, 1, 2, 3, 4]
    assert shown.lost == 0
    assert [(r.spread.step, r.spread.ranks) for r in tree.pushed] == [(2, 5)]
    assert tree.sent.count(2) <= 2
    sent = len(tree.sent)
    tree.pass_s(3)
    assert len(tree.sent) == sent, "without news nothing is sent"


def test_models_of_a_second_tracer_have_a_name_of_their_own() -> None:
    """Not that of one that has closed, if another one has it still."""
    tree = Tree({0: None, 1: 0}, 2)
    tree.join(1)
    tree.steps[1].pop(0)
    tree.join(1)
    tree.make(1)
    tree.pass_s(3)
    shown = tree.look()
    assert shown.models == ("net (tracer 2)", "net")
    assert [(s.step, s.ranks) for s in shown.steps] == [(1, 2)]


def test_in_a_large_job_ranks_tell_of_some_steps_and_less_often() -> None:
    """All of the same ones."""
    tree = Tree(HOSTS, 10_000)
    for second in range(40):
        tree.make(second)
        tree.pass_s(1)
    shown = tree.look()
    assert [(s.step, s.ranks) for s in shown.steps][:2] == [(0, 5), (4, 5)]
    assert 3 <= tree.sent.count(4) <= 5

"""Ranks, hosts and the hub as one tree: what goes up comes to the hub once.

The channel is a stand-in without threads; the real one is tried in ``tests/distributed``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from hooktrace.ranks.whole_job.job_steps import JobSnapshot
from hooktrace.ranks.whole_job.view import JobView, RankSteps
from hooktrace.records import Batch, JobStepRecord
from tests.exporters.records_sample import make_run, make_step

from .parts import Seconds


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
        part = self.views[rank].rank_steps(lambda _: (0, 0), self.pushed.append)
        self.steps[rank].append(part)

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

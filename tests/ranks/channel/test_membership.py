"""The tree over hosts: one connection a host, and what becomes of it when a rank is gone."""

from __future__ import annotations

import itertools
import os
import random
import threading
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pytest

from hooktrace.ranks.channel.channel import Channel
from hooktrace.ranks.channel.meeting import Meeting
from hooktrace.ranks.channel.messages import HUB_GONE, HubAddress, Member, Silent, State
from tests.ranks.channel.jobs import DEADLINE_S, Job, ask, has_parent, wait_for

pytestmark = pytest.mark.usefixtures("loopback_reaches_all")


def answers(hub: Channel, timeout_s: float = 5.0) -> list[int]:
    return sorted(ask(hub, "who", b"", timeout_s).answers)


def settled(job: Job, ranks: list[int] | None = None) -> bool:
    """Return whether rank 0 gets answers of all ranks, soon."""
    everybody = ranks or list(range(job.size))
    return wait_for(lambda: answers(job.ranks[0]) == everybody, DEADLINE_S)


def parents(job: Job) -> dict[int, int | None]:
    links = {rank: channel.parent for rank, channel in enumerate(job.ranks)}
    return {
        rank: link.member.rank if link and link.is_there and link.member else None
        for rank, link in links.items()
    }


def test_one_connection_a_host() -> None:
    """Also where all ranks come at once; those of the hub's host connect each."""
    with Job(12, hosts="aaabbbcccccc") as job:
        assert answers(job.ranks[0], DEADLINE_S) == list(range(12))
        assert len(job.ranks[0].children.connections()) == 2 + 2
        deep = [rank for rank, parent in parents(job).items() if parent not in (None, 0)]
        assert len(deep) == 2 + 5
        assert all(job.hosts[rank] == job.hosts[parents(job)[rank] or 0] for rank in deep)


def test_answers_that_do_not_fit_beside_those_of_their_host_are_named() -> None:
    """Each is within bounds; a rank of another host is as before, and so is one with no answer."""
    with Job(6, hosts="abbbbb") as job:
        for rank in (1, 2, 3):
            job.ranks[rank].handlers["novel"] = lambda _: bytes(3 << 20)
        job.ranks[0].handlers["novel"] = lambda _: b"short"
        job.ranks[4].handlers["novel"] = lambda _: b"short"
        job.ranks[5].handlers["novel"] = lambda _: bytes(5 << 20)
        found = ask(job.ranks[0], "novel", b"", DEADLINE_S)
    assert sorted(found.answers) == [0, 1, 4]
    long = "its answer is too long beside its host's"
    assert {rank: (one.state, one.why) for rank, one in found.silent.items()} == {
        2: ("running", long),
        3: ("running", long),
        5: ("running", "ValueError: an answer of 5242880 bytes is too long, 4194304 fit"),
    }


@pytest.mark.slow
def test_a_first_of_a_host_that_is_stopped_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ranks notice, answer by the hub, and it comes back as one of the hub's children."""
    monkeypatch.setattr("hooktrace.ranks.channel.parent.SILENCE_S", 0.5)
    monkeypatch.setattr("hooktrace.ranks.channel.children.LEAST_INTERVAL_S", 0.1)
    go_on = threading.Event()
    with Job(5, hosts="aabbb") as job:
        leader = next(rank for rank in range(2, 5) if parents(job)[rank] == 0)
        job.ranks[leader].run(lambda: go_on.wait(30))
        below = [rank for rank in range(2, 5) if rank != leader]
        assert wait_for(lambda: all(parents(job)[rank] == 0 for rank in below))
        assert wait_for(lambda: answers(job.ranks[0], 1.0) == sorted([0, 1, *below]))
        found = ask(job.ranks[0], "who", b"", 1.0)
        assert found.silent[leader].state == "unreachable"
        go_on.set()
        assert settled(job)


def test_ranks_come_below_the_first_of_their_host_before_it_is_in_the_tree() -> None:
    """Here it never is: where the store has rank 0, nobody listens."""
    job = Job(0)
    job.size, job.hosts, job.clocks = 3, "abb", {1: [], 2: []}
    hub = HubAddress(places=(("127.0.0.1", 1),), token="00" * 16, member=Member(0, 1, "", "a"))
    Meeting(job.store).publish(hub)
    job.ranks = [job.begin(rank) for rank in (1, 2)]
    try:
        assert wait_for(lambda: sorted(map(has_parent, job.ranks)) == [False, True])
    finally:
        for rank in job.ranks:
            rank.close()


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("hosts", ["hhhh", "aabb"])
def test_a_new_channel_on_all_ranks_again_and_again_out_of_step(hosts: str) -> None:
    """Rank 0's may be closed first; all find the new one."""
    chance = random.Random(7)
    with Job(4, hosts=hosts) as job:
        for _ in range(6):
            order = chance.choice(list(itertools.permutations(range(4))))
            for rank in order:
                job.ranks[rank].close()
                job.ranks[rank] = job.begin(rank)
            assert settled(job), order
        assert [channel.is_hub for channel in job.ranks] == [True, False, False, False]


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_new_channel_of_rank_0_alone_gets_all_the_others_back() -> None:
    """The store has where it is, and the ranks say nothing of one that ended in order."""
    with Job(4) as job:
        heard = gone_heard(job, (1, 2, 3))
        for _ in range(2):
            job.ranks[0].close()
            job.ranks[0] = job.begin(0)
            assert settled(job)
        assert heard == {}


def gone_heard(job: Job, ranks: Iterable[int]) -> dict[int, list[Silent]]:
    """Return what ranks are told of a hub that is not reached, as it comes."""
    heard: dict[int, list[Silent]] = {}

    def listen(rank: int) -> None:
        def hear(told: bytes) -> None:
            heard.setdefault(rank, []).append(msgspec.msgpack.decode(told, type=Silent))

        job.ranks[rank].notice_handlers[HUB_GONE] = hear

    for rank in ranks:
        listen(rank)
    return heard


def test_a_hub_that_is_gone_is_told_to_all_by_what_each_host_knows() -> None:
    """Its own host sees the process; one rank of each is the one to say it."""
    with Job(6, hosts="aaabbb") as job:
        for channel in job.ranks:
            channel.look = lambda member: "stopped" if member.rank == 0 else "unknown"
        heard = gone_heard(job, range(1, 6))
        place = job.ranks[0].children.places[0]
        hosts = job.ranks[:3], job.ranks[3:]
        assert wait_for(lambda: [sum(c.speaks_for_host for c in host) for host in hosts] == [1, 1])
        assert job.ranks[0].speaks_for_host
        job.abort(0, entirely=True)
        assert wait_for(lambda: sorted(heard) == [1, 2, 3, 4, 5])
        assert not any(channel.is_hub for channel in job.ranks[1:])
        for host in (job.ranks[1:3], job.ranks[3:]):
            assert sum(channel.speaks_for_host for channel in host) == 1
        hub = Member(0, os.getpid(), "host of 0", "a")
        assert [heard[rank][0].member for rank in (1, 2)] == [hub, hub]
        assert [heard[rank][0].state for rank in range(1, 6)] == ["stopped"] * 2 + ["unknown"] * 3
        assert f"Connect call failed {place}" in heard[3][0].why


def test_of_a_hub_that_goes_on_meanwhile_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was tried while it stood still says nothing of it now."""
    monkeypatch.setattr("hooktrace.ranks.channel.membership._LONGEST_PAUSE_S", 0.1)
    monkeypatch.setattr("hooktrace.ranks.channel.membership._LASTING_S", 0.2)
    states: list[State] = ["running", "stopped"]
    with Job(2) as job:
        heard = gone_heard(job, [1])
        looks = itertools.cycle(states)
        seen: list[State] = []

        def look(_: Member) -> State:
            seen.append(next(looks))
            return seen[-1]

        job.ranks[1].look = look
        job.abort(0, entirely=True)
        assert wait_for(lambda: len(seen) > 20)
        assert heard == {}
        job.ranks[1].look = lambda _: "stopped"
        assert wait_for(lambda: heard)


def is_first(channel: Channel) -> bool:
    return channel.parent is not None and channel.parent.is_first


def test_of_a_host_whose_first_rank_is_gone_another_speaks() -> None:
    """On the hub's own host, and where the others come to the hub instead."""
    with Job(6, hosts="aaabbb") as job:
        leader = next(rank for rank in range(3, 6) if parents(job)[rank] == 0)
        assert wait_for(lambda: any(is_first(job.ranks[rank]) for rank in (1, 2)))
        first = next(rank for rank in (1, 2) if is_first(job.ranks[rank]))
        job.abort(leader)
        job.abort(first)
        left = sorted({3, 4, 5} - {leader})
        assert settled(job, sorted({0, 1, 2, *left} - {first}))
        assert wait_for(lambda: sum(job.ranks[rank].speaks_for_host for rank in left) == 1)
        assert wait_for(lambda: is_first(job.ranks[3 - first]))


class HeldStore:
    """A store whose requests wait until ``go_on``; ``asked``: their names."""

    def __init__(self, store: Any) -> None:
        self.store = store
        self.asked: list[str] = []
        self.go_on = threading.Event()

    def __getattr__(self, name: str) -> Callable[..., object]:
        if name in ("host", "underlying_store"):
            raise AttributeError(name)
        self.asked.append(name)
        return lambda *arguments: self.go_on.wait(20) and getattr(self.store, name)(*arguments)


@pytest.mark.slow
def test_rank_0_is_found_once_the_store_answers_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training had it while it waited for a late rank."""
    monkeypatch.setattr("hooktrace.ranks.channel.meeting._ANSWER_S", 0.1)
    job = Job(0)
    job.size, job.hosts, job.clocks = 2, "hh", {0: [], 1: []}
    job.store = HeldStore(job.store)
    job.ranks = [job.begin(rank) for rank in range(2)]
    assert wait_for(lambda: job.store.asked.count("set") > 1)
    job.store.go_on.set()
    with job:
        assert settled(job)
        assert job.ranks[0].is_hub

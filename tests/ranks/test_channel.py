"""The tree of ranks over real connections: what goes up and down, and where a rank is gone."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pytest

from hooktrace.ranks.channel.channel import Channel
from hooktrace.ranks.channel.messages import HUB_GONE, Member, Notice, Silent, State
from tests.ranks.channel.jobs import DEADLINE_S, Job, S, ask, has_parent, wait_for


@pytest.fixture(autouse=True)
def loopback_reaches_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the ranks of one process call other hosts is reached by loopback."""
    monkeypatch.setattr("hooktrace.ranks.channel.parent.is_loopback", lambda _: False)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let silence, and a hub that is gone, be noticed at once."""
    for name, seconds in {
        "parent.SILENCE_S": 0.5,
        "parent._CONNECT_S": 0.5,
        "children.LEAST_INTERVAL_S": 0.1,
        "parent._LASTING_S": 0.2,
        "parent._LONGEST_PAUSE_S": 0.1,
    }.items():
        monkeypatch.setattr(f"hooktrace.ranks.channel.{name}", seconds)


def answers(job: Job) -> list[int]:
    return sorted(ask(job.ranks[0], "who", b"", 5.0).answers)


def parents(job: Job) -> dict[int, int | None]:
    links = {rank: channel.parent for rank, channel in enumerate(job.ranks)}
    return {
        rank: link.member.rank if link and link.is_there and link.member else None
        for rank, link in links.items()
    }


def test_news_go_up_and_notices_down() -> None:
    """A rank's report reaches the hub, which tells all, itself too; also right before its end."""
    with Job(3) as job:
        heard: dict[int, list[bytes]] = {rank: [] for rank in range(3)}
        for rank, channel in enumerate(job.ranks):
            channel.notice_handlers["said"] = heard[rank].append

        def tell_all(rank: int, payload: bytes) -> bool:
            job.ranks[0].notice(Notice("said", b"%d saw %b" % (rank, payload)))
            job.ranks[0].close()
            return True

        job.ranks[0].report_handlers["seen"] = tell_all
        job.ranks[2].report("seen", b"smoke")
        assert wait_for(lambda: all(heard.values()))
    assert heard == {rank: [b"2 saw smoke"] for rank in range(3)}


def test_each_rank_that_does_not_answer_is_named_with_the_reason() -> None:
    """One raises, one has no answer, one has ended, one broke off, one has not come."""

    def fail(_: bytes) -> bytes:
        raise ValueError("no idea")

    job = Job(5)
    for channel in job.ranks:
        channel.world_size = 6
    with job:
        hub = job.ranks[0]
        hub.look = lambda member: "gone"
        job.ranks[1].handlers["who"] = fail
        del job.ranks[2].handlers["who"]
        job.ranks[3].close()
        job.abort(4)
        assert wait_for(lambda: len(hub.roster) == 3)
        found = ask(hub, "who", b"", DEADLINE_S)
        assert found.answers == {0: b"0 "}
        assert {rank: (one.state, one.why) for rank, one in found.silent.items()} == {
            1: ("running", "ValueError: no idea"),
            2: ("running", "KeyError: 'who'"),
            3: ("ended", ""),
            4: ("gone", ""),
            5: ("unknown", "it has not joined the channel"),
        }
        job.hosts += "h"
        job.ranks.append(job.begin(5))
        assert wait_for(lambda: answers(job) == [0, 5])


def test_one_connection_a_host() -> None:
    """Also where all ranks come at once; those of the hub's host connect each.  Offsets add up."""
    with Job(12, ahead_ns=7 * S, hosts="aaabbbcccccc") as job:
        assert answers(job) == list(range(12))
        assert len(job.ranks[0].children.connections()) == 2 + 2
        deep = [rank for rank, parent in parents(job).items() if parent not in (None, 0)]
        assert len(deep) == 2 + 5
        assert all(job.hosts[rank] == job.hosts[parents(job)[rank] or 0] for rank in deep)
        assert wait_for(lambda: all(map(job.measured, range(1, 12))))
        for rank in range(1, 12):
            record = job.measured(rank)[0]
            assert abs(record.offset_ns + rank * 7 * S) <= record.uncertainty_ns < S
            assert (record.uncertainty_ns > -(-record.round_trip_ns // 2)) == (rank in deep)
        assert job.clocks[0] == []


def test_answers_that_do_not_fit_beside_those_of_their_host_are_named() -> None:
    """Each is within bounds; a rank of another host is as before, and so is one with no answer."""
    with Job(6, hosts="abbbbb") as job:
        for rank, size in enumerate((1, 3 << 20, 3 << 20, 3 << 20, 1, 5 << 20)):
            job.ranks[rank].handlers["novel"] = lambda _, size=size: bytes(size)
        found = ask(job.ranks[0], "novel", b"", DEADLINE_S)
    assert sorted(found.answers) == [0, 1, 4]
    assert {rank: (one.state, one.why) for rank, one in found.silent.items()} == {
        rank: ("running", f"an answer of {size} bytes is too long, 4194304 fit of a host")
        for rank, size in ((2, 3 << 20), (3, 3 << 20), (5, 5 << 20))
    }


def gone_heard(job: Job, ranks: Iterable[int]) -> dict[int, list[Silent]]:
    """Return what ranks are told of a hub that is not reached, as it comes."""
    heard: dict[int, list[Silent]] = {}
    for rank in ranks:

        def hear(told: bytes, rank: int = rank) -> None:
            heard.setdefault(rank, []).append(msgspec.msgpack.decode(told, type=Silent))

        job.ranks[rank].notice_handlers[HUB_GONE] = hear
    return heard


@pytest.mark.usefixtures("impatient")
def test_a_hub_that_was_only_silent_is_found_again() -> None:
    """Its thread is held for longer than the others wait; nobody takes its place meanwhile."""
    go_on = threading.Event()
    with Job(3) as job:
        heard = gone_heard(job, [1])
        job.ranks[0].run(lambda: go_on.wait(30))
        assert wait_for(lambda: heard)
        assert not any(rank.is_hub for rank in job.ranks[1:])
        go_on.set()
        assert wait_for(lambda: answers(job) == [0, 1, 2])


@pytest.mark.slow
def test_a_new_channel_of_rank_0_gets_all_the_others_back() -> None:
    """The store has where it is, and the ranks say nothing of one that ended in order."""
    with Job(4, hosts="aabb") as job:
        heard = gone_heard(job, (1, 2, 3))
        for _ in range(2):
            job.ranks[0].close()
            job.ranks[0] = job.begin(0)
            assert wait_for(lambda: answers(job) == [0, 1, 2, 3])
        assert heard == {}


def test_a_hub_that_is_gone_is_told_to_all_by_what_each_host_knows() -> None:
    """Its own host sees the process; one rank of each is the one to say it."""
    with Job(6, hosts="aaabbb") as job:
        for channel in job.ranks:
            channel.look = lambda member: "stopped" if member.rank == 0 else "unknown"
        heard = gone_heard(job, range(1, 6))
        place = job.ranks[0].children.places[0]
        hosts = job.ranks[:3], job.ranks[3:]
        assert wait_for(lambda: [sum(c.speaks_for_host for c in host) for host in hosts] == [1, 1])
        job.abort(0, entirely=True)
        assert wait_for(lambda: sorted(heard) == [1, 2, 3, 4, 5])
        for host in (job.ranks[1:3], job.ranks[3:]):
            assert sum(channel.speaks_for_host for channel in host) == 1
        hub = Member(0, os.getpid(), "host of 0", "a")
        assert [heard[rank][0].member for rank in (1, 2)] == [hub, hub]
        assert [heard[rank][0].state for rank in range(1, 6)] == ["stopped"] * 2 + ["unknown"] * 3
        assert f"Connect call failed {place}" in heard[3][0].why


@pytest.mark.usefixtures("impatient")
def test_of_a_hub_that_goes_on_meanwhile_nothing_is_told() -> None:
    """What was tried while it stood still says nothing of it now."""
    seen: list[State] = ["stopped"]

    def look(_: Member) -> State:
        seen.append("running" if seen[-1] == "stopped" else "stopped")
        return seen[-1]

    with Job(2) as job:
        heard = gone_heard(job, [1])
        job.ranks[1].look = look
        job.abort(0, entirely=True)
        assert wait_for(lambda: len(seen) > 20)
        assert heard == {}
        job.ranks[1].look = lambda _: "stopped"
        assert wait_for(lambda: heard)


def test_of_a_host_whose_first_rank_is_gone_another_speaks() -> None:
    """On the hub's own host, and where the others come to the hub instead."""

    def is_first(channel: Channel) -> bool:
        return channel.parent is not None and channel.parent.is_first

    with Job(6, hosts="aaabbb") as job:
        leader = next(rank for rank in range(3, 6) if parents(job)[rank] == 0)
        assert wait_for(lambda: any(is_first(job.ranks[rank]) for rank in (1, 2)))
        first = next(rank for rank in (1, 2) if is_first(job.ranks[rank]))
        job.abort(leader)
        job.abort(first)
        left = sorted({3, 4, 5} - {leader})
        assert wait_for(lambda: answers(job) == sorted({0, 1, 2, *left} - {first}))
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
    """Training had it while it waited for a late rank; a rank that is closed meanwhile ends."""
    monkeypatch.setattr("hooktrace.ranks.channel.meeting._ANSWER_S", 0.1)
    job = Job(2, begun=False)
    job.store = HeldStore(job.store)
    job.ranks = [job.begin(rank) for rank in range(2)]
    assert wait_for(lambda: job.store.asked.count("set") > 1)
    job.ranks[1].close()
    assert wait_for(lambda: not job.ranks[1]._thread.is_alive())
    job.ranks[1] = job.begin(1)
    assert not has_parent(job.ranks[1])
    job.store.go_on.set()
    with job:
        assert answers(job) == [0, 1]

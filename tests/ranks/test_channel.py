"""Ranks that ask, tell and report over real connections, and go on when one of them is gone."""

from __future__ import annotations

import threading

import pytest

from hooktrace.ranks.channel.messages import HUB_GONE
from tests.ranks.channel.jobs import DEADLINE_S, Job, ask, wait_for


def test_news_go_up_and_notices_down() -> None:
    """A rank's report reaches the hub, which tells all, itself too."""
    with Job(3) as job:
        heard: dict[int, list[bytes]] = {rank: [] for rank in range(3)}
        for rank, channel in enumerate(job.ranks):
            channel.notice_handlers["said"] = heard[rank].append
        job.ranks[0].report_handlers["seen"] = job.tell_all
        job.ranks[2].report("seen", b"smoke")
        assert wait_for(lambda: all(heard.values()))
    assert heard == {rank: [b"2 saw smoke"] for rank in range(3)}


def test_a_rank_that_raises_or_has_no_answer_is_silent_and_says_why() -> None:
    """Others' answers come all the same."""

    def fail(_: bytes) -> bytes:
        raise ValueError("no idea")

    with Job(3) as job:
        job.ranks[1].handlers["who"] = fail
        del job.ranks[2].handlers["who"]
        found = ask(job.ranks[0], "who", b"", DEADLINE_S)
    assert found.answers == {0: b"0 "}
    assert {rank: silent.why for rank, silent in found.silent.items()} == {
        1: "ValueError: no idea",
        2: "KeyError: 'who'",
    }


def test_a_rank_that_has_not_come_is_named_and_counts_once_it_comes() -> None:
    """The world's size says that it belongs there."""
    job = Job(2)
    for channel in job.ranks:
        channel.world_size = 3
    with job:
        hub = job.ranks[0]
        found = ask(hub, "who", b"", DEADLINE_S)
        job.size, job.hosts, job.clocks[2] = 3, "hhh", []
        job.ranks.append(job.begin(2))
        assert wait_for(lambda: sorted(ask(hub, "who", b"", 5.0).answers) == [0, 1, 2])
    assert [(r, s.state, s.why) for r, s in found.silent.items()] == [
        (2, "unknown", "it has not joined the channel")
    ]


def test_one_that_left_in_order_has_ended_and_one_that_broke_off_is_lost() -> None:
    """What its host says of the process stands beside."""
    with Job(3) as job:
        job.ranks[0].look = lambda member: "gone"
        job.ranks[1].close()
        job.abort(2)
        assert wait_for(lambda: len(job.ranks[0].roster) == 1)
        found = ask(job.ranks[0], "who", b"", DEADLINE_S)
    assert {rank: silent.state for rank, silent in found.silent.items()} == {1: "ended", 2: "gone"}


def test_a_hub_that_was_only_silent_is_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread is held for longer than the others wait; nobody takes its place meanwhile."""
    monkeypatch.setattr("hooktrace.ranks.channel.parent.SILENCE_S", 0.5)
    monkeypatch.setattr("hooktrace.ranks.channel.children.LEAST_INTERVAL_S", 0.1)
    monkeypatch.setattr("hooktrace.ranks.channel.parent._CONNECT_S", 0.5)
    monkeypatch.setattr("hooktrace.ranks.channel.membership._LASTING_S", 0.5)
    go_on, told = threading.Event(), threading.Event()
    with Job(3) as job:
        job.ranks[1].notice_handlers[HUB_GONE] = lambda _: told.set()
        job.ranks[0].run(lambda: go_on.wait(30))
        assert told.wait(20)
        assert not any(rank.is_hub for rank in job.ranks[1:])
        go_on.set()
        hub = job.ranks[0]
        assert wait_for(lambda: sorted(ask(hub, "who", b"", 5.0).answers) == [0, 1, 2])

"""One process's part: each tracer hears of a hang, and of its end, whoever comes first."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from hooktrace.ranks.channel.messages import HUB_GONE, Member, Silent, encode
from hooktrace.ranks.hang import service as module
from hooktrace.ranks.hang.messages import NOTICE, Hang
from hooktrace.ranks.hang.service import HangService
from hooktrace.records import HangRecord
from tests.ranks.hang.test_service_hub import FOUND
from tests.ranks.test_hang import Rank, S


class User(Rank):
    """A tracer; its calls of step 0 are over, those of step 1 have waited for two seconds."""

    paused = False

    def __init__(self) -> None:
        super().__init__(1, hang_after_s=1.0)
        self.heard: list[HangRecord] = []
        self.speaks: list[bool] = []
        for _ in range(2):
            if self.clock.now_ns:
                self.finish()
            self.clock.advance(S)
            self.launch()
        self.clock.advance(2 * S)

    def hear_of_hang(self, record: HangRecord, *, speaks: bool) -> None:
        self.heard.append(record)
        self.speaks.append(speaks)


class Channel:
    """Has what the service of rank 1 asked for: its one user, and what it is told."""

    is_hub = False
    speaks_for_host = True
    world_size = 3
    rank = 1

    def __init__(self) -> None:
        self.user = User()
        self.clock = self.user.clock
        self.handlers: dict[str, Any] = {}
        self.report_handlers: dict[str, Any] = {}
        self.notice_handlers: dict[str, Callable[[bytes], None]] = {}
        self.look: Callable[[], None] = lambda: None
        self.service = HangService(self)
        self.service.add(self.user)

    def every(self, period_s: float, work: Any) -> None:
        self.look = work

    def report(self, name: str, payload: bytes) -> None:
        """Nobody hears."""

    def tells(self, found: Hang = FOUND) -> None:
        self.notice_handlers[NOTICE](msgspec.msgpack.encode(found))

    def hub_is_gone(self) -> None:
        self.notice_handlers[HUB_GONE](encode(Silent(Member(0, 7, "a", "a"), "stopped")))


@pytest.fixture
def channel(monkeypatch: pytest.MonkeyPatch) -> Channel:
    """What it logs is written at once, and not in a later test; time goes by as a test says."""
    channel = Channel()
    clock = SimpleNamespace(monotonic=lambda: channel.clock() / S, time_ns=time.time_ns)
    monkeypatch.setattr(module, "time", clock)
    monkeypatch.setattr(module, "call_aside", lambda work, name: work())
    return channel


def test_a_tracer_that_closed_is_told_no_more(channel: Channel) -> None:
    """Its steps tell that the hang is over; of a host one rank is to say what all are told."""
    other = User()
    channel.service.add(other)
    channel.tells()
    channel.service.remove(channel.user)
    channel.speaks_for_host = False
    channel.tells(replace(FOUND, ended_after_ns=5, message="it is over"))
    assert [one.ended_after_ns for one in channel.user.heard] == [None]
    assert [one.ended_after_ns for one in other.heard] == [None, 5]
    assert other.speaks == [True, False]
    assert channel.service.told == {0: "it is over"}


def test_a_call_that_waits_while_the_hub_is_gone_is_told_once_and_its_end(channel: Channel) -> None:
    """By this rank alone, with what is known of the hub's process; not while nothing waits."""
    user = channel.user
    channel.hub_is_gone()
    assert user.heard == []
    channel.look()
    for _ in range(3):
        channel.hub_is_gone()
    user.clock.advance(S)
    user.finish()
    channel.look()
    begun, ended = user.heard
    assert (begun.kind, begun.ranks, begun.waiting, begun.hang) == ("stopped", (0,), (1,), 0)
    assert (ended.hang, ended.kind, ended.ended_after_ns) == (0, "stopped", 3 * S)


def test_a_call_that_has_just_begun_when_the_hub_is_gone_is_not_told_yet(channel: Channel) -> None:
    """The one that was suspected ended since the last look: the hub went on for a moment."""
    user = channel.user
    channel.look()
    user.finish()
    user.launch()
    channel.hub_is_gone()
    assert user.heard == []
    user.clock.advance(2 * S)
    channel.look()
    channel.look()
    channel.hub_is_gone()
    assert [one.step for one in user.heard] == [2]


def test_a_hub_that_comes_back_ends_what_was_told_without_it(channel: Channel) -> None:
    """It tells of the same hang, under the same number, and of its end."""
    user = channel.user
    channel.look()
    channel.hub_is_gone()
    channel.tells()
    user.finish()
    channel.look()
    told = [(one.hang, one.kind, one.ended_after_ns) for one in user.heard]
    assert told == [(0, "stopped", None), (0, "busy", None)]


def test_training_in_an_except(channel: Channel) -> None:
    """A rank tells of its main thread; what is handled while steps go by is no news there."""
    told, channel.user.paused = [], True
    with ThreadPoolExecutor(1) as another:
        for error in (ImportError("no such"), ValueError("boom")):
            try:
                raise error
            except (ImportError, ValueError):
                for _ in range(3):
                    channel.look()
                    status = another.submit(channel.service.status).result()
                    told.append(status.main.exception)
                    channel.user.finish()
                    channel.user.launch()
    assert (status.rank, status.paused, status.main.name) == (1, True, "MainThread")
    said = ["ImportError: no such"] * 2, ["ValueError: boom"] * 2
    assert [one.partition(" at test_service.py")[0] for one in told] == [*said[0], "", *said[1], ""]


@pytest.mark.parametrize("speaks", [True, False])
def test_one_rank_of_a_host_says_once_that_the_hub_is_gone(
    channel: Channel, speaks: bool, caplog: pytest.LogCaptureFixture
) -> None:
    channel.speaks_for_host = speaks
    for _ in range(3):
        channel.hub_is_gone()
    said = [record.message for record in caplog.records]
    assert len(said) == speaks
    for line in said:
        assert re.match(r"\[rank 1, \d\d:\d\d:\d\d UTC\] rank 0 stands still: its process ", line)

"""One process's part: each tracer hears of a hang, and of its end, whoever comes first."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from hooktrace.ranks.channel.messages import HUB_GONE, Member, Silent, State, encode
from hooktrace.ranks.hang import service as module
from hooktrace.ranks.hang.messages import NOTICE
from hooktrace.ranks.hang.service import HangService
from hooktrace.records import HangRecord
from hooktrace.testing import FakeClock
from tests.ranks.hang.test_hub import FOUND
from tests.ranks.test_hang import Rank, S


class Channel:
    """Has what a service asked for."""

    is_hub = False
    speaks_for_host = True
    world_size = 3

    def __init__(self, rank: int = 0, clock: FakeClock | None = None) -> None:
        self.rank = rank
        self.handlers: dict[str, Any] = {}
        self.report_handlers: dict[str, Any] = {}
        self.clock = clock or FakeClock()
        self.notice_handlers: dict[str, Callable[[bytes], None]] = {}
        self.look: Callable[[], None] = lambda: None

    def every(self, period_s: float, work: Any) -> None:
        self.look = work

    def tell(self, name: str, payload: bytes) -> None:
        raise AssertionError

    def report(self, name: str, payload: bytes) -> None:
        """Nobody hears."""


class User(Rank):
    """A tracer whose call of bucket 0 of step 0 is over."""

    hang_after_s = 1.0
    paused = False

    def __init__(self) -> None:
        super().__init__(0, FakeClock(step_ns=0))
        self.heard: list[HangRecord] = []
        self.speaks: list[bool] = []
        self.launch(0)
        self.finish()

    def hear_of_hang(self, record: HangRecord, *, speaks: bool) -> None:
        self.heard.append(record)
        self.speaks.append(speaks)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line for the log is written at once, and not in a later test."""
    monkeypatch.setattr(module, "call_aside", lambda work, name: work())


@pytest.fixture
def service() -> tuple[HangService, Channel]:
    channel = Channel()
    made = HangService(channel)
    return made, channel


def test_a_tracer_that_closed_is_told_no_more(service: tuple[HangService, Channel]) -> None:
    """Its steps tell that the hang is over."""
    made, channel = service
    user, other = User(), User()
    made.add(user)
    made.add(other)
    channel.notice_handlers[NOTICE](msgspec.msgpack.encode(FOUND))
    end = replace(FOUND, ended_after_ns=5)
    made.remove(user)
    assert [one.ended_after_ns for one in user.heard] == [None]
    channel.notice_handlers[NOTICE](msgspec.msgpack.encode(end))
    made.remove(other)
    assert len(user.heard) == 1
    assert [one.ended_after_ns for one in other.heard] == [None, 5]


class Waiting(User):
    """A tracer whose calls of step 1 have waited for two seconds, and are suspected."""

    def __init__(self) -> None:
        super().__init__()
        self.clock.advance(S)
        self.launch(self.clock.now_ns)
        self.clock.advance(2 * S)


def gone(state: State = "stopped") -> bytes:
    """Return that the hub is not reached."""
    return encode(Silent(Member(0, 7, "a", "a"), state))


@pytest.fixture
def waiting() -> tuple[Channel, Waiting]:
    """Rank 1, which has looked at its calls."""
    user = Waiting()
    channel = Channel(1, user.clock)
    made = HangService(channel)
    made.add(user)
    channel.look()
    return channel, user


def test_a_call_that_waits_while_the_hub_is_gone_is_told_once_and_its_end(
    waiting: tuple[Channel, Waiting],
) -> None:
    """By this rank alone, with what is known of the hub's process."""
    channel, user = waiting
    assert user.heard == []
    for _ in range(3):
        channel.notice_handlers[HUB_GONE](gone())
    user.finish()
    channel.look()
    begun, ended = user.heard
    assert (begun.kind, begun.ranks, begun.waiting, begun.hang) == ("stopped", (0,), (1,), 0)
    assert (ended.hang, ended.kind, (ended.ended_after_ns or 0) // S) == (0, "stopped", 2)
    assert begun.message.startswith(
        "bucket 0 of step 1 has waited 2.0 s on rank 1 for rank 0, which stands still: its process "
        "(pid 7 on a) is stopped by a signal; "
    )


def test_a_call_that_has_just_begun_when_the_hub_is_gone_is_not_told_yet(
    waiting: tuple[Channel, Waiting],
) -> None:
    """The one that was suspected ended since the last look: the hub went on for a moment."""
    channel, user = waiting
    user.finish()
    user.launch(user.clock.now_ns)
    channel.notice_handlers[HUB_GONE](gone())
    assert user.heard == []
    user.clock.advance(2 * S)
    channel.look()
    channel.look()
    channel.notice_handlers[HUB_GONE](gone())
    assert [one.step for one in user.heard] == [2]


def test_a_hub_that_comes_back_ends_what_was_told_without_it(
    waiting: tuple[Channel, Waiting],
) -> None:
    """It tells of the same hang, under the same number, and of its end."""
    channel, user = waiting
    channel.notice_handlers[HUB_GONE](gone())
    channel.notice_handlers[NOTICE](msgspec.msgpack.encode(FOUND))
    user.finish()
    channel.look()
    assert [(one.hang, one.kind, one.ended_after_ns) for one in user.heard] == [
        (0, "stopped", None),
        (0, "busy", None),
    ]


def test_a_hub_that_is_gone_while_nothing_waits_is_no_hang(
    service: tuple[HangService, Channel],
) -> None:
    """What was suspected of an earlier call is over."""
    made, channel = service
    user = User()
    made.add(user)
    channel.look()
    channel.notice_handlers[HUB_GONE](gone())
    assert user.heard == []


@pytest.mark.parametrize("speaks", [True, False])
def test_one_rank_of_a_host_says_once_that_the_hub_is_gone(
    service: tuple[HangService, Channel],
    speaks: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whatever it waits for."""
    _, channel = service
    channel.speaks_for_host = speaks
    for _ in range(3):
        channel.notice_handlers[HUB_GONE](gone())
    said = [record.message for record in caplog.records]
    assert [line.partition("] ")[2] for line in said] == speaks * [
        "rank 0 stands still: its process (pid 7 on a) is stopped by a signal; DDP does not go on "
        "without it; let it go on: kill -CONT its pid"
    ]
    assert all(re.match(r"\[rank 0, \d\d:\d\d:\d\d UTC\] ", line) for line in said)


def test_of_a_host_one_rank_is_to_say_what_all_are_told(
    service: tuple[HangService, Channel],
) -> None:
    """The others record it."""
    made, channel = service
    user = User()
    made.add(user)
    for speaks in (True, False):
        channel.speaks_for_host = speaks
        channel.notice_handlers[NOTICE](msgspec.msgpack.encode(FOUND))
    assert user.speaks == [True, False]

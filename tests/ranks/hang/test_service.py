"""One process's part: each tracer hears of a hang, and of its end, whoever comes first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

from hooktrace.ranks.hang.conclude import HangDiagnosis
from hooktrace.ranks.hang.messages import NOTICE, HangNotice
from hooktrace.ranks.hang.service import HangService
from hooktrace.records import HangRecord
from hooktrace.testing import FakeClock
from tests.ranks.test_hang import Rank

FOUND = HangDiagnosis(
    kind="busy",
    model="model0",
    hook="fp16",
    step=0,
    bucket=0,
    ranks=(1,),
    waiting=(0,),
    age_ns=1,
    message="bucket 0 of step 0 has waited",
)


class Channel:
    """Has what a service asked for."""

    is_hub = False

    def __init__(self) -> None:
        self.notices: dict[str, Callable[[bytes], None]] = {}

    def answer(self, name: str, handler: Any) -> None:
        """Nobody asks."""

    def on_notice(self, name: str, handler: Callable[[bytes], None]) -> None:
        self.notices[name] = handler

    def on_report(self, name: str, handler: Any) -> None:
        """Nobody reports."""

    def every(self, period_s: float, work: Any) -> None:
        """No time passes."""

    def ask(self, name: str, argument: bytes, timeout_s: float) -> Any:
        raise AssertionError

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
        self.launch(0)
        self.finish()

    def hear_of_hang(self, record: HangRecord) -> None:
        self.heard.append(record)


@pytest.fixture
def service() -> Iterator[tuple[HangService, Channel]]:
    channel = Channel()
    made = HangService(channel, 0, 2, FakeClock())
    yield made, channel
    made.close()


@pytest.mark.parametrize("hub_has_ended_it", [False, True])
def test_a_tracer_that_closes_says_the_end_that_it_was_not_told(
    service: tuple[HangService, Channel], hub_has_ended_it: bool
) -> None:
    """Also where the hub, in this process, takes it for over and has not told anybody yet."""
    made, channel = service
    user, other = User(), User()
    made.add(user)
    made.add(other)
    channel.notices[NOTICE](msgspec.msgpack.encode(HangNotice(0, FOUND)))
    end = HangNotice(0, FOUND, ended_after_ns=5)
    if hub_has_ended_it:
        made._hub.take_notice(end)
    made.remove(user)
    assert [one.ended_after_ns is not None for one in user.heard] == [False, True]
    channel.notices[NOTICE](msgspec.msgpack.encode(end))
    made.remove(other)
    assert len(user.heard) == 2
    assert user.heard[1].end_is_stamped
    assert [one.ended_after_ns for one in other.heard] == [None, 5]

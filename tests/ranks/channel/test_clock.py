"""Offsets by pings to a new parent and with each beat, in whole ticks; over hosts: test_channel."""

from __future__ import annotations

from typing import Any

import pytest

from hooktrace.ranks.channel import clock
from hooktrace.ranks.channel.clock import ClockOffset
from hooktrace.ranks.channel.messages import Pong
from hooktrace.records import CLOCK_DRIFT, ClockRecord
from tests.ranks.channel.jobs import S

AHEAD_NS = 1_000_000
"""How far the parent's clock is ahead."""


class Link:
    """A clock offset whose parent answers when one says; ``now_ns``: this rank's clock."""

    def __init__(self) -> None:
        self.now_ns = 10**12
        self.records: list[ClockRecord] = []
        self.offset = ClockOffset(lambda: self.now_ns, self.records.append)
        self.sent_ns: list[int] = []

    def answer(
        self,
        there_ns: int = 20_000,
        back_ns: int = 20_000,
        *,
        ping: int = -1,
        parents: int | None = 0,
        unsure_ns: int = 0,
    ) -> None:
        """Answer a ping; its way there and back takes so long from now on.

        ``parents``: the offset of the parent's own clock, and how unsure that is.
        """
        self.now_ns += there_ns
        arrived = self.now_ns + AHEAD_NS
        self.now_ns += back_ns
        pong = Pong(self.sent_ns[ping], arrived, arrived, parents, unsure_ns)
        if self.offset.answered(pong, self.now_ns):
            self.ping()

    def ping(self) -> None:
        self.sent_ns.append(self.now_ns)

    def beat(self, there_ns: int = 20_000, back_ns: int = 20_000) -> None:
        self.ping()
        self.answer(there_ns, back_ns)


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> Link:
    monkeypatch.setattr(clock, "PINGS", 3)
    return Link()


def test_a_ping_tells_the_offset(link: Link) -> None:
    """To within half of its round trip, and less surely as time passes."""
    assert link.offset.offset_at(link.now_ns) is None
    link.beat(there_ns=30_000, back_ns=10_000)
    (record,) = link.records
    assert (record.offset_ns, record.uncertainty_ns, record.pings) == (AHEAD_NS + 10_000, 20_000, 1)
    assert link.offset.offset_at(record.time_ns) == (AHEAD_NS + 10_000, 20_000)
    later = 20_000 + int(S * CLOCK_DRIFT)
    assert link.offset.offset_at(record.time_ns + S) == (AHEAD_NS + 10_000, later)


def test_a_worse_ping_says_nothing_until_the_clocks_may_have_drifted_as_far(link: Link) -> None:
    """What is known is then used again; a record of it is made after 10 s only."""
    link.beat()
    link.beat(there_ns=500_000, back_ns=0)
    assert link.offset.offset_at(link.now_ns)[0] == AHEAD_NS  # type: ignore[index]
    assert len(link.records) == 1
    link.now_ns += round(230_000 / CLOCK_DRIFT)  # 4.6 s
    link.beat(there_ns=500_000, back_ns=0)
    assert link.offset.offset_at(link.now_ns)[0] == AHEAD_NS + 250_000  # type: ignore[index]
    assert len(link.records) == 1
    link.now_ns += 10_000_000_000
    link.beat()
    assert [record.offset_ns for record in link.records] == [AHEAD_NS, AHEAD_NS]


def test_the_shortest_round_trip_to_a_new_parent_counts(link: Link) -> None:
    """Of 9, 1 and 5 ticks; the parent's uncertainty is added."""
    link.offset.joined()
    link.ping()
    for there, back in ((4, 5), (1, 0), (3, 2)):
        link.answer(there, back, parents=50, unsure_ns=7)
    (record,) = link.records
    assert (record.round_trip_ns, record.uncertainty_ns) == (1, 8)
    assert abs(record.offset_ns - AHEAD_NS - 50) <= 1
    assert record.pings == len(link.sent_ns) == 3


@pytest.mark.parametrize("answer", [{"ping": 0}, {"parents": None}], ids=str)
def test_answers_that_say_little(link: Link, answer: Any) -> None:
    """To an earlier ping, which took long; of a parent that does not know its own."""
    link.offset.joined()
    link.ping()
    link.now_ns += 5 * S
    link.ping()
    link.answer(**answer)
    assert (link.records, link.offset.offset_at(link.now_ns)) == ([], None)
    link.ping()
    for _ in range(3):
        link.answer()
    (record,) = link.records
    assert abs(record.offset_ns - AHEAD_NS) <= record.uncertainty_ns < 100_000

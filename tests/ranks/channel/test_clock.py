"""Offsets by pings to a new parent and with each beat: in whole ticks, and over connections."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from typing import Any

import pytest

from hooktrace.ranks.channel import clock
from hooktrace.ranks.channel.channel import Channel
from hooktrace.ranks.channel.clock import ClockOffset
from hooktrace.ranks.channel.meeting import HubPlaces, Meeting
from hooktrace.ranks.channel.messages import Ping, Pong, Up
from hooktrace.records import CLOCK_DRIFT, ClockRecord
from tests.ranks.channel.jobs import Job, S, wait_for

AHEAD_NS = 1_000_000
"""How far the parent's clock is ahead."""


class Link:
    """A parent whose answers take as long as one says; ``now_ns``: this rank's clock."""

    def __init__(self) -> None:
        self.now_ns = 10**12
        self.records: list[ClockRecord] = []
        self.offset = ClockOffset(lambda: self.now_ns, self.records.append)
        self.sent: list[Any] = []

    def answer(self, *, there_ns: int = 20_000, back_ns: int = 20_000) -> None:
        """Answer the last ping; its way there and back takes so long."""
        ping = self.sent.pop()
        assert isinstance(ping, Ping)
        self.now_ns += there_ns
        arrived = self.now_ns + AHEAD_NS
        self.now_ns += back_ns
        self.offset.answered(Pong(ping.number, arrived, arrived, 0, 0), self.now_ns)

    def beat(self, *, there_ns: int = 20_000, back_ns: int = 20_000) -> None:
        """Beat, and have it answered."""
        self.offset.ping(self.sent.append)
        self.answer(there_ns=there_ns, back_ns=back_ns)


def test_a_beat_tells_the_offset() -> None:
    """To within half of its round trip."""
    link = Link()
    assert link.offset.offset_at(link.now_ns) is None
    link.beat(there_ns=30_000, back_ns=10_000)
    (record,) = link.records
    assert (record.offset_ns, record.uncertainty_ns, record.pings) == (AHEAD_NS + 10_000, 20_000, 1)
    assert link.offset.offset_at(record.time_ns) == (AHEAD_NS + 10_000, 20_000)


def test_a_worse_beat_says_nothing_until_the_clocks_may_have_drifted_as_far() -> None:
    """What is known is then used again; a record of it is made after 10 s only."""
    link = Link()
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


class Pinger:
    """A clock offset that is told the time, and what its parent answers."""

    def __init__(self) -> None:
        self.now = 0
        self.sent: list[Up] = []
        self.records: list[ClockRecord] = []
        self.offset = ClockOffset(lambda: self.now, self.records.append)

    def begin(self, at: int) -> None:
        """Have a new parent."""
        self.now = at
        self.offset.joined(self.sent.append)

    def answer(self, read: int, back: int, *, ping: int = -1, parents: int | None = 0) -> None:
        """Let the parent's clock read ``read`` when a ping comes, its answer arrive at ``back``."""
        asked = [message for message in self.sent if isinstance(message, Ping)][ping]
        self.now = back
        self.offset.answered(Pong(asked.number, read, read, parents, 7), back)


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> Pinger:
    """One that pings a new parent three times."""
    monkeypatch.setattr(clock, "PINGS", 3)
    return Pinger()


def test_the_shortest_round_trip_counts(three: Pinger) -> None:
    """Of answers that come after 9, 1 and 5 ticks; the parent's uncertainty is added."""
    three.begin(0)
    for read, back in ((1004, 9), (1010, 10), (1012, 15)):
        three.answer(read, back)
    assert three.records == [
        ClockRecord(time_ns=9, offset_ns=1000, uncertainty_ns=8, round_trip_ns=1, pings=3)
    ]
    assert [message.number for message in three.sent] == [1, 2, 3]


def test_an_answer_to_an_earlier_ping_is_none_to_this_one(three: Pinger) -> None:
    """It would seem to come at once, and a clock off by seconds to be exact."""
    three.begin(0)
    three.now = 5 * S
    three.offset.ping(three.sent.append)
    three.answer(100, 5 * S + 1, ping=0)
    for i in range(3):
        three.answer(5 * S + 10 + 20 * i, 5 * S + 20 + 20 * i)
    (record,) = three.records
    assert abs(record.offset_ns) <= record.uncertainty_ns < 100


def test_an_answer_to_an_earlier_beat_is_none_to_the_last_one(three: Pinger) -> None:
    """Over a line that is slower than the beats."""
    three.offset.ping(three.sent.append)
    three.now = S
    three.offset.ping(three.sent.append)
    three.answer(S // 2, S + 1, ping=0)
    assert three.records == []
    three.answer(S + 5, S + 10)
    (record,) = three.records
    assert abs(record.offset_ns) <= record.uncertainty_ns < 100


def test_a_parent_that_does_not_know_its_own_offset_gives_none(three: Pinger) -> None:
    """Until it does."""
    three.begin(0)
    for back in (10, 20, 30):
        three.answer(back, back, parents=None)
    assert three.records == []
    assert three.offset.offset_at(30) is None


def test_pings_before_the_parent_knows_its_own_offset_do_not_count(three: Pinger) -> None:
    """They would come without its uncertainty."""
    three.begin(0)
    three.answer(1, 2, parents=None)
    assert len(three.sent) == 1  # the next one goes with the next beat
    three.offset.ping(three.sent.append)
    for read, back in ((1007, 12), (1022, 32), (1040, 52)):
        three.answer(read, back, parents=50)
    (record,) = three.records
    assert (record.offset_ns, record.uncertainty_ns, record.pings) == (1050, 12, 3)


def test_uncertainty_grows_with_the_time_since(three: Pinger) -> None:
    """As fast as clocks drift apart."""
    three.begin(0)
    for back in (2, 4, 6):
        three.answer(1000 + back - 1, back)
    assert three.offset.offset_at(three.records[0].time_ns + S) == (1000, 8 + int(S * CLOCK_DRIFT))


DELAY_S = 0.05


def relay(listener: socket.socket, place: tuple[str, int]) -> None:
    """Carry one connection to ``place``, later in one direction than in the other."""
    near = listener.accept()[0]
    far = socket.create_connection(place)
    for one in (near, far):
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def carry(source: socket.socket, target: socket.socket, delay_s: float) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                time.sleep(delay_s)
                target.sendall(data)
        for end in (source, target):
            end.close()

    threading.Thread(target=carry, args=(far, near, 0), daemon=True).start()
    carry(near, far, DELAY_S)


def test_a_delay_one_way_stays_within_the_uncertainty() -> None:
    """All pings are held for 50 ms, and no answer is."""
    job = Job(1, ahead_ns=0)
    assert wait_for(Meeting(job.store).hub)
    hub = job.ranks[0]
    hub.node.world_size = job.size = 2
    job.hosts, job.clocks[1] = "hh", []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        Meeting(job.store).publish(HubPlaces("h", (listener.getsockname()[:2],), hub.token.hex()))
        thread = threading.Thread(target=relay, args=(listener, hub.places[0]))
        thread.start()
        job.ranks.append(job.begin(1, 2 * S))
        with job:
            assert wait_for(lambda: job.measured(1))
        thread.join(5)
    record = job.measured(1)[0]
    assert record.round_trip_ns >= DELAY_S * 1e9
    assert DELAY_S * 1e9 / 4 < abs(record.offset_ns + 2 * S) <= record.uncertainty_ns


@pytest.mark.usefixtures("loopback_reaches_all")
def test_offsets_add_up_over_two_levels() -> None:
    """From a rank by the first one of its host to the hub, and so do the uncertainties."""
    with Job(4, ahead_ns=7 * S, hosts="aabb") as job:
        assert wait_for(lambda: all(job.measured(rank) for rank in (1, 2, 3)))
        below = [rank for rank in (2, 3) if parent_of(job.ranks[rank]) != 0]
        assert len(below) == 1
        for rank in (1, 2, 3):
            record = job.measured(rank)[0]
            assert abs(record.offset_ns + rank * 7 * S) <= record.uncertainty_ns < S
        deep = job.measured(below[0])[0]
        assert deep.uncertainty_ns > -(-deep.round_trip_ns // 2)


def parent_of(channel: Channel) -> int:
    """Return which rank a rank's parent is."""
    member = channel._membership.upward.member
    assert member is not None
    return member.rank

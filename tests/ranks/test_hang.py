"""Watchdog and diagnosis together: an alarm in time, and none too early; calm: distributed/."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hooktrace.ranks.hang.diagnosis import diagnose
from hooktrace.ranks.hang.evidence import ThreadStack
from hooktrace.ranks.hang.look import look
from hooktrace.ranks.hang.messages import Hang, RankStatus, Suspicion
from hooktrace.ranks.hang.snapshot import Round
from hooktrace.ranks.hang.watchdog import Pauses, Watchdog
from hooktrace.staging.calls import BucketCall
from hooktrace.staging.slots import BucketSlot, ModelState
from hooktrace.testing import FakeBucket, FakeClock
from tests.fakes import FakeOperation

S = 1_000_000_000
BUCKETS = 3


class Rank:
    """One rank: its model, and where its training thread is."""

    def __init__(self, rank: int, clock: FakeClock, hang_after_s: float | None = None) -> None:
        self.rank = rank
        self.clock = clock
        self.event_pool: Any = None
        self.model = ModelState("model0", "fp16", {}, rank)
        parameters = [torch.zeros(1)]
        for index in range(BUCKETS):
            bucket = FakeBucket(parameters, index, is_last=index == BUCKETS - 1)
            self.model.slots[index] = BucketSlot(self.model, bucket, index, (index,))
        self.usual: int | None = None
        self.asked = 0
        self.pauses = Pauses()
        self.doing: tuple[str, ...] = ()
        self.watchdog = Watchdog(self, self.status, hang_after_s)

    def push(self, call: object) -> None:
        """Take an ended call."""

    def model_states(self) -> list[ModelState]:
        return [self.model]

    def usual_ns(self, model: str) -> int | None:
        self.asked += 1
        return self.usual

    def launch(self, ready_ns: int) -> None:
        """Give all buckets to the hook."""
        for index, slot in self.model.slots.items():
            step = self.model.enter(index)
            slot.last_call = call = BucketCall(slot, step, ready_ns, self)
            call.issued(FakeOperation(64, future=None))

    def finish(self) -> None:
        """Have all results."""
        for slot in self.model.slots.values():
            call: Any = slot.last_call
            call.arrived()
            call.finished()

    def status(self) -> RankStatus:
        main = ThreadStack(name="main", ident=1, frames=(), where="data.py:88 f", doing=self.doing)
        models = look([self.model], self.clock.now_ns)
        paused = self.pauses.active
        return RankStatus(rank=self.rank, models=models, main=main, paused=paused)


class Job:
    """Ranks that wait for each other, in a simulated time; a look each second of it."""

    def __init__(self, ranks: int, **options: Any) -> None:
        self.clock = FakeClock(step_ns=0)
        self.ranks = [Rank(rank, self.clock, **options) for rank in range(ranks)]
        self.suspicions: list[Suspicion] = []
        self.said_ns: list[int] = []
        """When each was said, since the first rank came to its backward pass."""
        self.alarms: list[Hang] = []
        self.began_ns = 0

    def step(self, arrivals_ns: list[int]) -> None:
        """Let the ranks come to their backward pass so long after the step began."""
        begin, waiting = self.clock.now_ns, sorted(enumerate(arrivals_ns), key=lambda a: a[1])
        self.began_ns = begin + min(arrivals_ns)
        for rank, after in waiting:
            self._wait_until(begin + after)
            self.ranks[rank].doing = ("backward",)
            self.ranks[rank].launch(self.clock.now_ns)
        self._wait_until(self.clock.now_ns + 10_000_000)
        for one in self.ranks:
            one.finish()
            one.doing = ()

    def _wait_until(self, time_ns: int) -> None:
        while time_ns - self.clock.now_ns > S:
            self.clock.advance(S)
            self.look()
        self.clock.now_ns = time_ns

    def look(self) -> None:
        """Look on every rank, and have a suspicion judged as the hub does."""
        news = [one for rank in self.ranks if (one := rank.watchdog.look()) is not None]
        self.suspicions += news
        self.said_ns += [self.clock.now_ns - self.began_ns for _ in news]
        if news and not news[0].over:
            found = diagnose(self.answers(), self.answers(), len(self.ranks))
            if found is not None and found.is_due(news[0].threshold_ns):
                self.alarms.append(found)

    def answers(self) -> Round:
        return Round.of([rank.status() for rank in self.ranks])


def test_alarm_within_a_look() -> None:
    """Ten seconds, and what the others wait for."""
    job = Job(3)
    for _ in range(5):
        job.step([S // 10] * 3)
    job.step([0, 30 * S, 0])
    alarm = job.alarms[0]
    assert (alarm.kind, alarm.ranks, alarm.step, alarm.bucket) == ("busy", (1,), 5, 0)
    assert 10 * S < job.said_ns[0] <= 11 * S
    assert [one.over for one in job.suspicions][-2:] == [False, False]
    job.look()
    assert [one.over for one in job.suspicions][-2:] == [True, True]


def test_alarm_of_what_is_excused() -> None:
    """Compilation takes a minute, and not two."""
    job = Job(2)
    job.step([S // 10] * 2)
    job.ranks[1].doing = ("compiling",)
    job.step([0, 130 * S])
    assert job.alarms
    assert all(alarm.age_ns >= 100 * S for alarm in job.alarms)


def test_usual_durations_count() -> None:
    """Twenty times the 99th percentile, which is asked for once a call is ten seconds old."""
    job = Job(2)
    for rank in job.ranks:
        rank.usual = 2 * S
    job.step([0, 9 * S])
    assert job.ranks[0].asked == 0
    job.step([0, 39 * S])
    assert job.suspicions == []
    assert job.ranks[0].asked == 28
    job.step([0, 43 * S])
    assert job.suspicions[0].threshold_ns == 40 * S


def test_what_becomes_usual_meanwhile_ends_no_wait() -> None:
    """As where another model goes on: a call that is suspected is so until it is done."""
    job = Job(2)
    rank = job.ranks[0]
    rank.launch(job.clock())
    job.clock.advance(11 * S)
    suspected = rank.watchdog.look()
    assert suspected is not None
    rank.usual = S
    job.clock.advance(6 * S)
    assert rank.watchdog.look() == suspected


def test_own_limit() -> None:
    """The user's number is taken as it is."""
    job = Job(2, hang_after_s=2.0)
    job.ranks[0].usual = 60 * S
    job.step([0, 4 * S])
    assert job.suspicions[0].threshold_ns == 2 * S
    assert job.ranks[0].asked == 0


def test_said_again() -> None:
    """After five seconds: the hub may not have been reached."""
    job = Job(2)
    job.step([0, 30 * S])
    assert [ns // S for ns in job.said_ns] == [11, 16, 21, 26]


def test_who_waits_for_nobody_suspects_nothing() -> None:
    """A rank that computes for an hour."""
    job = Job(1)
    job.step([0])
    job.clock.advance(3600 * S)
    job.look()
    assert job.suspicions == []


def test_error_of_what_is_over() -> None:
    """It did not go on but failed."""
    job = Job(2)
    job.step([S // 10] * 2)
    rank = job.ranks[0]
    rank.launch(job.clock.now_ns)
    job.clock.advance(12 * S)
    job.look()
    for slot in rank.model.slots.values():
        call: Any = slot.last_call
        call.failed("wire", RuntimeError("timed out"))
    job.look()
    assert [(one.over, one.error) for one in job.suspicions] == [
        (False, ""),
        (True, "RuntimeError: timed out"),
    ]


def test_pauses_nest() -> None:
    """The last one to end ends them."""
    pauses = Pauses()
    with pauses.open():
        with pauses.open():
            assert pauses.active
        assert pauses.active
    assert not pauses.active


@pytest.mark.parametrize(("is_done", "error"), [(True, ""), (False, "the tracer was closed")])
def test_a_tracer_that_closes_says_whether_its_call_went_on(is_done: bool, error: str) -> None:
    """Which may have been since the last look."""
    rank = Rank(0, FakeClock(step_ns=0), hang_after_s=1.5)
    rank.launch(1)
    rank.clock.advance(2 * S)
    assert rank.watchdog.look() is not None
    if is_done:
        rank.finish()
    last = rank.watchdog.close()
    assert last is not None
    assert (last.over, last.error) == (True, error)
    assert rank.watchdog.close() is None

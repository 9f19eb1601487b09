"""Watchdog and diagnosis together: an alarm in time, and none too early; calm: distributed/."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hooktrace.ranks.hang.diagnosis import diagnose
from hooktrace.ranks.hang.evidence import ThreadStack
from hooktrace.ranks.hang.look import Watchdog, look
from hooktrace.ranks.hang.messages import Hang, RankStatus, Suspicion
from hooktrace.ranks.hang.snapshot import Round
from hooktrace.staging.calls import BucketCall
from hooktrace.staging.slots import BucketSlot, ModelState
from hooktrace.testing import FakeClock
from tests.fakes import FakeOperation

S = 1_000_000_000


def two_buckets() -> ModelState:
    model = ModelState("model0", "fp16", 0)
    for index in range(2):
        model.slots[index] = BucketSlot(model, torch.zeros(1), index, ())
    return model


class Rank:
    """One rank: its model, and where its training thread is."""

    def __init__(
        self, rank: int = 0, clock: FakeClock | None = None, hang_after_s: float | None = None
    ) -> None:
        self.rank = rank
        self.clock = FakeClock(step_ns=0) if clock is None else clock
        self.event_pool: Any = None
        self.model = two_buckets()
        self.usual: int | None = None
        self.asked = 0
        self.doing: tuple[str, ...] = ()
        self.hang_after_s = hang_after_s
        self.watchdog = Watchdog(self, self.status)

    def push(self, call: object) -> None:
        """Take an ended call."""

    def model_states(self) -> list[ModelState]:
        return [self.model]

    def usual_ns(self, model: str) -> int | None:
        self.asked += 1
        return self.usual

    def launch(self) -> None:
        for index in self.model.slots:
            self.begin(index).issued(FakeOperation(64, future=None))

    def begin(self, index: int) -> BucketCall:
        slot, step = self.model.slots[index], self.model.enter(index)
        slot.last_call = call = BucketCall(slot, step, self.clock.now_ns, self.clock)
        return call

    def calls(self) -> list[Any]:
        return [slot.last_call for slot in self.model.slots.values()]

    def finish(self) -> None:
        for call in self.calls():
            call.arrived()
            call.finished()

    def status(self) -> RankStatus:
        main = ThreadStack(name="main", ident=1, frames=(), where="data.py:88 f", doing=self.doing)
        models = look([self.model], self.clock.now_ns)
        return RankStatus(rank=self.rank, models=models, main=main)


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
        begin, waiting = self.clock.now_ns, sorted(enumerate(arrivals_ns), key=lambda a: a[1])
        self.began_ns = begin + min(arrivals_ns)
        for rank, after in waiting:
            self._wait_until(begin + after)
            self.ranks[rank].doing = ("backward",)
            self.ranks[rank].launch()
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
            answers = Round({rank.rank: rank.status() for rank in self.ranks})
            found = diagnose(answers, answers, len(self.ranks))
            if found is not None and found.is_due(news[0].threshold_ns):
                self.alarms.append(found)


def test_alarm_within_a_look_and_again_until_it_is_over() -> None:
    """Ten seconds, and what the others wait for; each five seconds, if the hub was not reached."""
    job = Job(3)
    job.step([S // 10] * 3)
    job.step([0, 30 * S, 0])
    alarm = job.alarms[0]
    assert (alarm.kind, alarm.ranks, alarm.step, alarm.bucket) == ("busy", (1,), 1, 0)
    assert [ns // S for ns in job.said_ns[::2]] == [11, 16, 21, 26]
    assert not any(one.over for one in job.suspicions)
    job.look()
    assert [one.over for one in job.suspicions][-2:] == [True, True]


def test_usual_durations_count() -> None:
    """Twenty times the 99th percentile, which is asked for once a call is ten seconds old."""
    job = Job(2)
    waits = job.ranks[0]
    waits.usual = 2 * S
    job.step([0, 9 * S])
    assert waits.asked == 0
    job.step([0, 39 * S])
    assert (job.suspicions, waits.asked) == ([], 28)
    job.step([0, 43 * S])
    assert job.suspicions[0].threshold_ns == 40 * S
    # As where another model goes on: a call that is suspected is so until it is done.
    rank = Rank()
    rank.launch()
    rank.clock.advance(11 * S)
    suspected = rank.watchdog.look()
    assert suspected is not None
    rank.usual = S
    rank.clock.advance(6 * S)
    assert rank.watchdog.look() == suspected


def test_own_limit() -> None:
    job = Job(2, hang_after_s=2.0)
    job.ranks[0].usual = 60 * S
    job.step([0, 4 * S])
    assert job.suspicions[0].threshold_ns == 2 * S
    assert job.ranks[0].asked == 0


@pytest.mark.parametrize(
    ("end", "error"),
    [
        ("went on", ""),
        ("failed", "RuntimeError: timed out"),
        ("closed", "the tracer was closed"),
        ("went on, and closed", ""),
    ],
)
def test_what_is_over_says_whether_it_went_on(end: str, error: str) -> None:
    """A tracer that closes too, whose call may have ended since the last look."""
    rank = Rank(hang_after_s=1.5)
    rank.launch()
    rank.clock.advance(2 * S)
    assert rank.watchdog.look() is not None
    if "went on" in end:
        rank.finish()
    elif end == "failed":
        for call in rank.calls():
            call.failed("wire", RuntimeError("timed out"))
    last = rank.watchdog.close() if "closed" in end else rank.watchdog.look()
    assert last is not None
    assert (last.over, last.error) == (True, error)
    assert rank.watchdog.close() is None

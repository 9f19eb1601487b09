"""One hook on a part of a bucket: what the stop-watch takes in, and which parts there are."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from hooktrace.capture.calls import Collective
from hooktrace.probes.trial import PartOfBucket, TooLargeError, parts_of, run_trial
from hooktrace.records import TrialRound
from hooktrace.testing import FakeClock
from tests.fakes import FakeGroup


class Echoed:
    """A collective of ``ranks`` ranks that brings what it was given."""

    def __init__(self, clock: FakeClock, kind: str, tensor: torch.Tensor, ranks: int = 2) -> None:
        self._clock, self._kind, self._tensor, self._ranks = clock, kind, tensor, ranks

    def describe(self) -> Collective:
        group = FakeGroup(size=self._ranks)
        return Collective(self._kind, self._tensor.nbytes, self._tensor.dtype, group)

    def echo(self) -> torch.Tensor:
        self._clock.advance(1000)  # which no hook pays
        return self._tensor


class Slow:
    """A hook whose first call takes longer: 10 or 30 ns before each of two rounds, 7 after them.

    Its result is the gradients, less what it remembers.
    """

    label = "slow"
    options = ()

    def __init__(self, clock: FakeClock, ranks: int = 2, kind: str = "all_reduce") -> None:
        self.clock, self.ranks, self.kind = clock, ranks, kind

    def fits(self, dtype: torch.dtype) -> bool:
        return dtype.is_floating_point

    def working_state(self, group: Any) -> dict[str, float]:
        return {"factor": 0.0}

    def steps(self, state: dict[str, float], bucket: PartOfBucket) -> Iterator[Any]:
        buffer = bucket.buffer()
        before = 10 if state["factor"] else 30
        for wire in (buffer, buffer[:2].half()):
            self.clock.advance(before)
            yield Echoed(self.clock, self.kind, wire, self.ranks)
        self.clock.advance(7)
        buffer.mul_(state["factor"])
        state["factor"] = 0.75
        return buffer


def part() -> tuple[PartOfBucket, torch.Tensor]:
    """Return four gradients of two parameters, and the tensor that they are copied from."""
    gradients = torch.tensor([3.0, 0, 0, 4])
    return PartOfBucket(gradients, [torch.zeros(1, 2), torch.zeros(2)]), gradients


def test_only_the_hook_s_own_work_is_timed() -> None:
    """Not the answers to its collectives; the gradients stay as they are, the state goes on."""
    clock = FakeClock(step_ns=0)
    bucket, gradients = part()
    hook = Slow(clock)
    state = hook.working_state(None)
    with ThreadPoolExecutor(1) as worker:
        first = run_trial(hook, state, bucket, worker, clock, counts=False)
        trial = run_trial(hook, state, bucket, worker, clock)
    assert (first.work_ns, first.relative_l2, first.cosine, first.reference_l2) == (67, *[None] * 3)
    assert trial.rounds == (
        TrialRound(before_ns=10, collective="all_reduce", wire_bytes=16, dtype="float32"),
        TrialRound(before_ns=10, collective="all_reduce", wire_bytes=4, dtype="float16"),
    )
    assert (trial.after_ns, trial.work_ns) == (7, 27)
    assert (trial.relative_l2, trial.cosine, trial.reference_l2) == pytest.approx((0.25, 1, 5))
    assert gradients.tolist() == [3, 0, 0, 4]


def test_what_many_ranks_would_gather_is_not_made() -> None:
    """A trial on a thousand ranks must not take the memory of a thousand buckets."""
    bucket, _ = part()
    hook = Slow(FakeClock(), ranks=1 << 25, kind="all_gather")
    with ThreadPoolExecutor(1) as worker, pytest.raises(TooLargeError):
        run_trial(hook, hook.working_state(None), bucket, worker)


class Placed(Slow):
    """A hook that notes the thread of each stretch of its work, and fails in the one that is told.

    Its clock is one for each thread, as processor time is.
    """

    def __init__(self, fails_in: int = -1) -> None:
        super().__init__(FakeClock(step_ns=0))
        self.fails_in = fails_in
        self.threads: list[int] = []

    def steps(self, state: dict[str, float], bucket: PartOfBucket) -> Iterator[Any]:
        for stretch in range(3):
            self.threads.append(threading.get_ident())
            assert not torch.is_grad_enabled()
            if stretch == self.fails_in:
                raise ValueError(stretch)
            if stretch < 2:
                yield Echoed(self.clock, self.kind, bucket.buffer())
        return bucket.buffer()


def test_what_follows_a_collective_is_on_another_thread() -> None:
    """As the backend's callbacks are; the same thread in both calls."""
    bucket, _ = part()
    hook = Placed()
    with torch.no_grad(), ThreadPoolExecutor(1) as worker:
        other = worker.submit(threading.get_ident).result()
        for _ in range(2):
            run_trial(hook, {}, bucket, worker)
    assert hook.threads == [threading.get_ident(), other, other] * 2


def test_each_stretch_is_timed_where_it_is_done() -> None:
    """By that thread's own clock: what two of them say has no difference that means anything."""
    bucket, _ = part()
    hook = Slow(FakeClock(step_ns=0))
    here = threading.get_ident()

    def clock() -> int:
        return hook.clock() + 1_000_000 * (threading.get_ident() != here)

    with ThreadPoolExecutor(1) as worker:
        trial = run_trial(hook, {"factor": 1.0}, bucket, worker, clock)
    assert [one.before_ns for one in trial.rounds] == [10, 10]
    assert trial.after_ns == 7


@pytest.mark.parametrize("stretch", [0, 1, 2])
def test_a_hook_s_error_comes_from_any_of_its_threads(stretch: int) -> None:
    bucket, _ = part()
    with (
        torch.no_grad(),
        ThreadPoolExecutor(1) as worker,
        pytest.raises(ValueError, match=f"{stretch}"),
    ):
        run_trial(Placed(fails_in=stretch), {}, bucket, worker)


def test_a_part_is_a_bucket_of_its_own() -> None:
    """With gradients in its parameters' shapes, at which no state counts a step."""
    bucket, _ = part()
    bucket.fill()
    assert [g.tolist() for g in bucket.gradients()] == [[[3, 0]], [0, 4]]
    assert (bucket.index(), bucket.is_last(), len(bucket.parameters())) == (0, False, 2)


K = 1024


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([16 * K] * 16, [(0, 1), (0, 4), (0, 16)]),
        ([64 * K, 4 * K, 12 * K, 16 * K], [(1, 1), (2, 2), (0, 4)]),  # 4 of 6, 28 of 24
        ([K] * 16, [(0, 4), (0, 16)]),  # a sixteenth is too small to tell from any call
        ([64 * K], [(0, 1)]),
        ([10, 10], [(0, 2)]),
        ([64 * K, 64 * K, 3], [(0, 3)]),  # nothing is near a quarter
    ],
)
def test_parts_are_near_a_sixteenth_and_a_quarter(
    lengths: list[int], expected: list[tuple[int, int]]
) -> None:
    """Where parameters add up to that; the whole bucket comes last."""
    assert parts_of(lengths) == expected

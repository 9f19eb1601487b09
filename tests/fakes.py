"""Hand-written stand-ins for unit tests of pure logic: no process group, no DDP."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from hooktrace import StagedHook, Tracer, staged, trace
from hooktrace.records import Batch
from hooktrace.staging.calls import Collective
from hooktrace.testing import FakeBucket, FakeClock


@dataclass(frozen=True)
class FakeGroup:
    """The facts of a group with ``workers`` workers."""

    size: int = 2
    key: int = 1000
    workers: int = 2
    members: tuple[int, int, int] | None = None


@dataclass
class FakeOperation:
    """A collective that completes when the test says so."""

    wire_bytes: int
    kind: str = "all_reduce"
    dtype: torch.dtype = torch.float16
    info: FakeGroup = field(default_factory=FakeGroup)
    future: Any = field(default_factory=torch.futures.Future)

    def describe(self) -> Any:
        return Collective(self.kind, self.wire_bytes, self.dtype, self.info)

    def start(self) -> Any:
        return self.future

    def result(self, future: Any) -> torch.Tensor:
        return future.value()

    def complete(self) -> None:
        """Let the collective arrive, running the hook's callback on this thread."""
        self.future.set_result(torch.zeros(1))


def plain(state: Any, bucket: Any) -> Any:
    """Return a future that is done: a hook of which only its end is seen."""
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def hook_of(
    operations: list[FakeOperation], clock: Any = None, before: int = 0, after: int = 0, **more: Any
) -> StagedHook:
    """Return a hook that yields the given operations, one a call, and takes time around each."""
    waiting, clock = iter(operations), clock or fake_clock()

    def fake_hook(state: Any, bucket: Any) -> Iterator[Any]:
        clock.advance(before)
        yield next(waiting)
        clock.advance(after)
        return bucket.buffer()

    return staged(**more)(fake_hook)


def calls_in_flight(tracer: Tracer) -> int:
    """Return how many calls wait for their futures; of each bucket there is at most one."""
    slots = [slot for model in tracer.models.all() for slot in list(model.slots.values())]
    return sum(slot.last_call is not None and slot.last_call.in_flight for slot in slots)


class FakeExporter:
    """Keeps what it gets; raises, when told to, from then on."""

    def __init__(self, name: str = "fake", error: Exception | None = None) -> None:
        self.name = name
        self.error = error
        self.batches: list[Batch] = []
        self.closed = 0
        self.lost: dict[str, int] = {}

    def export(self, batch: Batch) -> None:
        if self.error is not None:
            raise self.error
        self.batches.append(batch)

    def close(self) -> None:
        self.closed += 1

    @property
    def steps(self) -> list[int]:
        return [step.step for batch in self.batches for step, _ in batch.steps]


class Job:
    """A model of ``buckets`` buckets that never communicates: every collective arrives at once."""

    def __init__(self, tracer: Tracer, buckets: int = 1) -> None:
        self.parameters = [[torch.zeros(4)] for _ in range(buckets)]
        self.buckets = [
            FakeBucket(p, index=i, is_last=i == buckets - 1) for i, p in enumerate(self.parameters)
        ]

        def local(state: Any, bucket: Any) -> Any:
            return plain(state, bucket)

        self.hook = trace(local, tracer=tracer)

    def step(self) -> None:
        """Call the hook for each bucket, as a backward pass does."""
        for bucket in self.buckets:
            result = self.hook(None, bucket).wait()
            assert result.data_ptr() == bucket.buffer().data_ptr()


def fake_clock() -> FakeClock:
    """Return a clock that moves only when told to."""
    return FakeClock(start_ns=0, step_ns=0)


def buckets_of(count: int) -> list[FakeBucket]:
    """Return the buckets of one model, of eight gradients each."""
    return [FakeBucket([torch.zeros(8)], index=i, is_last=i == count - 1) for i in range(count)]

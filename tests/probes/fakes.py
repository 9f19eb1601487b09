"""Stand-ins for what the parts of a sampler are given: a bucket, its slot, a call, a tracer."""

from __future__ import annotations

from typing import Any

import torch

from hooktrace.probes.step_sampler import CallStart
from hooktrace.staging.slots import BucketSlot, ModelState
from hooktrace.testing import FakeBucket
from tests.fakes import fake_clock


class Sink:
    """A tracer's clock and ring: keeps what is pushed."""

    event_pool: Any = None

    def __init__(self) -> None:
        self.clock = fake_clock()
        self.pushed: list[Any] = []
        self.push = self.pushed.append

    def clock_offset(self, host_ns: int) -> tuple[int, int]:
        return 100, 7


def bucket_of(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> FakeBucket:
    """Return a bucket of zeros, which is not its model's last one."""
    return FakeBucket([torch.zeros(shape, dtype=dtype) for shape in shapes], is_last=False)


def slot_of(bucket: FakeBucket) -> BucketSlot:
    """Return the slot of a bucket of a new model."""
    model = ModelState("net", "my_hook", 0)
    names = tuple((f"{bucket.index()}.{i}", p.shape) for i, p in enumerate(bucket.parameters()))
    slot = BucketSlot(model, bucket.buffer(), bucket.index(), names)
    slot.is_last = bucket.is_last()
    model.slots[bucket.index()] = slot
    return slot


def start_of(slot: Any = None, step: int = 0, bucket: Any = None) -> CallStart:
    """Return a call that is about to begin."""
    return CallStart(slot, step, 0, bucket, None)


def future_of(result: Any) -> Any:
    """Return a future that is done, with a result or an error."""
    future: torch.futures.Future[Any] = torch.futures.Future()
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
    return future

"""What a hook yields, where it cannot say what it is, or is a hook itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from hooktrace import Tracer, staged, trace
from hooktrace.testing import FakeBucket
from tests.fakes import FakeOperation, fake_clock


@pytest.mark.parametrize("multi_round", [False, True])
def test_an_operation_that_cannot_be_described(multi_round: bool) -> None:
    """A record that cannot be made whole costs its stages, and training nothing."""

    class Strange(FakeOperation):
        def describe(self) -> Any:
            raise LookupError

    operation = Strange(wire_bytes=4)

    @staged(multi_round=multi_round)
    def hook(state: Any, bucket: Any) -> Iterator[Any]:
        yield operation
        return bucket.buffer()

    bucket = FakeBucket([torch.zeros(4)], is_last=True)
    with Tracer(clock=fake_clock()) as tracer:  # its probe of the first call takes no time
        threading.Timer(0.05, operation.complete).start()
        result = trace(hook, tracer=tracer)(None, bucket).wait()
        assert result.data_ptr() == bucket.buffer().data_ptr()
        (record,) = tracer.buckets()
        assert [s.name for s in record.stages] == ["hook", "future_wait"]
        assert record.wire_bytes is None
        assert tracer.losses() == {"stamp_failed": 1}

"""The one driver: calls whose stamps fail, and what is left of a call."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any
from unittest import mock

import pytest
import torch

from hooktrace import HookError, Tracer, staged, trace
from hooktrace.staging.collectives import Operation
from hooktrace.staging.driver import run_synchronously
from hooktrace.staging.order import sequencer_of
from hooktrace.testing import FakeBucket, FakeClock
from tests.fakes import FakeGroup, FakeOperation, plain


class FailingClock(FakeClock):
    """Raises at one of its maker's readings; the watch for hangs reads it each second too."""

    def __init__(self) -> None:
        super().__init__()
        self.until: int | None = None
        self._maker = threading.get_ident()

    def __call__(self) -> int:
        if threading.get_ident() != self._maker:
            return self.now_ns
        if self.until is not None:
            self.until -= 1
            if self.until == -1:
                raise OSError("no time")
        return super().__call__()


def one_round(state: Any, bucket: Any) -> Iterator[Any]:
    """Yield one operation that has arrived at once."""
    yield _arrived()
    return bucket.buffer()


def two_rounds(state: Any, bucket: Any) -> Iterator[Any]:
    """Yield two of them."""
    yield _arrived()
    yield _arrived()
    return bucket.buffer()


def _arrived() -> FakeOperation:
    operation = FakeOperation(wire_bytes=4)
    operation.complete()
    return operation


HOOKS: dict[str, tuple[Callable[..., Any], int]] = {
    "plain": (plain, 2),
    "one round": (staged(one_round), 5),
    "two rounds": (staged(multi_round=True)(two_rounds), 8),
}
"""Each with the number of stamps of a call: ready, two a collective, the turn, done, returned.

A plain hook that is done at once is done when it returns.
"""


@pytest.mark.parametrize(
    ("name", "reading"), [(name, at) for name, (_, stamps) in HOOKS.items() for at in range(stamps)]
)
def test_a_clock_that_raises_costs_the_times_of_that_call(name: str, reading: int) -> None:
    """At any of its stamps; the result is the hook's, and the next call is timed again."""
    hook, stamps = HOOKS[name]
    clock = FailingClock()
    bucket = FakeBucket([torch.ones(4)], is_last=True)
    with Tracer(clock=clock, error_every=0, align_clocks=False) as tracer:
        traced = trace(hook, tracer=tracer)
        traced(None, bucket).wait()  # the first call reads the clock for its layout too
        tracer.flush()
        clock.until = reading
        result = traced(None, bucket).wait()
        assert result.data_ptr() == bucket.buffer().data_ptr()
        assert clock.until < 0, "the table has more stamps than a call"
        clock.until = None
        traced(None, bucket).wait()
        before = clock.now_ns
        traced(None, bucket).wait()
        assert clock.now_ns - before == stamps, "the table has fewer stamps than a call"
        tracer.flush()
        assert tracer.losses()["stamp_failed"] == 1
        assert tracer.buckets()[-1].stages[-1].name in {"future_wait", "decompress"}
        assert not sequencer_of(None)._busy


class _Slips(FakeOperation):
    """Asks an iterator that has ended, where ``at`` says."""

    at = "start"

    def start(self) -> Any:
        return next(iter(())) if self.at == "start" else super().start()

    def result(self, future: Any) -> torch.Tensor:
        return next(iter(()))


@pytest.mark.parametrize("at", ["start", "result"])
@pytest.mark.parametrize("several", [False, True])
def test_a_stop_iteration_of_an_operation_s_does_not_end_the_hook(at: str, several: bool) -> None:
    """Which has returned nothing yet: its error is the operation's."""
    operation = _Slips(wire_bytes=4)
    operation.at = at
    operation.complete()

    def slipping(state: Any, bucket: Any) -> Iterator[Any]:
        if several:
            yield _arrived()
        yield operation
        return bucket.buffer()

    bucket = FakeBucket([torch.ones(4)], is_last=True)
    with pytest.raises(Exception, match="stage wire: StopIteration"):
        staged(multi_round=several)(slipping)(None, bucket).wait()
    with pytest.raises(HookError, match="stage wire: StopIteration"):
        run_synchronously("slipping", slipping(None, bucket), None, bucket, None, 4)


def _failing(state: Any, bucket: Any) -> Iterator[Any]:
    """Raise once its operation has arrived."""
    yield _arrived()
    raise LookupError("mine")


@pytest.mark.parametrize("hook", [*(hook for hook, _ in HOOKS.values()), staged(_failing)])
def test_a_call_that_has_ended_holds_nothing_of_its_hook_s(hook: Callable[..., Any]) -> None:
    """It stays until the drain has read it, and as its slot's last call until the next step."""
    bucket = FakeBucket([torch.ones(4)], is_last=True)
    held = weakref.ref(bucket)
    with Tracer(error_every=0, align_clocks=False, interval_s=3600) as tracer:
        traced = trace(hook, tracer=tracer)
        for _ in range(2):  # the second call takes the usual way
            with suppress(Exception):
                traced(None, bucket).wait()
        del bucket
        assert traced._layout.models[0].slots[0].last_call.step == 1
        assert held() is None


class _Arrives(Operation):
    """A collective on the bucket's own buffer, which has arrived at once."""

    kind = "all_reduce"
    info = FakeGroup()  # type: ignore[assignment]

    def start(self) -> Any:
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(self.tensor)
        return future


@pytest.mark.parametrize("after", [False, True], ids=["before the yield", "after it"])
def test_a_buffer_that_the_hook_itself_has_shortened_is_refused(after: bool) -> None:
    """At the latest before a shorter one is averaged: DDP would take it for the whole bucket."""
    shortens = [False]
    group: Any = FakeGroup()

    @staged
    def shortening(state: Any, bucket: Any) -> Iterator[Any]:
        buffer = bucket.buffer()
        if shortens[0] and not after:
            buffer.resize_(2)
        yield _Arrives(buffer, group)
        if shortens[0]:
            buffer.resize_(2)
        return buffer

    bucket = FakeBucket([torch.ones(4)], is_last=True)
    with Tracer(error_every=0, align_clocks=False, interval_s=3600) as tracer:
        traced = trace(shortening, tracer=tracer)
        for _ in range(3):
            traced(None, bucket).wait()
        assert traced._layout.models[0].slots[0].usual is not None
        shortens[0] = True
        if after:
            traced(None, bucket).wait()
        with pytest.raises(Exception, match="has 2 elements and the bucket 4"):
            traced(None, bucket).wait()


class _Rebinds(_Arrives):
    """Has another tensor once it has arrived, or none once it was issued."""

    how = ""

    def start(self) -> Any:
        future = super().start()
        if self.how == "has none":
            del self.tensor
        return future

    def result(self, future: Any) -> Any:
        if self.how == "other":
            self.tensor = self.tensor.long()
        return self.tensor if self.how != "has none" else future.value()


@pytest.mark.parametrize("how", ["other", "has none"])
def test_an_operation_is_seen_as_it_was_issued(how: str) -> None:
    """What it makes of its tensor later is no bucket's buffer; one without harms no training."""
    group: Any = FakeGroup()

    @staged
    def rebinding(state: Any, bucket: Any) -> Iterator[Any]:
        operation = _Rebinds(bucket.buffer(), group)
        operation.how = now[0]
        return (yield operation)

    now = [""]
    bucket = FakeBucket([torch.ones(4)], is_last=True)
    with Tracer(error_every=0, align_clocks=False, interval_s=3600) as tracer:
        traced = trace(rebinding, tracer=tracer)
        for _ in range(2):
            traced(None, bucket).wait()
        now[0] = how
        if how == "other":
            with pytest.raises(Exception, match="is int64 and the gradients are float32"):
                traced(None, bucket).wait()
            return
        assert traced(None, bucket).wait() is bucket.buffer()
        tracer.flush()
        assert tracer.losses() == {"stamp_failed": 1}


def test_an_interrupt_while_a_result_is_read_is_raised() -> None:
    """Python runs inside ``value()`` where a future has a function for that."""

    def interrupted(state: Any, bucket: Any) -> Any:
        future: Any = plain(state, bucket)
        future._set_unwrap_func(mock.Mock(side_effect=[KeyboardInterrupt, None]))
        return future

    with Tracer(error_every=0, align_clocks=False) as tracer:
        hook, bucket = trace(interrupted, tracer=tracer), FakeBucket([torch.ones(4)], is_last=True)
        with pytest.raises(KeyboardInterrupt):
            hook(None, bucket)
        tracer.flush()
        assert [a.kind for a in tracer.anomalies()] == ["hook_exception"]

"""Times of a step: overlap, exposed, period; and why it is not known what a hook sent.

What is known of that, on real ranks: ``test_plain_hooks.py``.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from hooktrace import Tracer, hooks, trace
from hooktrace.staging import group_hooks
from hooktrace.testing import FakeBucket
from tests.fakes import FakeOperation, Job, buckets_of, fake_clock, hook_of, plain
from tests.staging.test_backward import chain


def test_overlap_of_two_buckets() -> None:
    """Exposed counts from the last bucket's readiness, busy is the union, never the sum."""
    clock = fake_clock()
    operations = [FakeOperation(wire_bytes=4) for _ in range(2)]
    with Tracer(clock=clock) as tracer:
        hook = trace(hook_of(operations), tracer=tracer)
        for bucket, clock.now_ns in zip(buckets_of(2), (0, 60), strict=True):
            hook(None, bucket)
        for operation, clock.now_ns in zip(reversed(operations), (80, 90), strict=True):
            operation.complete()
        (step,) = tracer.steps()
    assert (step.first_ready_ns, step.last_ready_ns, step.done_ns) == (0, 60, 90)
    assert (step.communication_ns, step.exposed_ns) == (90, 30)


def test_period_is_from_first_ready_to_first_ready() -> None:
    """The next step knows it; warm-up (0, 1) has none, and later buckets do not matter."""
    clock = fake_clock()
    operations = [FakeOperation(wire_bytes=4) for _ in range(10)]
    with Tracer(clock=clock) as tracer:
        hook = trace(hook_of(operations), tracer=tracer)
        buckets, waiting = buckets_of(2), iter(operations)
        for clock.now_ns in (1000, 1500, 2500, 2900, 3900):
            for bucket, operation in zip(buckets, waiting, strict=False):
                hook(None, bucket)
                clock.advance(100)
                operation.complete()
        periods = [s.previous_period_ns for s in tracer.steps()]
    assert periods == [None, None, None, 400, 1000]


@pytest.mark.parametrize(("done", "exposed"), [(60, 0), (95, 0), (130, 35)])
def test_backward_that_goes_on_hides_communication(done: int, exposed: int) -> None:
    """To its end at 100, less the 5 that the hook's own call took; no record comes before."""
    clock, operation = fake_clock(), FakeOperation(wire_bytes=4)

    def arrive() -> None:
        clock.now_ns = done
        operation.complete()

    seen = []
    with Tracer(clock=clock) as tracer:
        traced, (bucket,) = trace(hook_of([operation], clock, 5), tracer=tracer), buckets_of(1)
        clock.now_ns = 10
        chain(
            lambda: traced(None, bucket),
            lambda: done < 100 and arrive(),
            lambda: seen.extend(tracer.steps()),
            lambda: setattr(clock, "now_ns", 100),
        ).backward()
        if done > 100:
            arrive()
        (step,) = tracer.steps()
    assert seen == []
    assert (step.last_ready_ns, step.done_ns, step.exposed_ns) == (10, done, exposed)


def test_exposed_is_unknown_where_backward_failed() -> None:
    """It has no end to count from."""
    with Tracer() as tracer:
        job = Job(tracer)
        with pytest.raises(ZeroDivisionError):
            chain(job.step, lambda: 1 // 0).backward()
        (step,) = tracer.steps()
    assert step.complete
    assert step.exposed_ns is None


def test_the_wait_for_a_turn_is_a_stage_of_its_own() -> None:
    """From the hook's call to its turn, by stamps: no queue of the backend, and not derived."""
    clock = fake_clock()
    operations = [FakeOperation(wire_bytes=4) for _ in range(3)]
    hook = hook_of(operations, clock, 5, multi_round=True)
    with Tracer(clock=clock) as tracer:
        traced = trace(hook, tracer=tracer)
        first, second, last = buckets_of(3)
        traced(None, first)
        clock.now_ns = 40
        traced(None, second)
        clock.now_ns = 90
        operations[0].complete()
        clock.now_ns = 120
        operations[1].complete()
        operations[2].complete()
        traced(None, last)
        one, two, _ = tracer.buckets()
    assert [(s.name, s.start_ns, s.end_ns, s.derived) for s in two.stages] == [
        ("serialization_wait", 40, 90, False),
        ("compress", 90, 95, False),
        ("wire", 95, 120, True),
        ("decompress", 120, 120, False),
    ]
    assert one.stage_ns("serialization_wait") == one.stage_ns("queue") == two.stage_ns("queue") == 0


@pytest.mark.parametrize(
    ("hook", "group_hooks_there", "why"),
    [
        (plain, False, "torch before 2.14 does not tell"),
        (plain, True, None),
        (hooks.fp16_compress_wrapper(plain), False, "a plain hook inside another"),
        (hooks.fp16_compress_wrapper(plain), True, "a plain hook inside another"),
    ],
)
def test_what_is_not_seen(
    hook: Any, group_hooks_there: bool, why: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason stands with every step; a call that torch was not yet asked about has none."""
    monkeypatch.setattr(group_hooks, "available", group_hooks_there)
    monkeypatch.setattr(group_hooks, "is_watching", False)
    bucket = FakeBucket([torch.zeros(4)], index=0, is_last=True)
    with Tracer(error_every=0, align_clocks=False) as tracer:
        traced = trace(hook, tracer=tracer)
        for _ in range(2):
            traced(None, bucket).wait()
        steps = tracer.steps()
    assert [step.wire_bytes for step in steps] == [None, None]
    for step in steps:
        assert step.sent is None
        assert (step.sent_unknown is None) if why is None else (why in str(step.sent_unknown))

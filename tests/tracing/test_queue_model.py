"""When collectives began, against an integer clock."""

from __future__ import annotations

from typing import Any

import pytest

from hooktrace import BucketRecord, Tracer, staged, trace
from hooktrace.capture.calls import Collective
from hooktrace.tracing.queue_model import QueueModel
from hooktrace.tracing.stage_times import TimedCollective
from tests.fakes import FakeGroup, FakeOperation, buckets_of, fake_clock, hook_of


def spans(record: BucketRecord) -> list[tuple[str, int, int]]:
    return [(s.name, s.start_ns, s.end_ns) for s in record.stages]


def run_queue(workers: int) -> list[BucketRecord]:
    """Issue three collectives at 0, 10, 20 that arrive at 100, 110, 150."""
    clock = fake_clock()
    group = FakeGroup(workers=workers)
    operations = [FakeOperation(wire_bytes=4, info=group) for _ in range(3)]
    with Tracer(clock=clock) as tracer:
        hook = trace(hook_of(operations), tracer=tracer)
        for bucket in buckets_of(3):
            hook(None, bucket)
            clock.advance(10)
        clock.now_ns = 100
        operations[0].complete()
        clock.now_ns = 110
        operations[1].complete()
        clock.now_ns = 150
        operations[2].complete()
        (step,) = tracer.steps()
        assert (step.exposed_ns, step.busy_ns, step.wire_busy_ns) == (130, 150, 150)
        return tracer.buckets()


@pytest.mark.parametrize(
    ("workers", "starts"), [(1, [0, 100, 110]), (2, [0, 10, 100]), (3, [0, 10, 20])]
)
def test_the_queue_is_told_from_the_wire(workers: int, starts: list[int]) -> None:
    """With W workers a collective waits until fewer than W earlier ones are unfinished."""
    records = run_queue(workers)
    assert [r.stages[-2].start_ns for r in records] == starts
    for record, issued, start in zip(records, (0, 10, 20), starts, strict=True):
        expected = [("queue", issued, start)] if start > issued else []
        assert [s for s in spans(record) if s[0] == "queue"] == expected


def test_a_callback_holds_its_worker() -> None:
    """What decompresses runs on the worker: the next collective starts at its end, at 130."""
    clock, group = fake_clock(), FakeGroup(workers=1)
    operations = [FakeOperation(wire_bytes=4, info=group) for _ in range(2)]

    def hook(state: object, bucket: Any) -> Any:
        yield operations[bucket.index()]
        clock.advance(30)
        return bucket.buffer()

    with Tracer(clock=clock) as tracer:
        traced = trace(staged(hook), tracer=tracer)
        for bucket in buckets_of(2):
            traced(None, bucket)
        clock.now_ns = 100
        operations[0].complete()
        clock.now_ns = 150
        operations[1].complete()
        first, second = tracer.buckets()
    assert spans(first)[1:] == [("wire", 0, 100), ("decompress", 100, 130)]
    assert spans(second)[1:] == [("queue", 0, 130), ("wire", 130, 150), ("decompress", 150, 180)]


def test_an_unknown_backend_has_no_queue() -> None:
    """Where the number of workers is unknown, wire is launch to arrival, and not called derived."""
    for record in run_queue(0):
        assert [s.name for s in record.stages] == ["compress", "wire", "decompress"]
        assert not any(s.derived for s in record.stages)


def test_one_that_ended_late_is_found_behind_others() -> None:
    """It was noted first, many that ended long ago after it: it still holds the only worker."""
    what = Collective("all_reduce", 4, None, FakeGroup(workers=1))
    model, spans = QueueModel(), [(0, 500, 500), *((i, i + 1, i + 1) for i in range(1, 400))]
    model.add((what, span) for span in spans)
    last = TimedCollective(what, 450, 600, 600)
    model.add([(what, (450, 600, 600))])
    model.derive_starts([last])
    assert last.start == 500

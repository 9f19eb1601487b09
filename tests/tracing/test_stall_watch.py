"""Which steps are marked as stalled, and what is said of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from msgspec.structs import replace

from hooktrace.records import AnomalyRecord, StepRecord
from hooktrace.tracing.stall_watch import StallWatch
from hooktrace.tracing.state import Alarm
from tests.exporters.records_sample import make_step

SECOND = 10**9
SLOT: Any = SimpleNamespace(model=SimpleNamespace(rank=3))


def steps(count: int = 20, **changes: Any) -> list[StepRecord]:
    """Return sample steps, of which 12 waits for 10 s."""
    made = [replace(make_step(i)[0], **changes) for i in range(count)]
    made[12] = replace(made[12], exposed_ns=10 * SECOND)
    return made


def marks(made: list[StepRecord]) -> list[AnomalyRecord]:
    """Return what is said of steps."""
    watch = StallWatch()
    return [mark for step in made if (mark := watch.of_step(SLOT, step)) is not None]


def test_a_stalled_step_is_named_with_its_number_and_nobody_is_blamed() -> None:
    """This rank waited; for whom, it cannot tell."""
    (mark,) = marks(steps())
    assert (mark.kind, mark.step, mark.bucket, mark.rank) == ("stall", 12, -1, 3)
    assert "step 12: 10,000 ms of exposed communication, where 2.00 ms is usual" in mark.message
    assert "; this rank waited, and cannot tell for whom" in mark.message


def test_each_stall_is_said_and_ordinary_steps_are_not() -> None:
    """Another one later is another step's."""
    made = steps()
    made[15] = replace(made[15], exposed_ns=3 * SECOND)
    made[17] = replace(made[17], exposed_ns=SECOND)
    assert [mark.step for mark in marks(made)] == [12, 15]


def test_steps_that_do_not_count_are_no_stalls() -> None:
    """DDP's first steps connect and wait; a step without data, or without a bucket, is no step."""
    for changes in ({"warmup": True}, {"shadow": True}, {"complete": False}):
        assert marks(steps(**changes)) == []


def test_before_there_is_a_usual_nothing_is_said() -> None:
    """A long first step may be what all steps are like."""
    assert marks(steps()[9:16]) == []


def test_a_probed_step_may_be_long_by_the_probe() -> None:
    """It is said that it was probed, and does not count for what is usual."""
    made = steps()
    made[12] = replace(made[12], probed=True)
    (mark,) = marks(made)
    assert "hooktrace probed the step, which may be a part of it" in mark.message


def test_a_stall_never_ends_training() -> None:
    """It is over when it is known, and no fault of the hook."""
    assert Alarm("raise").hear(marks(steps())) is None

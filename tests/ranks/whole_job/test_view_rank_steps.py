"""What a rank tells of itself is what its records say, and nothing of what does not count."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from hooktrace.ranks.whole_job.job_steps import (
    Gatherer,
    Model,
    RankLine,
    decode_lines,
    decode_part,
)
from hooktrace.ranks.whole_job.view import ClockOffset, RankSteps
from hooktrace.records import Batch, StepSpread
from hooktrace.records.job import Range
from tests.exporters.records_sample import HOOK, MODEL, STEP_NS, make_anomaly, make_run, make_step

OFFSET = (1_000, 20)


class Rank:
    def __init__(self, clock_offset: ClockOffset = lambda _: OFFSET) -> None:
        self.gatherer = Gatherer()
        self.add = RankSteps(self.gatherer, clock_offset, print).add

    def tell(self) -> tuple[list[tuple[Model, StepSpread]], list[RankLine]]:
        message = self.gatherer.message()
        if message is None:
            return [], []
        part = decode_part(message)
        steps = [(model, step) for model, of_model in part.steps for step in of_model]
        return steps, decode_lines(part.lines)


def batch(*steps: int, **changes: object) -> Batch:
    made = [make_step(step) for step in steps]
    return Batch(
        run=make_run(1),
        steps=tuple((replace(step, **changes), buckets) for step, buckets in made),
        records=(make_anomaly(max(steps)),),
    )


def test_a_step_is_told_once_in_the_clock_of_rank_0() -> None:
    """With the period that it ended, its exposed time and when its last bucket was ready."""
    steps = Rank()
    steps.add(batch(1, 2))
    told, (line,) = steps.tell()
    record, _ = make_step(2)
    assert record.exposed_ns is not None
    arrival_ns = record.last_ready_ns + 1_000
    first_ns = make_step(1)[0].last_ready_ns + 1_000
    assert told[1] == (
        (MODEL, HOOK),
        StepSpread(
            2, 1, 0, Range(1, STEP_NS, 1, STEP_NS, 1), STEP_NS,
            Range(1, record.exposed_ns, 1, record.exposed_ns, 1), record.exposed_ns,
            Range(1, arrival_ns, 1, arrival_ns, 1), 20,
        ),
    )  # fmt: skip
    assert (line.rank, line.host, line.step, line.period_ns) == (1, "host-a", 2, STEP_NS)
    assert line.arrivals == ((1, first_ns),)  # the second comes too soon after it
    assert (line.anomalies, line.anomaly) == (1, "hook_exception step 2")
    assert steps.tell() == ([], [])


@pytest.mark.parametrize(
    ("changes", "offset", "known"),
    [
        ({"checked": True, "previous_period_ns": None}, OFFSET, (None, False, False)),
        ({"complete": False, "previous_period_ns": None}, OFFSET, (None, False, False)),
        ({}, None, (STEP_NS, True, False)),
        # Its ranks come to its end together, which tells nothing of who was late before.
        ({"sharded": True}, OFFSET, (STEP_NS, True, False)),
    ],
    ids=["checked", "incomplete", "no clock", "sharded"],
)
def test_what_is_not_known_is_not_told(
    changes: dict[str, Any], offset: tuple[int, int] | None, known: tuple[object, ...]
) -> None:
    """Of a step that does not count, that it was there; of one without a clock, no arrival."""
    steps = Rank(lambda _: offset)
    steps.add(batch(1, **changes))
    ((_, part),), (line,) = steps.tell()
    assert (line.period_ns, part.exposed is not None, part.arrival is not None) == known
    assert (line.exposed_ns is not None, line.arrivals) == (known[1], ())
    assert (part.step, part.incomplete) == (1, int(changes.get("complete") is False))


def test_arrivals_reach_back_to_what_other_ranks_have_told() -> None:
    """However short the steps are, those of the last seconds are among them."""
    steps = Rank()
    steps.add(batch(*range(1, 501)))  # 5 s
    _, (line,) = steps.tell()
    first, last = line.arrivals[0], line.arrivals[-1]
    assert len(line.arrivals) == 8
    assert 1_500_000_000 <= last[1] - first[1] <= 2_000_000_000

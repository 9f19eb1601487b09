"""Records and what follows from their fields: ``hooktrace/records`` but its tables and files."""

from __future__ import annotations

import pickle
import random
from pathlib import Path

import pytest
from msgspec.structs import replace

from hooktrace.records import (
    OtherCollective,
    OtherCollectives,
    late_rank,
)
from hooktrace.records.errors import HookError
from hooktrace.records.files import find_records
from hooktrace.records.last_used import Bounded, LastUsed
from hooktrace.records.running_median import RunningMedian
from hooktrace.records.stall import is_stall
from tests.exporters import records_sample as sample

STEP, (BUCKET, _) = sample.make_step(1)


def test_a_bucket_s_times_by_stage() -> None:
    """The sample's: 0.1 ms compress, 0.4 queue, 1 wire, 0.5 decompress."""
    assert (BUCKET.clock, BUCKET.duration_ns, BUCKET.compression_ratio) == ("host", 2_000_000, 2.0)
    assert BUCKET.stage_totals_ns() == {
        "compress": 100_000, "queue": 400_000, "wire": 1_000_000, "decompress": 500_000,
    }  # fmt: skip
    assert (BUCKET.stage_ns("wire"), BUCKET.stage_ns("future_wait")) == (1_000_000, 0)
    assert BUCKET.busbw_bytes_per_second == (BUCKET.bus_bytes or 0) * 1e9 / 1_000_000
    assert replace(BUCKET, bus_bytes=0.0).busbw_bytes_per_second is None  # of one rank alone
    with pytest.raises(
        ValueError, match="no stage is called 'wier'; the stages are check, serialization_wait, co"
    ):
        BUCKET.stage_ns("wier")


def test_a_device_bucket_that_did_not_resolve_has_no_times() -> None:
    """The host's say when the work was enqueued, and nothing of how long it took."""
    _, (known, _) = sample.on_device(sample.make_step())
    _, (bucket, _) = sample.on_device(sample.make_step(), resolved=False)
    assert (known.clock, known.stage_ns("wire")) == ("device", 2_000_000)
    assert (bucket.clock, bucket.duration_ns, bucket.timed_stages) == ("device", None, ())
    assert bucket.busbw_bytes_per_second is None


@pytest.mark.parametrize(
    ("rate", "value", "unknown"),
    [
        ("overlap_ratio", 1 / 3, ("communication_ns", "exposed_ns")),
        ("compression_ratio", 2.0, ("wire_bytes",)),
        ("busbw_bytes_per_second", None, ("bus_bytes", "wire_in_flight_ns")),
    ],
)
def test_a_step_s_rates(rate: str, value: float | None, unknown: tuple[str, ...]) -> None:
    """Busy for 3 ms, 2 of them exposed, half of the bytes sent; without one part there is none."""
    assert STEP.counts
    expected = value or (STEP.bus_bytes or 0) * 1e9 / (STEP.wire_in_flight_ns or 0)
    assert getattr(STEP, rate) == pytest.approx(expected)
    assert [getattr(replace(STEP, **{name: None}), rate) for name in unknown] == [None] * len(
        unknown
    )


def test_other_collectives_are_none_of_ddps() -> None:
    """One without a size leaves the sum unknown; those that are not listed count."""

    def made(size: int | None, of_ddp: bool = False) -> OtherCollective:
        return OtherCollective(
            name="all_reduce", wire_bytes=size, issued_ns=1, done_ns=2, thread="MainThread",
            where="train.py:1", of_ddp=of_ddp,
        )  # fmt: skip

    few = (made(4), made(100, of_ddp=True), made(8))
    for collectives, expected in ((few, (5, 42)), ((made(None),), (4, None))):
        record = OtherCollectives(
            model="net", step=2, time_ns=0, until_ns=9, collectives=collectives, more=3,
            more_bytes=30,
        )  # fmt: skip
        assert (record.count, record.wire_bytes) == expected


@pytest.mark.parametrize(
    ("arrivals", "uncertainty", "late"),
    [
        ((0, 5, 20), 14, 2),
        ((0, 5, 20), 15, None),
        ((20, 0), 3, 0),
        ((0, 5, 20), None, None),
        ((0,), 0, None),
        ((), 0, None),
    ],
)
def test_nobody_is_late_within_the_uncertainty(
    arrivals: tuple[int, ...], uncertainty: int | None, late: int | None
) -> None:
    """It is of the last rank's distance to the next."""
    assert late_rank(arrivals, uncertainty) == late


@pytest.mark.parametrize(
    ("exposed_s", "usual_s", "period_s", "stalled"),
    [
        (2.01, 0.01, 0.2, True),
        (2.00, 0.01, 0.2, False),  # less than two seconds beyond the usual
        (5.00, 4.50, 6.0, False),  # a job that always waits as long
        (5.00, 1.00, 4.1, False),  # less than a step beyond the usual
        (5.10, 1.00, 4.1, True),
    ],
)
def test_a_stall_is_two_seconds_and_a_whole_step_beyond_the_usual(
    exposed_s: float, usual_s: float, period_s: float, stalled: bool
) -> None:
    """Both: two seconds are little where steps take ten, and two steps are where they take ms."""
    assert is_stall(*(round(s * 1e9) for s in (exposed_s, usual_s, period_s))) == stalled


def test_the_median_of_the_last_numbers_once_there_are_enough() -> None:
    """The upper one of the two in the middle; what is older does not count."""
    numbers = [random.Random(0).randrange(100) for _ in range(50)]
    running, found = RunningMedian(last=7, enough=3), []
    for number in numbers:
        running.add(number)
        found.append(running.median)
    lasts = [sorted(numbers[max(0, i - 6) : i + 1]) for i in range(2, 50)]
    assert found == [None, None, *(last[len(last) // 2] for last in lasts)]


def test_what_was_not_used_for_longest_is_forgotten() -> None:
    """An entry that is set again is as new; what went is handed back."""
    used: LastUsed[str, list[int]] = LastUsed(list, most=2)
    used.of("a").append(1)
    used.of("b").append(2)
    assert (used.of("a"), used.of("c"), len(used)) == ([1], [], 2)
    assert (used.of("a"), used.of("b")) == ([1], [])
    known: Bounded[str, int] = Bounded(2)
    known["a"], known["b"], known["a"] = 1, 2, 3
    assert (known.put("c", 4), known.put("c", 5)) == (2, None)
    assert known == {"a": 3, "c": 5}


def test_a_hooks_error_says_where_and_pickles() -> None:
    """A launcher sends it from process to process."""
    error = pickle.loads(pickle.dumps(HookError("mine", 3, "wire", "boom")))
    assert str(error) == "hook 'mine', bucket 3, stage wire: boom"
    assert (error.hook, error.bucket, error.stage, error.reason) == ("mine", 3, "wire", "boom")


def test_which_files_are_found(tmp_path: Path) -> None:
    """The logdir or the folder itself; parts in order; earlier runs and other files are not."""
    folder = tmp_path / "plugins" / "hooktrace"
    folder.mkdir(parents=True)
    first = ["rank00000.jsonl", "rank00000.part2.jsonl", "rank00000.part10.jsonl"]
    others = ["rank00000.1.jsonl", "rank0.json", "rankx.jsonl", f"rank{'9' * 20}.jsonl"]
    for name in ["rank00001.jsonl", *reversed(first), *others]:
        (folder / name).write_text("")
    for where in (tmp_path, folder):
        found = find_records(where)
        assert list(found) == [0, 1]
        assert [p.name for p in found[0]] == first
    assert find_records(tmp_path / "nowhere") == {}
